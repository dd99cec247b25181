"""Names of the columns of a PDF table without vertical lines: the words above its numbers."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from kosmos_rag.parsing.pdf.cells import LEADING, Columns, Row, is_blank_value, is_value
from kosmos_rag.parsing.pdf.common_columns import has_years, is_numeric
from kosmos_rag.parsing.pdf.graphics import NEAR, Box
from kosmos_rag.parsing.pdf.lines import join_text
from kosmos_rag.parsing.pdf.text_layer import Run
from kosmos_rag.parsing.tables.headers import is_progression

WIDE = 0.9
"""Share of the width of a table that a ruled line between its rows or below its names has."""

_Range = tuple[int, int]
"""First and last column that a name covers."""


class _Name(NamedTuple):
    """A cell of a header."""

    left: float
    right: float
    bottom: float
    """Its lowest baseline."""
    runs: list[Run]

    @property
    def size(self) -> float:
        """The size of its letters."""
        return self.runs[0].size


class Names(NamedTuple):
    """The names of columns, level by level."""

    rows: Sequence[Row]
    """The last one has the names of single columns, those above it the names of several."""
    replaced: int
    """Rows of the table that they replace."""
    is_sure: bool
    """Each column of values has a name of its own."""


def find_names(rows: Sequence[Row], columns: Columns, rules: Sequence[Box]) -> Names | None:
    """Return the names above the numbers of a table.

    Lines of a name are joined. A name over several columns has a ruled line below it, or shares the columns evenly
    with others. The result is None if there are no names, or if most columns have no numbers.

    Args:
        rows: the rows of the table, top first.
        columns: left and right of each column.
        rules: ruled lines across the page.
    """
    count = _count_rows_of_names(rows, columns, rules)
    valued = _find_valued_columns(rows[count:], columns)
    if not count or 2 * len(valued) < len(columns) - 1:
        return None
    levels: list[Row] = []
    last_level = Row(baseline=rows[count - 1].baseline)
    for row, below in zip(rows[:count], [*rows[1:count], None], strict=True):
        if below and not levels and not last_level.cells and _is_title(row, len(columns)):
            levels.append(_title_row(row, len(columns)))
            continue
        level = Row(baseline=row.baseline)
        for name, (first, last) in _find_ranges(row, columns, rules, below):
            if first == last:
                last_level.cells[first] += name.runs
            else:
                level.cells[first] += name.runs
                level.spans[first] = last - first + 1
        if level.spans == {1: len(columns) - 1}:
            levels.append(_title_row(level, len(columns)))
        elif level.cells:
            levels.append(level)
    return Names([*levels, last_level], count, valued <= last_level.cells.keys())


def spread_names(rows: Sequence[Row], columns: Columns, rules: Sequence[Box]) -> None:
    """Find the columns that cells of an upper header row cover.

    Args:
        rows: the rows of the header and of the table, top first; the first one is changed.
        columns: left and right of each column.
        rules: ruled lines across the page.
    """
    if len(rows) < 3 or not 0 < len(rows[0].cells) < len(columns):
        return
    top = rows[0]
    ranges = _find_ranges(top, columns, rules, rows[1])
    top.cells = defaultdict(list)
    top.spans = {}
    for name, (first, last) in ranges:
        top.cells[first] += name.runs
        if last > first:
            top.spans[first] = last - first + 1


def _title_row(row: Row, columns: int) -> Row:
    """Return a row of one cell: what is above all columns distinguishes none of them."""
    return Row(baseline=row.baseline, cells={0: next(iter(row.cells.values()))}, spans={0: columns})


def _is_title(row: Row, columns: int) -> bool:
    return list(row.cells) == [0] and row.spans.get(0, 1) in (1, columns)


def _find_valued_columns(rows: Sequence[Row], columns: Columns) -> set[int]:
    """Return the columns, without the first one, that have numbers."""
    return {column for column in range(1, len(columns)) if is_numeric(rows, column)}


def _count_rows_of_names(rows: Sequence[Row], columns: Columns, rules: Sequence[Box]) -> int:
    """Count the leading rows of words that are names, without the titles of parts below them."""
    count = _count_rows_of_words(rows)
    valued = _find_valued_columns(rows[count:], columns)
    with_name: set[int] = set()
    for index, row in enumerate(rows[:count]):
        if index and valued <= with_name and _is_below_names(rows[index - 1], row, columns, rules):
            count = index
            break
        with_name |= row.cells.keys()
    while count and list(rows[count - 1].cells) == [0] and rows[count - 1].cells[0][0].left < columns[0][1]:
        count -= 1
    return count if count < len(rows) else 0


def _count_rows_of_words(rows: Sequence[Row]) -> int:
    """Count the rows above the first one with numbers that are no names."""
    for count, (row, below) in enumerate(pairwise(rows)):
        texts = [join_text(runs) for column, runs in row.cells.items() if column]
        is_header = _has_ordered_names(row) and not _has_ordered_names(below)
        if any(is_value(text) or is_blank_value(text) for text in texts) and not is_header:
            return count
    return len(rows)


def _has_ordered_names(row: Row) -> bool:
    """Return whether the numbers are years, or all cells are numbers at equal steps."""
    texts = [join_text(row.cells[column]) for column in sorted(row.cells)]
    return is_progression(texts) or has_years(texts)


def _is_below_names(names: Row, row: Row, columns: Columns, rules: Sequence[Box]) -> bool:
    """Return whether words below names are the first row of the table.

    They are in other letters, farther away than lines of a name, or below a ruled line.
    """
    above, below = ([run for runs in each.cells.values() for run in runs] for each in (names, row))
    top, bottom = min(run.baseline for run in above), max(run.baseline for run in below)
    width = columns[-1][1] - columns[0][0]
    return (
        (all(run.bold for run in above) and not any(run.bold for run in below))
        or top - bottom > LEADING * below[0].size
        or any(bottom < rule.bottom < top and rule.width > WIDE * width for rule in rules)
    )


def _find_ranges(row: Row, columns: Columns, rules: Sequence[Box], below: Row | None) -> list[tuple[_Name, _Range]]:
    """Return the cells of a row of names with the columns that they cover.

    Args:
        row: its runs are read.
        columns: left and right of each column.
        rules: ruled lines across the page.
        below: the next row of names; None where there is none.
    """
    names = [
        _Name(min(run.left for run in runs), max(run.right for run in runs), min(run.baseline for run in runs), runs)
        for _, runs in sorted(row.cells.items())
    ]
    ranges = [_find_ruled_columns(name, names, columns, rules if below else ()) for name in names]
    if below and row.baseline - below.baseline > LEADING * names[0].size and not any(ranges):
        ranges = _share_columns(names, columns) or ranges
    return [(name, range_ or _find_closest(name, columns)) for name, range_ in zip(names, ranges, strict=True)]


def _find_ruled_columns(name: _Name, names: Sequence[_Name], columns: Columns, rules: Sequence[Box]) -> _Range | None:
    """Return the columns below the ruled line under a name.

    No other name is above that line, and it is not above the names of the rows.
    """
    best: _Range | None = None
    for rule in rules:
        is_below = 0 < name.bottom - rule.bottom < LEADING * name.size
        if not is_below or rule.left - NEAR > name.left or name.right > rule.right + NEAR:
            continue
        if any(other is not name and rule.left < (other.left + other.right) / 2 < rule.right for other in names):
            continue
        covered = [
            at
            for at, (left, right) in enumerate(columns)
            if rule.left - NEAR <= (left + right) / 2 <= rule.right + NEAR
        ]
        if covered and covered[0] and (best is None or covered[-1] - covered[0] > best[1] - best[0]):
            best = covered[0], covered[-1]
    return best


def _share_columns(names: Sequence[_Name], columns: Columns) -> list[_Range | None]:
    """Return the columns that names share evenly, from the second column to the last.

    The result is empty if a name is not above its own share. One name alone is in the middle of all.
    """
    width, rest = divmod(len(columns) - 1, len(names))
    off_centre = abs(columns[1][0] + columns[-1][1] - names[0].left - names[0].right) / 2
    if width < 2 or rest or (len(names) == 1 and off_centre > names[0].size):
        return []
    shares: list[_Range | None] = []
    for name, first in zip(names, range(1, len(columns), width), strict=True):
        last = first + width - 1
        if name.left < columns[first - 1][1] or name.right > columns[last][1] + NEAR:
            return []
        shares.append((first, last))
    return shares


def _find_closest(name: _Name, columns: Columns) -> _Range:
    """Return the column that a name is above, else the fewest in whose middle it is.

    A name above several columns may begin or end where one of them does.
    """
    overlaps = [min(name.right, right) - max(name.left, left) for left, right in columns]
    above = [at for at, overlap in enumerate(overlaps) if overlap > 0]
    edges = [at for at in above if min(abs(columns[at][0] - name.left), abs(columns[at][1] - name.right)) < NEAR]
    best = max(edges or range(len(columns)), key=overlaps.__getitem__)
    if len(above) == 1 or edges:
        return best, best
    middle = (name.left + name.right) / 2
    centred = (
        (first, last)
        for first in range(name.left > columns[0][1], len(columns))
        for last in range(first, len(columns))
        if abs((columns[first][0] + columns[last][1]) / 2 - middle) <= name.size
    )
    return min(centred, key=lambda range_: range_[1] - range_[0], default=(best, best))
