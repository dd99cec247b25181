"""Tables without vertical lines: rows of a PDF page between which white strips run down."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from kosmos_rag.parsing.pdf import cells
from kosmos_rag.parsing.pdf.cells import Columns, FoundTable, find_columns, is_amount, is_value
from kosmos_rag.parsing.pdf.common_columns import are_aligned, are_bold_names, find_common_columns, has_values, widen
from kosmos_rag.parsing.pdf.graphics import NEAR, Box, Rules, unite
from kosmos_rag.parsing.pdf.lines import LARGER, Line, join_line
from kosmos_rag.parsing.pdf.page_lines import APART, CAPTION
from kosmos_rag.parsing.pdf.regions import Chunk, Region, Row, Stack, is_written_by_column
from kosmos_rag.parsing.pdf.row_groups import join_groups, join_names
from kosmos_rag.parsing.pdf.table_evidence import MARKER, is_tabular
from kosmos_rag.parsing.pdf.table_names import WIDE, find_names, spread_names
from kosmos_rag.parsing.pdf.text_layer import Run

_MOST_BETWEEN = 1
"""Lines across a table between two of its parts."""
_MOST_IN_ROWS = 8
"""Such lines where each row has text of its own below it."""


@dataclass(kw_only=True, slots=True)
class _Section:
    """Consecutive rows of one kind."""

    rows: list[Row]
    stack: Stack | None
    """None for text."""
    text_of: Stack | None = None
    """The stack that a line of text is among the rows of."""

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
        yield from (_Section(rows=[row], stack=None, text_of=stack) for row in rows[:first])
        yield from self._split_cells(stack, rows[first:end])
        yield from (_Section(rows=[row], stack=None, text_of=stack) for row in rows[end:])

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
                is_apart = above.level - row.level > APART * usual or are_bold_names([row.lines], above.lines)
                is_ruled = not has_row_rules and self._wide_rules(box, above.level, row.level)
                if is_title or is_apart or is_ruled:
                    yield _Section(rows=section, stack=stack)
                    section = []
                elif names := _count_names_above(rows[: index + 1], len(section)):
                    yield _Section(rows=section[: 1 - names or len(section)], stack=stack)
                    section = section[1 - names or len(section) :]
            if is_title:
                yield _Section(rows=[row], stack=None, text_of=stack)
            else:
                section.append(row)
        if section:
            yield _Section(rows=section, stack=stack)

    def _is_title(self, rows: Sequence[Row], index: int) -> bool:
        """Return whether a row is one line in letters of its own above rows of cells."""
        lines = rows[index].lines
        if len(lines) == 1 and lines[0].is_banded:
            return True
        if len(lines) > 1 or index + 1 >= len(rows):
            return False
        first, below = lines[0], rows[index + 1].lines
        if len(below) < 2:
            return False
        if index and first.bold and not below[0].bold:
            return True
        return all(item.style != first.style for row in rows if len(row.lines) > 1 for item in row.lines)

    def _wide_rules(self, box: Box, top: float, bottom: float) -> list[float]:
        """Return the places of the ruled lines across an area between two levels."""
        return [
            rule.bottom
            for rule in self._rules
            if bottom < rule.bottom < top and min(rule.right, box.right) - max(rule.left, box.left) >= WIDE * box.width
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
            if CAPTION.match(section.rows[0].lines[0].text):
                break
            if section.stack is None:
                if section.rows[0].lines[0].size > LARGER * lines[-1][0].size:
                    break
                between += len(section.rows)
            elif between > (_MOST_IN_ROWS if are_aligned(lines, section.lines) else _MOST_BETWEEN):
                break
            elif (common := find_common_columns(columns, lines, section.lines)) is not None:
                columns = common
                lines += section.lines
                between = 0
                # Words after the numbers may be above the next table.
                if any(map(has_values, section.lines)) or not any(
                    is_value(run.text) for line in lines for run in line[1:]
                ):
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
        with_values = list(filter(has_values, lines))
        # Names may be wider than their columns.
        columns = find_columns(with_values if len(with_values) >= cells.LEAST_ROWS else lines)
        if len(columns) < len(table_columns):
            columns = widen(table_columns, [run for lines, _ in parts for line in lines for run in line])
        if len(columns) < 2:
            return None
        rows: list[cells.Row] = []
        has_rules = False
        for section_lines, is_stack in parts:
            lines = [cells.divide_runs(line, columns, self._split_words) for line in section_lines]
            if is_stack or len(lines[0]) > len(section_lines[0]):
                placed = cells.place_rows(lines, columns)
                # The first section is the names alone where a ruled line is below them.
                groups = self._group_rows(join_names(placed, alone=len(rows) <= heads < len(parts) - 1), box)
                has_rules = (
                    has_rules
                    or len(groups) > 1
                    or bool(rows and self._wide_rules(box, rows[-1].baseline, lines[0][0].baseline))
                )
                rows += join_groups(groups)
            else:
                row = cells.Row(baseline=lines[0][0].baseline, spans={0: len(columns)})
                row.cells[0] = [run for line in lines for run in line]
                rows.append(row)
        rules = [rule for rule in (*self._pieces, *self._rules) if box.overlaps(rule.inflate(NEAR))]
        names = find_names(rows, columns, rules)
        for index in range(max(heads, 1)):
            spread_names(rows[index:], columns, rules)
        table = cells.build_table(rows, len(columns))
        if table is None or not is_tabular(table, has_rules=has_rules, begins_alike=_begin_alike(rows)):
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


def _count_names_above(rows: Sequence[Row], most: int) -> int:
    """Count the last rows, if they are names of columns: words below rows with numbers.

    The last one has as many cells as a row with numbers; lines of names above it may have fewer, none at the left edge.
    """
    last = rows[-1].lines
    counts = [len(row.lines) for row in rows[-1 - most : -1] if has_values(row.lines)]
    if len(counts) < 2 or len(last) < max(counts) - 1 or len(last) < 3 or has_values(rows[-1].lines):
        return 0
    left = min(row.items[0].box.left for row in rows)
    above = takewhile(
        lambda row: not has_values(row.lines) and row.items[0].box.left > left + NEAR, rows[-2 : -1 - most : -1]
    )
    return 1 + sum(1 for _ in above)


def _begin_alike(rows: Sequence[cells.Row]) -> bool:
    """Return whether the cells of each row begin where those of the first one begin."""
    lefts = {column: runs[0].left for column, runs in rows[0].cells.items()}
    return all(abs(runs[0].left - lefts.get(at, 0.0)) < NEAR for row in rows for at, runs in row.cells.items())


def _is_tight(above: Row, row: Row) -> bool:
    """Return whether a row is as near to the row above as lines of one cell."""
    return above.items[-1].level - row.items[0].level <= cells.LEADING * row.items[0].size


def _read_stacks(sections: Sequence[_Section | Region], consumed: set[int]) -> Iterator[Region | _Section]:
    """Yield regions and text.

    The rows of a stack that is no table are read by rows, or by columns.
    """
    by_column: dict[int, bool] = {}
    for section in sections:
        stack = None if isinstance(section, Region) else section.stack or section.text_of
        if isinstance(section, Region) or stack is None:
            yield section
        elif (is_read := by_column.get(id(stack))) is None and id(stack) not in consumed and _is_by_column(stack):
            by_column[id(stack)] = True
            yield from _read_columns(stack)
        elif not is_read:
            by_column[id(stack)] = False
            yield _Section(rows=section.rows, stack=None)


def _is_by_column(stack: Stack) -> bool:
    """Return whether the sides of each strip are written one after the other, without labels."""
    items = [item for row in stack.rows for item in row.items]
    if not stack.strips:
        return False
    for left, _ in stack.strips:
        sides = [item for item in items if item.box.right <= left], [item for item in items if item.box.left >= left]
        labels = [item.line.text for item in sides[0] if item.line]
        is_label = all(text.endswith(":") or MARKER.fullmatch(text) for text in labels)
        if is_label or not (is_written_by_column(*sides) or _are_out_of_step(stack.rows, left)):
            return False
    return True


def _are_out_of_step(rows: Sequence[Row], strip: float) -> bool:
    """Return whether each side begins a text where the other side continues one.

    Rows of a table, or of labels and values, continue together.
    """
    begins: set[tuple[bool, bool]] = set()
    for row in rows:
        left = [line for line in row.lines if line.right <= strip]
        right = [line for line in row.lines if line.left >= strip]
        if left and right:
            begins.add((left[-1].text[0].isupper(), right[0].text[0].isupper()))
    return {(True, False), (False, True)} <= begins


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
            lines += _join_rows([row.lines for row in section.rows])
        else:
            if lines:
                yield Region(lines)
            lines = []
            yield section
    if lines:
        yield Region(lines)


def _join_rows(rows: Sequence[Sequence[Line]]) -> Iterator[Line]:
    """Yield each row as one line, and a title before smaller words."""
    for above, row, below in zip([(), *rows], rows, [*rows[1:], ()], strict=False):
        values = [line.left for line in (*above[1:], *below[1:])]
        start = 0
        for end in range(1, len(row) + 1):
            if end < len(row) and not _is_title_before(row[end - 1], row[end:], values):
                continue
            part = row[start:end]
            joined = join_line([run for line in part for run in line.runs]) if len(part) > 1 else part[0]
            yield joined._replace(text=" ".join(line.text for line in part))
            start = end


def _is_title_before(line: Line, others: Sequence[Line], values: Sequence[float]) -> bool:
    """Return whether words are larger than those on their right, and no label of these.

    Titles in two sizes are bold. A value is an amount, or is below or above others, whose left edges are given.
    """
    other = others[0]
    has_words = any(word.isalpha() and len(word) > 1 for word in line.text.split())
    if not has_words or other.bold or line.size <= LARGER * other.size:
        return False
    return not is_amount(" ".join(each.text for each in others)) and all(abs(other.left - at) > NEAR for at in values)
