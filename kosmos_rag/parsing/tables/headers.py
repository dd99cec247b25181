"""Find title rows and header rows by the kinds of cells."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise, zip_longest

from kosmos_rag.parsing import bounds

MAX_HEADER_ROWS = 4
MAX_NAME_CHARS = 60
"""Longer cells are text, no names and no values."""
_YEAR = re.compile(r"(?:19|20)\d\d")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?:[T ].*)?|\d{1,2}:\d\d(?::\d\d)?")
_NUMBER = re.compile(
    r"[-+(~<>≤≥±]*\s?[$€£¥₹]?\s?[-+(]?\d(?:[\d.,'’\s]*\d)?(?:[eE][-+]?\d+)?"  # noqa: RUF001
    r"(?:\s?(?P<percent>[%‰])|\s?[$€£¥₹]|\s?(?P<unit>[^\W\d_µ°]{1,6}))?\)?"
)
_UNIT = re.compile(r"[(\[][^()\[\]\d]{1,20}[)\]]|%")
LEAST_ROWS = 2
"""Of a form: one row shows too little."""
_DIGIT = re.compile(r"\d")
_VALUE = re.compile(r"\d.*|(?![^\W\d_]+\d+$)\S*[\d@]\S*")
"""A number or address; a word with a number, `Address 1`, may be a name."""
_MISSING = frozenset({"", "-", "–", "—", "n/a", "N/A", "na", "NA", "..", "...", "*", "null", "NULL", "?"})  # noqa: RUF001

Rows = Sequence[Sequence[str]]
Spans = Mapping[tuple[int, int], int]
NO_SPANS: Spans = {}


class _Kind(Enum):
    TEXT = auto()
    YEAR = auto()
    DATE = auto()
    NUMBER = auto()
    PERCENT = auto()
    QUANTITY = auto()
    """A number with a unit: `30 days`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderRows:
    """The rows of a table that name its columns."""

    first: int
    """Rows before it are titles."""
    count: int
    columns: int = 0
    """Leading columns that name the row, where no row names the columns."""


def find_header(rows: Rows, spans: Spans) -> HeaderRows:
    """Find the title rows and header rows of a table.

    A title row has one filled cell, the first one. A header row has words, or numbers of another kind than those of
    the column below it: years above amounts. The rows below a row with gaps or merged cells may belong to the header
    too. A table of pairs, `Founded | 1815`, has no header row: its first column names the rows.
    """
    grid = _Grid(rows, spans)
    first = grid.count_titles()
    count = grid.count_header_rows(first)
    if count <= 1 and grid.has_pairs(first):
        return HeaderRows(first=first, count=0, columns=1)
    return HeaderRows(first=first, count=count)


def is_ambiguous(rows: Rows) -> bool:
    """Return whether two rows of two words may be labels with values."""
    if [len(row) for row in rows] != [2, 2]:
        return False
    kinds = [_kind(cell) if cell else None for row in rows for cell in row]
    is_number = bool(_DIGIT.search(rows[0][1])) and kinds[3] is not None  # `Bill | R-17` above a date, or a column Q1
    return kinds[:3] == [_Kind.TEXT] * 3 and (kinds[3] is _Kind.TEXT or is_number)


class NumberStarts:
    """Where numbers of one kind begin in the columns of a table."""

    def __init__(self, rows: Rows) -> None:
        self._kinds = _find_kinds(rows)
        self._starts = _find_number_starts(self._kinds)

    def find_lower_header(self) -> int:
        """Return the index of the header of the lower of two tables, else 0.

        Words in each cell of a row, numbers of a kind below one of them, and none of this kind above it.
        """
        width = max(map(len, self._kinds), default=0)
        for index in range(1, len(self._kinds) - 1):
            row = self._kinds[index]
            is_header = len(row) == width and all(kind is _Kind.TEXT for kind in row)
            if is_header and any(first <= index <= last for first, last in self._starts.values()):
                return index
        return 0

    def are_below_names(self) -> bool:
        """Return whether numbers of one kind begin below a word of the first row."""
        first, starts = self._kinds[0] if self._kinds else [], self._starts
        return any(kind is _Kind.TEXT and at in starts and not starts[at][0] for at, kind in enumerate(first))


def _find_kinds(rows: Rows) -> list[list[_Kind | None]]:
    sample = rows[: 2 * bounds.SAMPLE_ROWS]
    return [[None if cell in _MISSING else _kind(cell) for cell in row] for row in sample]


def _find_number_starts(kinds: Sequence[Sequence[_Kind | None]]) -> dict[int, tuple[int, int]]:
    """Return the first and last row below which numbers of one kind begin, by column.

    The first row may have one, as the value of a label.
    """
    starts = {}
    for column, cells in enumerate(zip_longest(*kinds)):
        filled = [row for row, kind in enumerate(cells) if row and kind]
        if not filled or (kind := cells[filled[-1]]) is _Kind.TEXT:
            continue
        last_other = next((row for row in reversed(filled) if cells[row] is not kind), 0)
        first = next(row for row in filled if cells[row] is kind)
        starts[column] = (last_other, min(first, filled[-1] - 1))
    return starts


def has_values(rows: Rows, count: int) -> bool:
    """Return whether one of the first rows has a value, not only names.

    A date or a year is a value where one is below it.
    """
    kinds = _find_kinds(rows)
    for cells in zip_longest(*kinds):
        values = {kind for kind in cells[:count] if kind and kind is not _Kind.TEXT}
        if values - {_Kind.DATE, _Kind.YEAR} or not values.isdisjoint(cells[count:]):
            return True
    return False


def has_labels(rows: Rows) -> bool:
    """Return whether labels and values alternate in each row: `Name | Ada | Born | 1815`.

    The labels have a colon, or the values below each other are of several kinds. Then the first row has a value with a
    digit or an address, so it names no columns.
    """
    if len(rows) < LEAST_ROWS or len({len(row) for row in rows}) != 1 or len(rows[0]) % 2 or is_progression(rows[0]):
        return False
    labels = [label for row in rows for label in row[::2]]
    is_labelled = all(label and _is_word(label) for label in labels)
    if not is_labelled or len(set(labels)) < len(labels):
        return False
    values = rows[0][1::2]
    has_value = any(_VALUE.fullmatch(value) and _kind(value) is not _Kind.YEAR for value in values)
    is_mixed = any(_is_mixed(column) for column in zip(*(row[1::2] for row in rows), strict=True))
    return all(label.endswith(":") for label in labels) or (has_value and is_mixed)


def are_pairs(rows: Rows, width: int) -> bool:
    """Return whether each row is one label with its value, above a wider table."""
    labels = {row[0] for row in rows if _find_filled_columns(row) == [0, 1] and _is_word(row[0])}
    return width > 2 and LEAST_ROWS <= len(rows) == len(labels)


def _is_word(label: str) -> bool:
    return _kind(label) is _Kind.TEXT and not _DIGIT.search(label)


def _is_mixed(column: Sequence[str]) -> bool:
    """Return whether a column has dates and numbers, or enough words among them."""
    kinds = [_kind(cell) for cell in column if cell not in _MISSING]
    words, dates = kinds.count(_Kind.TEXT), kinds.count(_Kind.DATE)
    return len(kinds) > words and (4 * words >= len(kinds) or 0 < dates < len(kinds) - words)


class _Grid:
    """The cells of a table with their kinds."""

    def __init__(self, rows: Rows, spans: Spans) -> None:
        self._rows = rows
        self._spans = spans
        columns = {column for row in rows[: 2 * bounds.SAMPLE_ROWS] for column in _find_filled_columns(row)}
        self._left = min(columns, default=0)
        self._width = max(columns, default=0) + 1 - self._left

    def count_titles(self) -> int:
        """Count the leading rows of a single cell that are no header."""
        for index, row in enumerate(self._rows[: bounds.SAMPLE_ROWS]):
            filled = _find_filled_columns(row)
            if len(filled) > 1 or self._width == 1 or (filled and self._is_header(index)):
                return index
        return 0

    def count_header_rows(self, first: int) -> int:
        """Count the header rows from the first row that is no title."""
        if not self._is_header(first):
            return 0
        count = 1
        while count < MAX_HEADER_ROWS and self._continues(first + count - 1):
            count += 1
        return count

    def _is_header(self, index: int) -> bool:
        """Return whether a row names columns.

        Alone or together with the row below it.
        """
        if index + 1 >= len(self._rows):
            return False
        filled = _find_filled_columns(self._rows[index])
        if len(filled) < 2:
            return bool(filled) and filled[0] != self._left and self._continues(index)
        return self._has_names(index)

    def _has_names(self, index: int) -> bool:
        """Return whether each cell is a name of its column.

        It is a word, or of another kind than the column below it.
        """
        row = self._rows[index]
        kinds = {column: _kind(row[column]) for column in _find_filled_columns(row)}
        if all(kind is _Kind.TEXT or self._differs(index, column, kind) for column, kind in kinds.items()):
            return True
        return is_progression(row) and not is_progression(self._rows[index + 1])

    def _differs(self, index: int, column: int, kind: _Kind) -> bool:
        sample = self._rows[index + 1 : index + 1 + bounds.SAMPLE_ROWS]
        below = [_kind(row[column]) for row in sample if column < len(row) and row[column] not in _MISSING]
        if kind is _Kind.YEAR:
            return bool(below) and 2 * below.count(kind) < len(below)
        # Values of many kinds, as in a form, are below no name.
        return any(2 * count > len(below) for other, count in Counter(below).items() if other is not kind)

    def _continues(self, index: int) -> bool:
        """Return whether the row below a header row is header too."""
        row, below = self._rows[index], self._rows[index + 1]
        filled = _find_filled_columns(below)
        if filled and all(_UNIT.fullmatch(below[column]) for column in filled):
            return True
        if len(filled) < 2 or index + 2 >= len(self._rows) or not self._has_names(index + 1):
            return False
        if any((index, column) in self._spans for column in _find_filled_columns(row)):
            return True
        first = _find_filled_columns(row)[0]
        fills_gap = any(column > first and not "".join(row[column : column + 1]) for column in filled)
        # A gap alone may be a missing name: what fills it must be a header by its kind, not only by its words.
        return fills_gap and any(self._differs(index + 1, column, _kind(below[column])) for column in filled)

    def has_pairs(self, first: int) -> bool:
        """Return whether the first column names the rows.

        Its names end with a colon, or the table has two columns with values of several kinds.
        """
        rows = [row for row in self._rows[first : first + bounds.SAMPLE_ROWS] if _find_filled_columns(row)]
        if self._width < 2 or self._left or len(rows) < 2:
            return False
        names = [row[0] for row in rows]
        if len(set(names)) < len(names) or any(_kind(name) is not _Kind.TEXT for name in names):
            return False
        if all(name.endswith(":") for name in names):
            return True
        if self._width > 2:
            return False
        kinds = [_kind(row[1]) for row in rows[1:] if len(row) > 1 and row[1] not in _MISSING]
        return len(kinds) > 1 and 1 <= 4 * kinds.count(_Kind.TEXT) / len(kinds) <= 3


def _find_filled_columns(row: Sequence[str]) -> list[int]:
    return [column for column, cell in enumerate(row) if cell]


def _kind(cell: str) -> _Kind:
    if len(cell) > MAX_NAME_CHARS:
        return _Kind.TEXT
    if _YEAR.fullmatch(cell):
        return _Kind.YEAR
    if _DATE.fullmatch(cell):
        return _Kind.DATE
    number = _NUMBER.fullmatch(cell)
    if number is None:
        return _Kind.TEXT
    return _Kind.PERCENT if number["percent"] else _Kind.QUANTITY if number["unit"] else _Kind.NUMBER


def is_progression(row: Sequence[str]) -> bool:
    """Return whether a row has numbers at equal steps, or years.

    `Hour | 1 | 2 | 3`, or `Region | 2023 | 2024 | Sum`.
    """
    cells = [cell for cell in row if cell]
    years = [cell for cell in cells if _kind(cell) is _Kind.YEAR]
    values = cells[1:] if cells and _kind(cells[0]) is _Kind.TEXT else cells
    if len(years) > 1 and all(cell in years or _kind(cell) is _Kind.TEXT for cell in values):
        return _steps(years) in ({1}, {-1})
    if len(values) < 3 or not all(cell.isdecimal() and len(cell) < 10 for cell in values):
        return False
    steps = _steps(values)
    return len(steps) == 1 and 0 not in steps


def _steps(numbers: Sequence[str]) -> set[int]:
    return {int(after) - int(before) for before, after in pairwise(numbers)}


def is_label(cell: str) -> bool:
    """Return whether a cell may name its row.

    It is a word, a date or a year.
    """
    return _kind(cell) in (_Kind.TEXT, _Kind.DATE, _Kind.YEAR)
