"""Build a table row by row from cells that cover several rows and columns."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kosmos_rag.core.errors import ParseError
from kosmos_rag.ingestion.parsing.tables import Table

_MAX_COLUMNS = 1_000
"""That a cell may cover, as the HTML standard has it."""
_MAX_REPEATED_CHARS = 100
_MAX_COVERED = 1_000_000
"""Positions of a table that merged cells may fill: a file of a few bytes can ask for any number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A cell of a row, in the order of the file."""

    text: str
    columns: int = 1
    rows: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Covered:
    """Columns that a cell of a row above covers."""

    column: int
    cell: Cell


class TableBuilder:
    """A table under construction.

    A cell of several rows gives its text to each of them: the whole to the first, the beginning to the others.
    """

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._spans: dict[tuple[int, int], int] = {}
        self._covered: list[_Covered] = []
        self._positions = 0

    def add_row(self, cells: Iterable[Cell]) -> None:
        """Add a row: each cell takes the next column that no cell above covers.

        Raises:
            ParseError: `too_large`; the merged cells cover too many positions.
        """
        self._rows.append([])
        covered = iter(self._covered)
        above = next(covered, None)
        below: list[_Covered] = []
        column = 0
        for cell in cells:
            while above and above.column <= column:
                column = max(column, self._place(above.column, above.cell, below))
                above = next(covered, None)
            column = self._place(column, replace(cell, columns=max(1, min(cell.columns, _MAX_COLUMNS))), below)
        while above:
            self._place(above.column, above.cell, below)
            above = next(covered, None)
        self._covered = sorted(below, key=lambda covered: covered.column)

    def _place(self, column: int, cell: Cell, below: list[_Covered]) -> int:
        row = self._rows[-1]
        end = column + cell.columns
        if column >= len(row):
            self._positions += column - len(row)
            if self._positions > _MAX_COVERED:
                message = f"merged cells of a table cover more than {_MAX_COVERED:,} positions; simplify the table"
                raise ParseError("too_large", message)
            row += [""] * (column - len(row))
            row.append(cell.text)
            if cell.columns > 1:
                self._spans[len(self._rows) - 1, column] = cell.columns
        if cell.rows > 1:
            text = cell.text
            if len(text) > _MAX_REPEATED_CHARS:
                text = text[:_MAX_REPEATED_CHARS].rstrip() + "…"
            below.append(_Covered(column=column, cell=replace(cell, text=text, rows=cell.rows - 1)))
        return end

    def end_group(self) -> None:
        """End a group of rows: no cell reaches beyond it."""
        self._covered = []

    def build(self, *, header_rows: int | None = None, header_columns: int = 0, caption: str = "") -> Table:
        """Return the table; the arguments are its fields."""
        return Table(
            rows=self._rows,
            spans=self._spans,
            header_rows=header_rows,
            header_columns=header_columns,
            caption=caption,
        )
