"""Build a table row by row, with merged cells."""

from collections.abc import Iterable
from dataclasses import dataclass

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.tables.forms import find_bold_names
from kosmos_rag.parsing.tables.table import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A cell of a row, in the order of the file."""

    text: str
    columns: int = 1
    rows: int = 1
    is_bold: bool = False


@dataclass(kw_only=True, slots=True)
class _CoveredColumns:
    """The columns that a cell covers in the rows below it."""

    column: int
    columns: int
    rows: int
    """That are left."""
    text: str


def shorten_repetition(text: str) -> str:
    """Shorten a merged cell's text for the rows after its first."""
    return text if len(text) <= bounds.MAX_REPEATED_CHARS else text[: bounds.MAX_REPEATED_CHARS - 1].rstrip() + "…"


class TableBuilder:
    """A table under construction.

    A cell of several rows gives its text to each of them: the whole to the first, the beginning to the others.
    """

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._spans: dict[tuple[int, int], int] = {}
        self._covered: list[_CoveredColumns] = []
        self._positions = 0
        self._bold: list[list[bool]] = []
        """Whether each cell with a text is bold, by row."""

    def add_row(self, cells: Iterable[Cell]) -> None:
        """Add a row: each cell takes the next free column.

        Cells above may cover columns.

        Raises:
            ParseError: `too_large`; the merged cells cover too many positions.
        """
        self._rows.append([])
        self._bold.append([])
        above = iter(self._covered)
        covered = next(above, None)
        new_covers = []
        column = 0
        for cell in cells:
            while covered and covered.column <= column:
                self._place(covered.column, covered.columns, covered.text)
                column = max(column, covered.column + covered.columns)
                covered = next(above, None)
            columns = max(1, min(cell.columns, bounds.MAX_SPANNED_COLUMNS))
            self._place(column, columns, cell.text)
            self._bold[-1] += [cell.is_bold] if cell.text else []
            if cell.rows > 1:
                text = shorten_repetition(cell.text)
                new_covers.append(_CoveredColumns(column=column, columns=columns, rows=cell.rows, text=text))
            column += columns
        while covered:
            self._place(covered.column, covered.columns, covered.text)
            covered = next(above, None)
        self._end_row(new_covers)

    def _end_row(self, new_covers: list[_CoveredColumns]) -> None:
        self._cover(len(self._covered))
        if new_covers:
            self._covered = sorted([*self._covered, *new_covers], key=lambda covered: covered.column)
        for covered in self._covered:
            covered.rows -= 1
        self._covered = [covered for covered in self._covered if covered.rows]

    def _place(self, column: int, columns: int, text: str) -> None:
        row = self._rows[-1]
        if column < len(row):
            return  # two cells ask for one place
        if column > len(row):
            self._cover(column - len(row))
            row += [""] * (column - len(row))
        row.append(text)
        if columns > 1:
            self._spans[len(self._rows) - 1, column] = columns

    def _cover(self, positions: int) -> None:
        self._positions += positions
        if self._positions > bounds.MAX_COVERED_CELLS:
            message = (
                f"merged cells of a table cover more than {bounds.MAX_COVERED_CELLS:,} positions; simplify the table"
            )
            raise ParseError("too_large", message)

    def end_group(self) -> None:
        """End a group of rows: no cell reaches beyond it."""
        self._covered = []

    def build(self, *, header_rows: int | None = None, header_columns: int = 0, caption: str = "") -> Table:
        """Return the table.

        Args:
            header_rows: field of the table; None to find them by bold letters, else by the kinds of the cells.
            header_columns: field of the table.
            caption: field of the table.
        """
        has_labels = False
        if header_rows is None:
            header_rows, has_labels = find_bold_names(self._rows, self._spans, self._bold)
        return Table(
            rows=self._rows,
            spans=self._spans,
            header_rows=header_rows,
            header_columns=header_columns,
            has_labels=has_labels,
            caption=caption,
        )
