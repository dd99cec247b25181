"""Tables without vertical lines: rows of a PDF page between which white strips run down."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from kosmos_rag.parsing.pdf import cells
from kosmos_rag.parsing.pdf.cells import Columns, FoundTable, find_columns, is_blank_value, is_value
from kosmos_rag.parsing.pdf.graphics import NEAR, Box, Rules, unite
from kosmos_rag.parsing.pdf.lines import Line, join_line, join_text
from kosmos_rag.parsing.pdf.regions import Chunk, Region, Row, Stack, is_written_by_column
from kosmos_rag.parsing.pdf.table_names import find_names, spread_names
from kosmos_rag.parsing.pdf.text_layer import Run
from kosmos_rag.parsing.tables.table import Table

_WIDE = 0.9
"""Share of the width of a table that a line between its rows has."""
_SECTION_GAP = 1.5
"""Usual distances of two rows that end a table."""
_LARGER = 1.05
"""Times the size of its cells that a title above a table has at least."""
_LEAST_ROWS = 3
_LEAST_FILLED = 0.4
_VALUES = 0.7
"""Share of the cells of a column of numbers that are numbers."""
_MOST_BETWEEN = 1
"""Lines across a table between two of its parts."""
_MOST_IN_ROWS, _ALIGNED_CELLS = 8, 4
"""Such lines where each row has text of its own below it, and the cells of the rows that show it."""
_MARKER = re.compile(r"[•▪◦‣*–—○■-]|\[?\(?(?:\d{1,3}|[a-zA-Z])[\]).]?|☐|☒|☑")  # noqa: RUF001
_LEADER = re.compile(r"(?:\.\s?){4,}|…{2,}")
"""Dots between a title and the number of its page."""


@dataclass(kw_only=True, slots=True)
class _Section:
    """Consecutive rows of one kind."""

    rows: list[Row]
    stack: Stack | None
    """None for text."""

    @property
    def is_tabular(self) -> bool:
        """Whether its rows have cells."""
        return self.stack is not None

    @property
    def lines(self) -> list[list[Run]]:
        """The runs of each row."""
        return [
            sorted((run for line in row.lines for run in line.fragments), key=lambda run: run.left) for row in self.rows
        ]

    @property
    def box(self) -> Box:
        """The area of its rows."""
        return unite(item.box for row in self.rows for item in row.items)


class TableFinder:
    """Finds tables among the chunks of a column of text."""

    def __init__(self, rules: Rules, split_words: cells.SplitWords) -> None:
        """Begin; horizontal lines are evidence of rows and headers."""
        self._rules = rules.horizontal
        self._pieces = rules.pieces
        self._split_words = split_words

    def find(self, chunks: Sequence[Chunk]) -> Iterator[Region]:
        """Yield the regions of a column, with its tables."""
        pending: list[_Section | Region] = []
        for chunk in chunks:
            if isinstance(chunk, Region):
                pending.append(chunk)
            elif isinstance(chunk, Stack):
                pending += self._split(chunk)
            elif len(chunk.lines) > 2:
                pending.append(_Section(rows=[chunk], stack=Stack([chunk], ())))
            else:
                pending.append(_Section(rows=[chunk], stack=None))
        yield from _join_text(self._join(pending))

    def _split(self, stack: Stack) -> Iterator[_Section]:
        """Yield the sections of a stack: ruled lines, wide gaps and titles are between them."""
        rows = stack.rows
        cells_at = [index for index, row in enumerate(rows) if len(row.lines) > 1]
        if not cells_at:
            yield _Section(rows=list(rows), stack=None)
            return
        first, end = cells_at[0], cells_at[-1] + 1
        left = min(row.items[0].box.left for row in rows)
        while first and _is_tight(rows[first - 1], rows[first]) and rows[first - 1].items[0].box.left > left + NEAR:
            first -= 1
        while end < len(rows) and _is_tight(rows[end - 1], rows[end]) and rows[end].items[0].box.left > left + NEAR:
            end += 1
        yield from (_Section(rows=[row], stack=None) for row in rows[:first])
        yield from self._split_cells(stack, rows[first:end])
        yield from (_Section(rows=[row], stack=None) for row in rows[end:])

    def _split_cells(self, stack: Stack, rows: Sequence[Row]) -> Iterator[_Section]:
        section: list[Row] = []
        box = unite(item.box for row in rows for item in row.items)
        gaps = sorted(above.level - below.level for above, below in pairwise(rows)) or [0.0]
        usual = gaps[len(gaps) // 2]
        # Lines between all rows do not divide a table.
        has_row_rules = 2 * sum(bool(self._wide_rules(box, a.level, b.level)) for a, b in pairwise(rows)) >= len(rows)
        for index, row in enumerate(rows):
            above = rows[index - 1] if index else None
            is_title = self._is_title(rows, index)
            if section and above is not None:
                is_apart = above.level - row.level > _SECTION_GAP * usual
                is_ruled = not has_row_rules and self._wide_rules(box, above.level, row.level)
                if is_title or is_apart or is_ruled:
                    yield _Section(rows=section, stack=stack)
                    section = []
                elif names := _count_names_above(rows[: index + 1], len(section)):
                    yield _Section(rows=section[: 1 - names or len(section)], stack=stack)
                    section = section[1 - names or len(section) :]
            if is_title:
                yield _Section(rows=[row], stack=None)
            else:
                section.append(row)
        if section:
            yield _Section(rows=section, stack=stack)

    def _is_title(self, rows: Sequence[Row], index: int) -> bool:
        """Return whether a row is one line in letters of its own above rows of cells."""
        lines = rows[index].lines
        if len(lines) > 1 or index + 1 >= len(rows):
            return False
        below = rows[index + 1].lines
        others = [line.style for row in rows for line in row.lines if len(row.lines) > 1]
        return len(below) > 1 and (lines[0].style not in others or (index > 0 and lines[0].bold and not below[0].bold))

    def _wide_rules(self, box: Box, top: float, bottom: float) -> list[float]:
        """Return the places of the ruled lines across an area between two levels."""
        return [
            rule.bottom
            for rule in self._rules
            if bottom < rule.bottom < top and min(rule.right, box.right) - max(rule.left, box.left) >= _WIDE * box.width
        ]

    def _join(self, sections: Sequence[_Section | Region]) -> Iterator[Region | _Section]:
        """Yield tables of sections with the same columns, and what is between them."""
        consumed: set[int] = set()
        """Stacks of which some rows are a table."""
        index = 0
        waiting: list[_Section | Region] = []
        while index < len(sections):
            section = sections[index]
            end = index
            columns: Columns = []
            if isinstance(section, _Section) and section.stack:
                end, columns = self._find_end(sections, index)
            if end == index:
                waiting.append(section)
                index += 1
                continue
            group = [each for each in sections[index:end] if isinstance(each, _Section)]
            heads = self._take_heads(waiting, group)
            head = [_Section(rows=[row], stack=group[0].stack) for row in heads]
            table = self._build([*head, *group], columns, len(head))
            if table is None:
                waiting += group
            else:
                del waiting[len(waiting) - len(heads) :]
                consumed.update(id(each.stack) for each in group if each.stack)
                waiting.append(Region(table=table))
            index = end
        yield from _read_stacks(waiting, consumed)

    def _find_end(self, sections: Sequence[_Section | Region], start: int) -> tuple[int, Columns]:
        """Return the index after the last section that continues a table, and its columns."""
        first = sections[start]
        assert isinstance(first, _Section)
        lines = list(first.lines)
        columns = find_columns(lines)
        end = at = start + 1
        between = 0
        while at < len(sections) and isinstance(section := sections[at], _Section):
            if section.stack is None:
                if section.rows[0].lines[0].size > _LARGER * lines[-1][0].size:
                    break
                between += len(section.rows)
            elif between > (_MOST_IN_ROWS if _are_aligned(lines, section.lines) else _MOST_BETWEEN):
                break
            elif (common := _find_common_columns(columns, lines, section)) is not None:
                columns = common
                lines += section.lines
                between = 0
                # Words after the numbers may be above the next table.
                if any(map(_has_values, section.lines)) or not any(map(_has_values, lines)):
                    end = at + 1
            else:
                break
            at += 1
        return end, columns

    def _take_heads(self, waiting: Sequence[_Section | Region], group: Sequence[_Section]) -> list[Row]:
        """Return the lines above a table that have a ruled line above them.

        Names over several columns.
        """
        box = unite(section.box for section in group)
        heads: list[Row] = []
        claimed: list[Row] = []
        for section in reversed(waiting):
            if not isinstance(section, _Section) or len(section.rows) > 1 or len(heads) > 2:
                break
            row = section.rows[0]
            left, right = row.items[0].box.left, row.items[-1].box.right
            if left < box.left + row.items[0].size or right > box.right + NEAR:
                break
            heads = [row, *heads]
            if self._has_head_rule(row, box):
                claimed = heads
        return claimed

    def _has_head_rule(self, row: Row, box: Box) -> bool:
        """Return whether a ruled line above a row runs to the right edge of the table."""
        size = row.items[0].size
        return any(
            row.level < rule.bottom < row.level + 2 * size
            and rule.left <= row.items[0].box.left
            and rule.right >= box.right - size
            for rule in self._rules
        )

    def _build(self, sections: Sequence[_Section], table_columns: Columns, heads: int) -> FoundTable | None:
        """Return the table of sections, the first of which are names.

        Text between them is rows of one cell.
        """
        parts = [(section.lines, section.stack is not None) for section in sections]
        box = unite(section.box for section in sections)
        lines = [line for lines, is_tabular in parts[heads:] if is_tabular for line in lines]
        with_values = list(filter(_has_values, lines))
        # Names may be wider than their columns.
        columns = find_columns(with_values if len(with_values) >= _LEAST_ROWS else lines)
        if len(columns) < len(table_columns):
            columns = _widen(table_columns, [run for lines, _ in parts for line in lines for run in line])
        if len(columns) < 2:
            return None
        rows: list[cells.Row] = []
        has_rules = False
        for section_lines, is_stack in parts:
            lines = [cells.divide_runs(line, columns, self._split_words) for line in section_lines]
            if is_stack or len(lines[0]) > len(section_lines[0]):
                placed = cells.place_rows(lines, columns)
                # The first section is the names alone where a ruled line is below them.
                groups = self._group_rows(_join_names(placed, alone=len(rows) <= heads < len(parts) - 1), box)
                has_rules = (
                    has_rules
                    or len(groups) > 1
                    or bool(rows and self._wide_rules(box, rows[-1].baseline, lines[0][0].baseline))
                )
                rows += _join_groups(groups)
            else:
                row = cells.Row(baseline=lines[0][0].baseline, spans={0: len(columns)})
                row.cells[0] = [run for line in lines for run in line]
                rows.append(row)
        rules = [rule for rule in (*self._pieces, *self._rules) if box.overlaps(rule.inflate(NEAR))]
        names = find_names(rows, columns, rules)
        for index in range(max(heads, 1)):
            spread_names(rows[index:], columns, rules)
        table = cells.build_table(rows, len(columns))
        if table is None or not _is_tabular(table, has_rules=has_rules):
            return None
        if names is not None:
            rows = [*names.rows, *rows[names.replaced :]] if names.is_sure else rows
            table = cells.build_table(rows, len(columns), len(names.rows) if names.is_sure else 0) or table
        return FoundTable(table, box, columns)

    def _group_rows(self, rows: Sequence[cells.Row], box: Box) -> list[list[cells.Row]]:
        """Return the rows between ruled lines."""
        places = sorted(self._wide_rules(box, rows[0].baseline, rows[-1].baseline))
        bands: dict[int, list[cells.Row]] = defaultdict(list)
        for row in rows:
            bands[bisect_right(places, row.baseline)].append(row)
        return [bands[band] for band in sorted(bands, reverse=True)]


def _join_groups(groups: Sequence[Sequence[cells.Row]]) -> list[cells.Row]:
    """Join the lines of each row.

    Those between two ruled lines that are near, where most rows are ruled.
    """
    if len(groups) < _LEAST_ROWS or max(map(len, groups[1:])) > 3:
        return [row for group in groups for row in cells.join_continued(group)]
    joined = cells.join_continued(groups[0])
    for group in groups[1:]:
        joined.append(group[0])
        for above, row in pairwise(group):
            if above.baseline - row.baseline <= cells.LEADING * _size(row):
                joined[-1] = cells.merge_rows([joined[-1], row])
            else:
                joined.append(row)
    return joined


def _join_names(rows: Sequence[cells.Row], *, alone: bool) -> list[cells.Row]:
    """Join the lines of the names of columns above the first row with a number.

    Args:
        rows: the first rows of a table.
        alone: whether they may be names without a row below them.
    """
    joined: list[cells.Row] = []
    for index, row in enumerate(rows):
        if any(is_value(join_text(runs)) for runs in row.cells.values()):
            return [*joined, *rows[index:]]
        if joined and _continue_downwards(joined[-1], row):
            joined[-1] = cells.merge_rows([joined[-1], row])
        else:
            joined.append(row)
    return joined if alone else list(rows)


def _continue_downwards(above: cells.Row, row: cells.Row) -> bool:
    """Return whether each cell of a row continues in the cell below it."""
    return all(
        column in row.cells
        and min(run.baseline for run in runs) - max(run.baseline for run in row.cells[column])
        <= cells.LEADING * _size(row)
        for column, runs in above.cells.items()
    )


def _count_names_above(rows: Sequence[Row], most: int) -> int:
    """Count the last rows, if they are names of columns: words below rows with numbers.

    The last one has as many cells as a row with numbers; lines of names above it may have fewer, none at the left edge.
    """
    last = rows[-1].lines
    counts = [len(row.lines) for row in rows[-1 - most : -1] if _has_values(row.lines)]
    if len(counts) < 2 or len(last) < max(counts) - 1 or len(last) < 3 or _has_values(rows[-1].lines):
        return 0
    left = min(row.items[0].box.left for row in rows)
    above = takewhile(
        lambda row: not _has_values(row.lines) and row.items[0].box.left > left + NEAR, rows[-2 : -1 - most : -1]
    )
    return 1 + sum(1 for _ in above)


def _size(row: cells.Row) -> float:
    return max(run.size for runs in row.cells.values() for run in runs)


def _is_tight(above: Row, row: Row) -> bool:
    """Return whether a row is as near to the row above as lines of one cell."""
    return above.items[-1].level - row.items[0].level <= cells.LEADING * row.items[0].size


def _are_aligned(lines: Sequence[Sequence[Run]], others: Sequence[Sequence[Run]]) -> bool:
    """Return whether all cells of a row begin where those of a row above begin."""
    lefts = [run.left for run in lines[-1]]
    return len(lefts) >= _ALIGNED_CELLS and all(any(abs(run.left - left) < NEAR for left in lefts) for run in others[0])


def _find_common_columns(columns: Columns, lines: Sequence[Sequence[Run]], section: _Section) -> Columns | None:
    """Return the columns of rows and of a section below them.

    The result is None if they are not of one table.
    """
    if _is_title_row(lines, section.lines) or _has_names(section.lines, lines[0]):
        return None
    leading = takewhile(lambda line: not _has_values(line), section.lines)
    if any(_are_names(line, lines, columns) for line in leading):
        return None
    row_cells = find_columns(section.lines)
    if len(row_cells) > len(columns):
        return row_cells if _keep_columns(lines, row_cells) or _are_above(lines, row_cells) else None
    return columns if len(columns) > 1 and _keep_columns(section.lines, columns) else None


def _widen(columns: Columns, runs: Sequence[Run]) -> Columns:
    """Return columns with the cells that are in one of them alone."""
    wider = list(columns)
    for run in runs:
        inside = [at for at, (left, right) in enumerate(columns) if run.left < right and left < run.right]
        if len(inside) == 1:
            left, right = wider[inside[0]]
            wider[inside[0]] = (min(left, run.left), max(right, run.right))
    return wider


def _keep_columns(lines: Sequence[Sequence[Run]], columns: Columns) -> bool:
    """Return whether few lines cross the gaps between columns."""
    most = max(1, int(cells.SPANNING * len(lines)))
    return all(
        sum(any(run.left < left and right < run.right for run in line) for line in lines) <= most
        for (_, left), (right, _) in pairwise(columns)
    )


def _is_title_row(lines: Sequence[Sequence[Run]], following: Sequence[Sequence[Run]]) -> bool:
    """Return whether one row is the title above a table, with fewer cells than its names."""
    first, below = lines[0], following[0]
    return len(lines) == 1 and len(first) < len(below) and first[0].right < below[0].left


def _has_names(lines: Sequence[Sequence[Run]], names: Sequence[Run]) -> bool:
    """Return whether the first row names columns.

    In letters of its own, or as words above numbers.

    Args:
        lines: the rows.
        names: the first row of the table above, whose letters other names would have.
    """
    if len(lines) < 2:
        return False
    first, *others = lines
    columns = find_columns(lines)
    if 2 * len(first) <= len(columns):
        return False
    style = _styles(first)
    if (
        len(style) == 1
        and not any(_styles(line) == style for line in others)
        and (first[0].bold or _styles(names) == style)
    ):
        return True
    rows = cells.place_rows(lines, columns) if len(columns) > 1 else []
    numeric = [column for column in range(1, len(columns)) if _is_numeric(rows[1:], column)]
    words = [
        column for column in numeric if rows[0].cells.get(column) and not is_value(join_text(rows[0].cells[column]))
    ]
    return 2 * len(words) > len(numeric)


def _are_above(lines: Sequence[Sequence[Run]], columns: Columns) -> bool:
    """Return whether lines of words are above most columns."""
    left, right = columns[0][0], columns[-1][1]
    if any(_has_values(line) or line[0].left < left - NEAR or line[-1].right > right + NEAR for line in lines):
        return False
    filled = {column for row in cells.place_rows(lines, columns) for column in row.cells}
    return 2 * len(filled) > len(columns)


def _has_values(line: Sequence[Run | Line]) -> bool:
    """Return whether a cell after the first one is a number, or a missing one."""
    return any(is_value(cell.text) or is_blank_value(cell.text) for cell in line[1:])


def _are_names(line: Sequence[Run], lines: Sequence[Sequence[Run]], columns: Columns) -> bool:
    """Return whether words are below most columns of numbers of the rows above them."""
    if len(columns) < 2:
        return False
    rows = cells.place_rows(lines, columns)
    numeric = {column for column in range(1, len(columns)) if _is_numeric(rows, column)}
    below = numeric & cells.place_rows([line], columns)[0].cells.keys()
    return len(numeric) > 1 and 2 * len(below) > len(numeric)


def _styles(line: Sequence[Run]) -> set[tuple[float, bool]]:
    return {(run.size, run.bold) for run in line}


def _is_numeric(rows: Sequence[cells.Row], column: int) -> bool:
    texts = [join_text(row.cells[column]) for row in rows if row.cells.get(column)]
    values = [text for text in texts if is_value(text) or is_blank_value(text)]
    return len(texts) > 0 and len(values) >= _VALUES * len(texts)


def _is_tabular(table: Table, *, has_rules: bool) -> bool:
    """Return whether cells are a table.

    They are no prose, list or form, and there is evidence of rows or columns.
    """
    if cells.fill_ratio(table) < _LEAST_FILLED or cells.is_prose(table):
        return False
    if len(table.rows) < _LEAST_ROWS:
        return _is_pair(table)
    columns = [[cell for cell in column if cell] for column in zip(*table.rows, strict=True)]
    if any(_LEADER.search(cell) for column in columns for cell in column) or _are_markers(columns[0], len(columns)):
        return False
    if any(2 * sum(cell.endswith(":") for cell in column) >= len(column) > 0 for column in columns[:-1]):
        return False
    body = table.rows[table.header_rows or 1 :]
    numeric = sum(
        _is_column_of_values([row[column] for row in body if row[column]]) for column in range(1, len(columns))
    )
    has_names = table.header_rows is not None and not any(cell.endswith(":") for cell in table.rows[0])
    return 2 * numeric + has_rules + has_names + (len(columns) > 2) > 1


def _is_pair(table: Table) -> bool:
    """Return whether two rows are names and values.

    All cells are there, and only the second row has numbers.
    """
    names, values = table.rows
    is_full = len(names) > 2 and all(names) and all(values)
    return is_full and any(map(is_value, values)) and not any(is_value(name) or name.endswith(":") for name in names)


def _are_markers(cells: Sequence[str], columns: int) -> bool:
    """Return whether most cells of a first column are the bullets and numbers of a list."""
    markers = sum(_MARKER.fullmatch(cell) is not None for cell in cells)
    return columns == 2 and markers > 0.5 * len(cells)


def _is_column_of_values(texts: Sequence[str]) -> bool:
    values = sum(is_value(text) or is_blank_value(text) for text in texts)
    return len(texts) > 1 and values >= _VALUES * len(texts)


def _read_stacks(sections: Sequence[_Section | Region], consumed: set[int]) -> Iterator[Region | _Section]:
    """Yield regions and text.

    The rows of a stack that is no table are read by rows, or by columns.
    """
    visited: set[int] = set()
    for section in sections:
        if isinstance(section, Region) or section.stack is None:
            yield section
        elif id(section.stack) in consumed or not _is_by_column(section.stack):
            yield _Section(rows=section.rows, stack=None)
        elif id(section.stack) not in visited:
            visited.add(id(section.stack))
            yield from _read_columns(section.stack)


def _is_by_column(stack: Stack) -> bool:
    """Return whether the sides of each strip are written one after the other, without labels."""
    items = [item for row in stack.rows for item in row.items]
    if not stack.strips:
        return False
    for left, _ in stack.strips:
        sides = [item for item in items if item.box.right <= left], [item for item in items if item.box.left >= left]
        labels = [item.line.text for item in sides[0] if item.line]
        is_label = all(text.endswith(":") or _MARKER.fullmatch(text) for text in labels)
        if is_label or not is_written_by_column(*sides):
            return False
    return True


def _read_columns(stack: Stack) -> Iterator[_Section]:
    for left, right in zip(
        (0.0, *(end for _, end in stack.strips)), (*(start for start, _ in stack.strips), float("inf")), strict=True
    ):
        rows = [
            [item for item in row.items if left <= (item.box.left + item.box.right) / 2 <= right] for row in stack.rows
        ]
        yield _Section(rows=[Row(items=items) for items in rows if items], stack=None)


def _join_text(sections: Iterator[Region | _Section]) -> Iterator[Region]:
    """Yield regions; consecutive text is one."""
    lines: list[Line] = []
    for section in sections:
        if isinstance(section, _Section):
            lines += (_join_row(row.lines) for row in section.rows)
        else:
            if lines:
                yield Region(lines)
            lines = []
            yield section
    if lines:
        yield Region(lines)


def _join_row(lines: Sequence[Line]) -> Line:
    if len(lines) == 1:
        return lines[0]
    joined = join_line([run for line in lines for run in line.runs])
    return joined._replace(text=" ".join(line.text for line in lines))
