"""Collect the cells of a sheet: merged cells, and without hidden columns."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.tables.builder import shorten_repetition
from kosmos_rag.parsing.tables.sheets import Remark, Sheet


class SheetCells:
    """The cells of a sheet under construction.

    Rows and columns have their numbers in the file, from 1. Consecutive blank rows count as one.
    """

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._numbers: list[int] = []
        self._spans: dict[tuple[int, int], int] = {}
        self._bold: set[tuple[int, int]] = set()
        self._columns: list[int] | None = None
        self._covered = 0

    @property
    def is_blank(self) -> bool:
        """Whether no cell has a text."""
        return not any(map(any, self._rows))

    @property
    def width(self) -> int:
        """Number of cells of the longest row."""
        return max(map(len, self._rows), default=0)

    def add_row(self, number: int, row: list[str], bold: Collection[int] = ()) -> None:
        """Add the cells of the next row.

        Args:
            bold: columns from 0 whose cells have bold letters.
        """
        if not row:
            return
        if self._rows and number > self._numbers[-1] + 1:
            self._rows.append([])
            self._numbers.append(number - 1)
        self._bold.update((len(self._rows), column) for column in bold)
        self._rows.append(row)
        self._numbers.append(number)

    def merge(self, top: int, bottom: int, left: int, right: int) -> None:
        """Copy the text of merged cells to each of their rows.

        Their columns are recorded.

        Args:
            top: first row.
            bottom: last row.
            left: first column.
            right: last column.

        Raises:
            ParseError: `too_large`; the merged cells cover too many rows.
        """
        first, end = bisect_left(self._numbers, top), bisect_right(self._numbers, bottom)
        self._covered += end - first
        if self._covered > bounds.MAX_COVERED_CELLS:
            message = f"merged cells of a sheet cover more than {bounds.MAX_COVERED_CELLS:,} rows; save it without them"
            raise ParseError("too_large", message)
        if first < end and self._numbers[first] == top and left <= len(self._rows[first]):
            self._merge_rows(range(first, end), left - 1, right - left + 1)

    def _merge_rows(self, indexes: range, column: int, width: int) -> None:
        text = self._rows[indexes[0]][column]
        for index in indexes:
            row = self._rows[index]
            row += [""] * (column + 1 - len(row))
            row[column] = row[column] or shorten_repetition(text)
            if text and width > 1:
                self._spans[index, column] = width

    def remove_columns(self, hidden: Sequence[int]) -> None:
        """Remove columns, after all merged cells are known.

        Args:
            hidden: their numbers from 0, in order.
        """
        if not hidden:
            return
        left_out = set(hidden)
        self._columns = [column + 1 for column in range(self.width) if column not in left_out]
        for row in self._rows:
            for column in reversed(hidden):
                del row[column : column + 1]
        self._bold = {
            (row, column - bisect_left(hidden, column)) for row, column in self._bold if column not in left_out
        }
        spans = {(row, column, column + width) for (row, column), width in self._spans.items()}
        self._spans = {
            (row, start - bisect_left(hidden, start)): width
            for row, start, end in spans
            if (width := end - start - bisect_left(hidden, end) + bisect_left(hidden, start)) > 1
        }

    def build_sheet(self, name: str | None, remarks: Sequence[Remark] = ()) -> Sheet:
        """Return the sheet with its remarks."""
        return Sheet(
            rows=self._rows,
            spans=self._spans,
            bold=self._bold,
            name=name,
            row_numbers=self._numbers,
            column_numbers=self._columns,
            remarks=remarks,
        )
