"""Find the tables of a PDF page, ruled and unruled.

They are found by the positions of characters and lines.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kosmos_rag.parsing.pdf.lines import join_text, tidy
from kosmos_rag.parsing.pdf.page import Box, PageContent, Rule, Run, find_table_regions
from kosmos_rag.parsing.tables.headers import find_header
from kosmos_rag.parsing.tables.table import Table

_NEAR = 2.5
"""Points between ruled lines that are one."""
_COLUMN_GAP = 0.4
"""Sizes of the letters between two columns at least."""
_CELL_GAP = 1.0
"""Sizes of the letters between two cells of an unruled row at least."""
_ROW_GAP = 3.0
"""Sizes of the letters between two rows of an unruled table at most."""
_ONE_LINE = 0.3
"""Sizes of the letters by which baselines of one line differ at most."""
_SAME_ROW = 0.85
"""Sizes of the letters between lines that are too near to be of two rows: of cells that are centred vertically."""
_LEADING = 1.45
"""Sizes of the letters between two lines of a cell at most."""
_CENTRED = 1.3
"""Sizes of the letters from the first line of a cell to the row that it surrounds at most."""
_OUTER_ROW = 2.0
"""Sizes of the letters from the outermost ruled line to the baseline of a row beyond it at most."""
_CELL_LINES = 5.0
"""Sizes of the letters that a cell may be higher than one line."""
_LEAST_ROWS = 3
_LEAST_FILLED = 0.4
_SENTENCE_WORDS = 5
_MOST = 0.6
"""Share of the cells with as many words that prose in columns has."""
_LEAST_DRAWN = 0.25
_MAX_RUNS = 4_000
_MAX_GRID = 300
"""Ruled lines in one direction; graph paper has more."""
_MAX_COLUMNS = 50
_SPANNING = 0.12
"""Share of the rows that may cross the gap between two columns."""
_MARKER = re.compile(r"[•▪◦‣*–—-]|\[?\(?(?:\d{1,3}|[a-zA-Z])[\]).]")  # noqa: RUF001
_NUMBER = re.compile(r"[-+(]?[\d.,'%\s]*\d[\d.,'%)\s]*")


class FoundTable(NamedTuple):
    """A table on a page."""

    lines: frozenset[int]
    """Indexes of the lines that it consists of."""
    table: Table
    box: Box


@dataclass(kw_only=True, slots=True)
class _Row:
    """A row under construction."""

    baseline: float
    cells: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    """Runs by column."""
    spans: dict[int, int] = field(default_factory=dict)


def find_tables(content: PageContent) -> list[FoundTable]:
    """Return the tables of a page.

    First those within ruled lines, then those of text in columns.
    """
    if sum(map(len, content.lines)) > _MAX_RUNS:
        return []
    tables: list[FoundTable] = []
    table_lines: set[int] = set()
    for ruled in find_table_regions(content.rules):
        region = _add_outer_rows(ruled, content.lines)
        indexes = [
            index for index, runs in enumerate(content.lines) if index not in table_lines and _inside(runs, region)
        ]
        rules = [rule for rule in content.rules if _touches(rule, ruled)]
        table = _build_ruled_table([run for index in indexes for run in content.lines[index]], rules, region)
        if table is not None:
            tables.append(FoundTable(frozenset(indexes), table, region))
            table_lines.update(indexes)
    for indexes in _tabular_lines(content.lines, table_lines):
        runs = [run for index in indexes for run in content.lines[index]]
        table = _build_unruled_table(runs)
        if table is not None:
            tables.append(FoundTable(frozenset(indexes), table, _bound_runs(runs)))
    return tables


def continue_table(before: FoundTable, found_table: FoundTable) -> Table | None:
    """Return a table with the header of the one that it continues.

    It is at the top of a page. None if it has its own header.
    """
    width = len(found_table.table.rows[0])
    near = abs(before.box.left - found_table.box.left) + abs(before.box.right - found_table.box.right) < 4 * _NEAR
    if not near or width != len(before.table.rows[0]):
        return None
    count = before.table.header_rows
    if count is None:
        header = find_header(before.table.rows, before.table.spans)
        count = header.count if header.first == 0 else 0
    names = before.table.rows[:count]
    if not names or list(found_table.table.rows[:count]) == list(names):
        return None
    spans = {at: columns for at, columns in before.table.spans.items() if at[0] < count}
    spans |= {(row + count, column): columns for (row, column), columns in found_table.table.spans.items()}
    return Table(rows=[*names, *found_table.table.rows], spans=spans, header_rows=count)


def _add_outer_rows(region: Box, lines: Sequence[Sequence[Run]]) -> Box:
    """Extend a region by the rows of cells just outside its lines.

    They are above its first ruled line and below its last.
    """
    top, bottom = region.top, region.bottom
    for runs in lines:
        size, baseline = runs[0].size, runs[0].baseline
        inside = region.left - _NEAR <= runs[0].left and runs[-1].right <= region.right + _NEAR
        if inside and _has_cells(runs):
            if region.top < baseline < region.top + _OUTER_ROW * size:
                top = max(top, baseline + size)
            elif region.bottom - _OUTER_ROW * size < baseline + 0.7 * size < region.bottom:
                bottom = min(bottom, baseline - 0.3 * size)
    return Box(region.left, bottom, region.right, top)


def _inside(runs: Sequence[Run], box: Box) -> bool:
    return all(
        box.left - _NEAR <= (run.left + run.right) / 2 <= box.right + _NEAR
        and box.bottom - _NEAR <= run.baseline + 0.3 * run.size <= box.top + _NEAR
        for run in runs
    )


def _touches(rule: Rule, box: Box) -> bool:
    return (
        box.left - _NEAR <= rule.left
        and rule.right <= box.right + _NEAR
        and box.bottom - _NEAR <= rule.bottom
        and rule.top <= box.top + _NEAR
    )


def _bound_runs(runs: Sequence[Run]) -> Box:
    return Box(
        min(run.left for run in runs),
        min(run.baseline for run in runs),
        max(run.right for run in runs),
        max(run.baseline + run.size for run in runs),
    )


def _build_ruled_table(runs: Sequence[Run], rules: Sequence[Rule], region: Box) -> Table | None:
    if len(runs) < 2:
        return None
    vertical = [rule for rule in rules if rule.top - rule.bottom > rule.right - rule.left]
    horizontal = [rule for rule in rules if rule.top - rule.bottom <= rule.right - rule.left]
    xs = _cluster(rule.left for rule in vertical)
    ys = _cluster(rule.bottom for rule in horizontal)
    if xs and ys:
        xs = _cluster([region.left, *xs, region.right])
        ys = _cluster([region.bottom, *ys, region.top])
    if max(len(xs), len(ys)) > _MAX_GRID:
        return None
    if len(xs) >= 3 and len(ys) >= 2:
        return _Grid(xs, ys, vertical, horizontal).table(runs)
    return _build_banded_table(runs, horizontal)


def _cluster(values: Iterable[float]) -> list[float]:
    """Return one value for each group of close values, in order."""
    clusters: list[float] = []
    for value in sorted(values):
        if not clusters or value - clusters[-1] > _NEAR:
            clusters.append(value)
    return clusters


class _Grid:
    """Cells between ruled lines in both directions; a missing line merges two."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], vertical: list[Rule], horizontal: list[Rule]) -> None:
        self._xs = xs
        self._ys = list(reversed(ys))
        self._vertical = _group_rules(self._xs, [(rule.left, rule) for rule in vertical])
        self._horizontal = _group_rules(ys, [(rule.bottom, rule) for rule in horizontal])

    def table(self, runs: Sequence[Run]) -> Table | None:
        """Return the table of the runs in the cells."""
        bands: dict[int, list[Run]] = defaultdict(list)
        for run in runs:
            bands[self._band(run)].append(run)
        rows: list[_Row] = []
        previous: dict[int, list[Run]] = {}
        for band in range(len(self._ys) - 1):
            cells = self._cells(bands.get(band, []), band)
            lines = self._split_band(cells)
            if lines is not None:
                rows += lines
                previous = {}
                continue
            row = _Row(baseline=self._ys[band])
            row.spans = {column: width for column, width in self._spans(band).items() if width > 1}
            for column in self._spans(band):
                above = [] if self._has_line_above(band, column) else previous.get(column, [])
                row.cells[column] = cells.get(column) or above
            previous = dict(row.cells)
            rows.append(row)
        table = _table(rows, len(self._xs) - 1)
        is_split = len(rows) >= len(self._ys)
        return None if table is None or _is_drawing(table) or (is_split and _is_prose(table)) else table

    def _band(self, run: Run) -> int:
        middle = run.baseline + 0.3 * run.size
        return next((band for band in range(len(self._ys) - 1) if middle >= self._ys[band + 1]), len(self._ys) - 2)

    def _spans(self, band: int) -> dict[int, int]:
        """Return the columns that each cell of a band spans.

        By its first column.
        """
        middle = (self._ys[band] + self._ys[band + 1]) / 2
        spans: dict[int, int] = {0: 1}
        first = 0
        for column in range(1, len(self._xs) - 1):
            if any(rule.bottom <= middle <= rule.top for rule in self._vertical[self._xs[column]]):
                first = column
                spans[first] = 1
            else:
                spans[first] += 1
        return spans

    def _cells(self, runs: Sequence[Run], band: int) -> dict[int, list[Run]]:
        firsts = sorted(self._spans(band))
        cells: dict[int, list[Run]] = defaultdict(list)
        for run in runs:
            column = bisect_right(self._xs, (run.left + run.right) / 2) - 1
            cells[firsts[max(0, bisect_right(firsts, max(0, column)) - 1)]].append(run)
        return cells

    def _has_line_above(self, band: int, column: int) -> bool:
        y, x = self._ys[band], (self._xs[column] + self._xs[column + 1]) / 2
        return any(rule.left <= x <= rule.right for rule in self._horizontal[y])

    def _split_band(self, cells: dict[int, list[Run]]) -> list[_Row] | None:
        """Return the lines of a band without inner ruled lines as rows.

        None for a band that is one row.
        """
        lines = _lines([run for runs in cells.values() for run in runs])
        counts = sorted((len(_lines(runs)) for runs in cells.values()), reverse=True)
        if len(self._ys) > _LEAST_ROWS + 1 or len(counts) < 2 or len(lines) < 2:
            return None
        is_spaced = all(
            above[0].baseline - below[0].baseline > _LEADING * above[0].size for above, below in pairwise(lines)
        )
        if not is_spaced and counts[1] < max(_LEAST_ROWS, counts[0] / 2):
            return None
        rows = [_Row(baseline=line[0].baseline) for line in lines]
        for column, runs in cells.items():
            for run in runs:
                min(rows, key=lambda row: abs(row.baseline - run.baseline)).cells[column].append(run)
        return _join_continued(rows)


def _group_rules(places: Sequence[float], rules: Iterable[tuple[float, Rule]]) -> dict[float, list[Rule]]:
    """Group ruled lines by the place of their cluster."""
    grouped: dict[float, list[Rule]] = defaultdict(list)
    for at, rule in rules:
        grouped[places[max(0, bisect_right(places, at + 1e-6) - 1)]].append(rule)
    return grouped


def _lines(runs: Iterable[Run]) -> list[list[Run]]:
    """Group runs into lines, from top to bottom."""
    lines: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: (-run.baseline, run.left)):
        last = lines[-1][0] if lines else None
        if last is not None and last.baseline - run.baseline <= _ONE_LINE * max(last.size, run.size):
            lines[-1].append(run)
        else:
            lines.append([run])
    return lines


def _build_banded_table(runs: Sequence[Run], horizontal: Sequence[Rule]) -> Table | None:
    """Return a table with horizontal lines only.

    Gaps between the runs separate its columns.
    """
    widest = max((rule.right - rule.left for rule in horizontal), default=0.0)
    full = _cluster(rule.bottom for rule in horizontal if rule.right - rule.left > 0.9 * widest)
    lines = _lines(runs)
    columns = _columns(lines)
    if len(columns) < 2 or len(lines) < 2:
        return None
    rows = _place_rows(lines, columns)
    bands: dict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        bands[bisect_right(full, row.baseline)].append(row)
    row_groups = [bands[band] for band in sorted(bands, reverse=True)]
    if len(row_groups) >= _LEAST_ROWS and max(map(len, row_groups[1:])) <= 3:
        merged = [*_join_continued(row_groups[0]), *(_merge(band) for band in row_groups[1:])]
    else:
        merged = [row for band in row_groups for row in _join_continued(band)]
    _spread_header(merged, columns, horizontal)
    table = _table(merged, len(columns))
    return table if table is not None and not _is_prose(table) else None


def _columns(lines: Sequence[Sequence[Run]]) -> list[tuple[float, float]]:
    """Return left and right of each column.

    Few lines cross the gap between two columns.
    """
    size = max(1.0, sorted(run.size for line in lines for run in line)[sum(map(len, lines)) // 2])
    allowed = int(len(lines) * _SPANNING) if len(lines) >= 8 else 1 if len(lines) >= 4 else 0
    best: list[tuple[float, float]] = []
    for crossing in range(allowed + 1):
        columns = _find_covered_stretches(lines, crossing, size)
        if len(columns) > len(best):
            best = columns
    return best if len(best) <= _MAX_COLUMNS else []


def _find_covered_stretches(lines: Sequence[Sequence[Run]], crossing: int, size: float) -> list[tuple[float, float]]:
    """Return the stretches that more than `crossing` lines cover.

    Stretches that are closer than a column gap are joined.
    """
    runs = [run for line in lines for run in line]
    edges = sorted([*((run.left, 1) for run in runs), *((run.right, -1) for run in runs)])
    stretches: list[tuple[float, float]] = []
    depth, start = 0, 0.0
    for x, change in edges:
        if depth <= crossing < depth + change:
            start = x
        if depth + change <= crossing < depth:
            if stretches and start - stretches[-1][1] < _COLUMN_GAP * size:
                stretches[-1] = (stretches[-1][0], x)
            elif x > start:
                stretches.append((start, x))
        depth += change
    return stretches


def _place_rows(lines: Sequence[Sequence[Run]], columns: Sequence[tuple[float, float]]) -> list[_Row]:
    """Return the lines as rows with columns.

    Lines that are too close to be two rows are joined.
    """
    rows: list[_Row] = []
    last = 0.0
    for line in lines:
        row = _place(line, columns)
        if rows and last - row.baseline < _SAME_ROW * line[0].size:
            rows[-1] = _merge([rows[-1], row])
        else:
            rows.append(row)
        last = line[0].baseline
    return rows


def _place(line: Sequence[Run], columns: Sequence[tuple[float, float]]) -> _Row:
    """Put each run of a line into its column.

    It is the column that the run overlaps most.
    """
    row = _Row(baseline=line[0].baseline)
    for run in line:
        overlaps = [min(run.right, right) - max(run.left, left) for left, right in columns]
        best = max(range(len(columns)), key=overlaps.__getitem__)
        covered = [at for at, overlap in enumerate(overlaps) if overlap > 0.5 * (columns[at][1] - columns[at][0])]
        if len(covered) > 1:
            best = covered[0]
            row.spans[best] = covered[-1] - covered[0] + 1
        row.cells[best].append(run)
    return row


def _join_continued(rows: Sequence[_Row]) -> list[_Row]:
    """Join lines that continue the cells of a row.

    They are below it, or around it if it is in the middle of a cell.
    """
    rows = _join_centred(rows)
    gaps = sorted(above.baseline - below.baseline for above, below in pairwise(rows))
    if not gaps:
        return list(rows)
    line_gap = gaps[0] * 1.15
    size = max(run.size for row in rows for runs in row.cells.values() for run in runs)
    is_leading = gaps[0] < _LEADING * size
    has_two_gaps = is_leading and gaps[-1] > gaps[0] * 1.25 and sum(gap > line_gap for gap in gaps) >= 2
    columns = len({column for row in rows for column in row.cells})
    joined: list[_Row] = [rows[0]]
    for above, row in pairwise(rows):
        near = above.baseline - row.baseline <= line_gap
        if near and _continues(joined[-1], row, columns, has_two_gaps=has_two_gaps):
            joined[-1] = _merge([joined[-1], row])
        else:
            joined.append(row)
    return joined


def _join_centred(rows: Sequence[_Row]) -> list[_Row]:
    """Join the two lines of a cell with the row between them."""
    joined: list[_Row] = []
    index = 0
    while index < len(rows):
        if index + 2 < len(rows) and _surrounds(*rows[index : index + 3]):
            joined.append(_merge([rows[index + 1], rows[index], rows[index + 2]]))
            index += 3
        else:
            joined.append(rows[index])
            index += 1
    return joined


def _surrounds(above: _Row, row: _Row, below: _Row) -> bool:
    up, down = above.baseline - row.baseline, row.baseline - below.baseline
    size = max(run.size for runs in above.cells.values() for run in runs)
    return (
        above.cells.keys() == below.cells.keys()
        and not above.cells.keys() & row.cells.keys()
        and abs(up - down) < 0.1 * up
        and up < _CENTRED * size
    )


def _continues(above: _Row, row: _Row, columns: int, *, has_two_gaps: bool) -> bool:
    if len(row.cells) >= columns or not row.cells.keys() <= above.cells.keys():
        return False
    is_text = not any(_NUMBER.fullmatch(join_text(runs).strip()) for runs in row.cells.values())
    if has_two_gaps:
        return is_text or 0 not in row.cells
    return 0 not in row.cells and is_text and len(row.cells) <= max(1, columns // 2)


def _merge(rows: Sequence[_Row]) -> _Row:
    merged = _Row(baseline=rows[0].baseline, spans=dict(rows[0].spans))
    for row in rows:
        for column, runs in row.cells.items():
            merged.cells[column] += runs
    return merged


def _spread_header(rows: Sequence[_Row], columns: Sequence[tuple[float, float]], horizontal: Sequence[Rule]) -> None:
    """Find the columns that cells of an upper header row cover.

    By the line below them, else by their middle.
    """
    if len(rows) < _LEAST_ROWS or not 0 < len(rows[0].cells) < len(columns):
        return
    top = rows[0]
    cells, top.cells = dict(top.cells), defaultdict(list)
    top.spans = {}
    for column, runs in sorted(cells.items()):
        left, right = min(run.left for run in runs), max(run.right for run in runs)
        first, last = _find_covered_columns(left, right, columns, horizontal) or (column, column)
        top.cells[first] += runs
        if last > first:
            top.spans[first] = last - first + 1


def _find_covered_columns(
    left: float, right: float, columns: Sequence[tuple[float, float]], horizontal: Sequence[Rule]
) -> tuple[int, int] | None:
    middle = (left + right) / 2
    width = columns[-1][1] - columns[0][0]
    for rule in horizontal:
        if rule.right - rule.left < 0.9 * width and rule.left - _NEAR <= left and right <= rule.right + _NEAR:
            covered = [at for at, column in enumerate(columns) if rule.left - 6 <= sum(column) / 2 <= rule.right + 6]
            if covered:
                return covered[0], covered[-1]
    ranges = [(first, last) for first in range(len(columns)) for last in range(first, len(columns))]

    def distance(span: tuple[int, int]) -> float:
        first, last = columns[span[0]], columns[span[1]]
        return abs((first[0] + last[1]) / 2 - middle) + (0.0 if span[0] == span[1] else 1.5)

    best = min(ranges, key=distance)
    inside = (at for at, (start, end) in enumerate(columns) if start - _NEAR <= left and right <= end + _NEAR)
    if best[0] != best[1] and distance(best) > 4 and (at := next(inside, None)) is not None:
        return at, at
    return best if distance(best) < 12 else None


def _table(rows: Sequence[_Row], columns: int) -> Table | None:
    """Return a table of rows without blank ones.

    None if they are no table.
    """
    filled = [row for row in rows if any(row.cells.values())]
    if len(filled) < 2 or columns < 2:
        return None
    texts = [tuple(_cell_text(row.cells.get(column, [])) for column in range(columns)) for row in filled]
    spans = {
        (index, column): width for index, row in enumerate(filled) for column, width in row.spans.items() if width > 1
    }
    return Table(rows=texts, spans=spans, header_rows=_bold_rows(filled))


def _cell_text(runs: Sequence[Run]) -> str:
    return " ".join(tidy(join_text(line)) for line in _lines(runs)).strip()


def _bold_rows(rows: Sequence[_Row]) -> int | None:
    """Return the number of leading rows in bold letters.

    None if the letters are no evidence.
    """
    bold = [all(run.bold for runs in row.cells.values() for run in runs) for row in rows]
    count = next((index for index, is_bold in enumerate(bold) if not is_bold), len(bold))
    return count if 0 < count <= 3 and not any(bold[count : count + 3]) and count < len(rows) else None


def _tabular_lines(lines: Sequence[Sequence[Run]], table_lines: set[int]) -> Iterator[list[int]]:
    """Yield the indexes of consecutive lines in columns.

    Nothing else is between them.
    """
    group: list[int] = []
    pending: list[int] = []
    """Lines that belong to the group if more of it follows."""
    left = right = 0.0
    for index, runs in enumerate(lines):
        is_part = index not in table_lines and _is_part(lines, index, table_lines)
        if group and (index in table_lines or not _is_near(lines[(pending or group)[-1]], runs)):
            yield group
            group, pending = [], []
        if is_part or (group and index not in table_lines and _is_cell(lines[index - 1], runs)):
            left = min(left, runs[0].left) if group else runs[0].left
            right = max(right, runs[-1].right) if group else runs[-1].right
            group += [*pending, index]
            pending = []
        elif group and _is_within(runs, left, right):
            pending.append(index)
        elif group:
            yield group
            group, pending = [], []
    if group:
        yield group


def _is_part(lines: Sequence[Sequence[Run]], index: int, table_lines: set[int]) -> bool:
    """Return whether a line is part of a table.

    It has cells, or it and the next line are cells.
    """
    if _has_cells(lines[index]):
        return True
    return index + 1 < len(lines) and index + 1 not in table_lines and _is_cell(lines[index], lines[index + 1])


def _has_cells(runs: Sequence[Run]) -> bool:
    return any(after.left - before.right > _CELL_GAP * before.size for before, after in pairwise(runs))


def _is_cell(runs: Sequence[Run], following: Sequence[Run]) -> bool:
    """Return whether two consecutive lines are cells of one row."""
    before, after = runs[-1], following[0]
    drop = (before.baseline - after.baseline) / max(before.size, 1.0)
    return after.left - before.right > 0.5 * before.size and -_CELL_LINES <= drop <= _SAME_ROW


def _is_near(above: Sequence[Run], runs: Sequence[Run]) -> bool:
    drop = above[0].baseline - runs[0].baseline
    size = max(above[0].size, runs[0].size)
    return -_ONE_LINE * size <= drop <= _ROW_GAP * size or (drop < 0 and runs[0].left > above[-1].right)


def _is_within(runs: Sequence[Run], left: float, right: float) -> bool:
    """Return whether a line may be a row with one cell.

    It is much narrower than the rows.
    """
    return runs[0].left >= left - _NEAR and runs[-1].right - runs[0].left < 0.6 * (right - left)


def _build_unruled_table(runs: Sequence[Run]) -> Table | None:
    lines = _lines(runs)
    if len(lines) < _LEAST_ROWS:
        return None
    columns = _columns(lines)
    if len(columns) < 2:
        return None
    rows = _join_continued(_place_rows(lines, columns))
    _spread_header(rows, columns, ())
    table = _table(rows, len(columns))
    return table if table is not None and _is_tabular(table) else None


def _is_tabular(table: Table) -> bool:
    """Return whether cells are a table, not prose or a list."""
    if len(table.rows) < _LEAST_ROWS or _fill_ratio(table) < _LEAST_FILLED or _is_prose(table):
        return False
    first = [row[0] for row in table.rows if row[0]]
    return len(table.rows[0]) > 2 or not all(map(_MARKER.fullmatch, first))


def _fill_ratio(table: Table) -> float:
    return sum(bool(cell) for row in table.rows for cell in row) / (len(table.rows) * len(table.rows[0]))


def _is_prose(table: Table) -> bool:
    """Return whether most cells are parts of sentences: text in columns."""
    cells = [len(cell.split()) for row in table.rows for cell in row if cell]
    return sum(words >= _SENTENCE_WORDS for words in cells) > _MOST * len(cells)


def _is_drawing(table: Table) -> bool:
    """Return whether cells are the boxes of a drawing.

    Few are filled, and none next to another.
    """
    return _fill_ratio(table) < _LEAST_DRAWN or not any(
        before and after for row in table.rows for before, after in pairwise(row)
    )
