"""Divide a PDF page into regions in reading order, by white space, ruled lines and alignment.

A page is cut where a white strip runs down between lines on both of its sides. Text on the sides of a strip is read
column by column where it is prose, or where its lines are not level; else row by row, and the rows may be a table.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from kosmos_rag.parsing.pdf.cells import LEAST_ROWS, FoundTable
from kosmos_rag.parsing.pdf.graphics import NEAR, Box, Rules, unite
from kosmos_rag.parsing.pdf.lines import ONE_LINE, Line
from kosmos_rag.parsing.pdf.page_lines import APART
from kosmos_rag.parsing.pdf.table_evidence import MARKER
from kosmos_rag.parsing.pdf.text_layer import WORD_GAP

_BLANK = 5.0
"""Sizes of the letters between two rows that no strip joins."""
_MARGIN = 5
"""Points at the sides of a table or figure that count as white."""
_LEVEL = 0.6
"""Share of the lines of one side that have a line of the other side on their level, where both are rows."""
PROSE_LETTERS = 18
"""Letters of a line of prose at least; the words of cells are shorter."""


class Region(NamedTuple):
    """Lines, or a table, that are read one after the other."""

    lines: Sequence[Line] = ()
    table: FoundTable | None = None
    is_figure: bool = False
    """The lines are labels of a drawing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A line, or a region that is not divided, on a page."""

    box: Box
    order: int
    """In the file."""
    line: Line | None = None
    region: Region | None = None
    inner: Sequence[Sequence["Item"]] = ()
    """What is in each box of a frame, in reading order."""

    @property
    def level(self) -> float:
        """The baseline of a line; the top of a region."""
        return self.line.baseline if self.line else self.box.top

    @property
    def size(self) -> float:
        """The size of the letters of a line."""
        return self.line.size if self.line else self.box.height


@dataclass(kw_only=True)
class Row:
    """Items on one level."""

    items: list[Item]
    ink: int = 0
    """Bits of the points that its items take, and those of tall items next to it."""
    is_tall: bool = False
    """It has a region, or is next to one."""

    @property
    def lines(self) -> list[Line]:
        """Its lines, from left to right."""
        return [item.line for item in self.items if item.line]

    @property
    def level(self) -> float:
        """The baseline of its first line."""
        return self.items[0].level


class _Strip(NamedTuple):
    """A white strip between rows."""

    left: int
    right: int
    first: int
    """Index of its first row."""
    last: int
    support: int
    """Rows with items on each of its sides, on the side that has fewer."""


class Stack(NamedTuple):
    """Rows between which white strips run down."""

    rows: Sequence[Row]
    strips: Sequence[tuple[float, float]]
    """Left and right of each."""


Chunk = Region | Stack | Row


class Divider:
    """Divides the items of a page."""

    def __init__(self, rules: Rules) -> None:
        """Begin; ruled lines are evidence of columns and rows."""
        self._rules = rules

    def divide(self, items: Sequence[Item]) -> Iterator[list[Chunk]]:
        """Yield the chunks of each column of text, in reading order."""
        open_chunks: list[Chunk] = []
        for part in self._cut(_make_rows(items)):
            if isinstance(part, list):
                if open_chunks:
                    yield open_chunks
                open_chunks = []
                for column in part:
                    yield from self.divide(column)
            else:
                open_chunks.append(part)
        if open_chunks:
            yield open_chunks

    def _cut(self, rows: Sequence[Row]) -> Iterator[Chunk | list[list[Item]]]:
        """Yield rows and stacks, and lists of columns of text."""
        strip = max(_find_strips(rows), key=lambda each: each.support, default=None)
        if strip is None:
            for row in rows:
                yield from self._open(row)
            return
        yield from self._cut(rows[: strip.first])
        band = rows[strip.first : strip.last + 1]
        yield from self._resolve(band, _find_gaps(band))
        yield from self._cut(rows[strip.last + 1 :])

    def _open(self, row: Row) -> Iterator[Chunk | list[list[Item]]]:
        for item in row.items:
            if item.inner:
                yield [list(part) for part in item.inner]
            elif item.region:
                yield item.region
        if row.lines:
            yield Row(items=[item for item in row.items if item.line], ink=row.ink)

    def _resolve(self, rows: Sequence[Row], gaps: Sequence[tuple[int, int]]) -> Iterator[Chunk | list[list[Item]]]:
        items = [item for row in rows for item in row.items]
        if cuts := self._find_cuts(rows):
            yield [column for column in _split(items, cuts) if column]
        elif halves := self._halve(rows):
            for half in halves:
                yield from self._cut(half)
        elif not all(item.line for item in items):
            for row in rows:
                yield from self._open(row)
        else:
            yield Stack(rows, [(float(left), float(right)) for left, right in gaps])

    def _find_cuts(self, rows: Sequence[Row]) -> list[tuple[int, int]]:
        """Return the strips of a band that are between columns of text."""
        gaps = _find_gaps(rows)
        columns = _split([item for row in rows for item in row.items], gaps)
        return [gap for at, gap in enumerate(gaps) if self._divides_text(gap, columns, at)]

    def _halve(self, rows: Sequence[Row]) -> list[Sequence[Row]]:
        """Return the rows above and below the widest space, if some are columns of text."""
        spaces = [above.level - below.level for above, below in pairwise(rows)]
        if not spaces or max(spaces) <= APART * sorted(spaces)[len(spaces) // 2]:
            return []
        at = spaces.index(max(spaces)) + 1
        halves = [rows[:at], rows[at:]]
        return halves if any(len(half) >= LEAST_ROWS and self._find_cuts(half) for half in halves) else []

    def _divides_text(self, gap: tuple[int, int], columns: Sequence[Sequence[Item]], at: int) -> bool:
        """Return whether the strip after a column is between columns of text, not of cells."""
        left, right = columns[at], columns[at + 1]
        if not left or not right:
            return False
        if any(item.line is None for item in (*left, *right)):
            return not _are_markers(left)
        if _are_labels(left, right):
            return False
        are_prose = [is_prose(left), is_prose(right)]
        if all(are_prose):
            return True
        crossing, one_sided = self._count_rules(gap, left, right)
        if crossing:
            return False
        if one_sided or not _are_level(columns, at):
            return True
        return any(are_prose) and is_written_by_column(left, right)

    def _count_rules(self, gap: tuple[int, int], left: Sequence[Item], right: Sequence[Item]) -> tuple[int, bool]:
        """Return how many ruled lines cross a strip, and whether each side has lines."""
        top = max(item.level for item in (*left, *right))
        bottom = min(item.level for item in (*left, *right))
        edges = [unite(item.box for item in side) for side in (left, right)]
        crossing = 0
        side_lines = [0, 0]
        for rule in self._rules.horizontal:
            if bottom < rule.bottom < top:
                if rule.left < gap[0] and rule.right > gap[1]:
                    crossing += rule.left < edges[0].right - NEAR and rule.right > edges[1].left + NEAR
                else:
                    for side, edge in enumerate(edges):
                        side_lines[side] += rule.left <= edge.left + NEAR and edge.right - NEAR <= rule.right
        return crossing, all(side_lines)


def _are_markers(items: Sequence[Item]) -> bool:
    """Return whether items are the bullets and numbers of a list."""
    return all(item.line and MARKER.fullmatch(item.line.text) for item in items)


def _are_labels(left: Sequence[Item], right: Sequence[Item]) -> bool:
    """Return whether lines are labels of what is on their right, most with a colon."""
    ends = [item.line.text.endswith(":") for item in left if item.line]
    begins = sum(item.line.text.startswith(":") for item in right if item.line)
    return len(ends) > 1 and 2 * max(sum(ends), begins) > len(ends)


def _are_level(columns: Sequence[Sequence[Item]], at: int) -> bool:
    """Return whether most lines of the shorter side have a line opposite them."""
    side = min(at, at + 1, key=lambda each: len(columns[each]))
    levels = {round(item.level) for item in columns[side]}
    others = {
        round(item.level) + by
        for each, column in enumerate(columns)
        if each != side
        for item in column
        for by in (-1, 0, 1)
    }
    return len(levels & others) >= _LEVEL * len(levels)


def is_written_by_column(left: Sequence[Item], right: Sequence[Item]) -> bool:
    """Return whether the file has one side after the other."""
    sides = sorted([*((item.order, 0) for item in left), *((item.order, 1) for item in right)])
    return sum(side != other for (_, side), (_, other) in pairwise(sides)) == 1


def is_prose(items: Sequence[Item]) -> bool:
    """Return whether items are long lines, most of which fill half of their column."""
    lines = [item.line for item in items if item.line]
    if len(lines) < LEAST_ROWS or sum(len(line.text) for line in lines) < PROSE_LETTERS * len(lines):
        return False
    left, right = min(line.left for line in lines), max(line.right for line in lines)
    return 2 * sum(2 * (line.right - line.left) > right - left for line in lines) >= len(lines)


def _split(items: Iterable[Item], gaps: Sequence[tuple[int, int]]) -> list[list[Item]]:
    """Return the items between gaps, from left to right."""
    columns: list[list[Item]] = [[] for _ in range(len(gaps) + 1)]
    for item in items:
        middle = (item.box.left + item.box.right) / 2
        columns[sum(middle > gap[0] for gap in gaps)].append(item)
    return columns


def _make_rows(items: Sequence[Item]) -> list[Row]:
    """Group items into rows, from top to bottom."""
    rows: list[Row] = []
    for item in sorted(items, key=lambda item: (-item.level, item.box.left)):
        last = rows[-1].items[0] if rows else None
        if last and last.line and item.line and last.level - item.level <= ONE_LINE * max(last.size, item.size):
            rows[-1].items.append(item)
        else:
            rows.append(Row(items=[item]))
    for row in rows:
        row.items.sort(key=lambda item: item.box.left)
        for item in row.items:
            row.ink |= _bits(item)
    for item in items:
        if item.line is None:
            for row in rows:
                if item.box.bottom < row.level <= item.box.top:
                    row.ink |= _bits(item)
                    row.is_tall = True
    return rows


def _bits(item: Item) -> int:
    """Return the points that an item takes.

    Text may be near to the edges of a table or figure.
    """
    margin = 0 if item.line else _MARGIN
    left = max(0, int(item.box.left) + margin)
    return (1 << max(left + 1, int(item.box.right) + 1 - margin)) - (1 << left)


def _find_strips(rows: Sequence[Row]) -> Iterator[_Strip]:
    """Yield the white strips between items of one row, as long as they run."""
    earlier: list[_Strip] = []
    for index, row in enumerate(rows):
        for left, right in _seeds(rows, index):
            if any(
                strip.first <= index <= strip.last and strip.left < right and left < strip.right for strip in earlier
            ):
                continue
            width = _width(row)
            if right - left >= width:
                strip = _grow(rows, index, (left, right), width)
                earlier.append(strip)
                if strip.support > 1 or (strip.support and _is_beside_prose(rows, strip)):
                    yield strip


def _is_beside_prose(rows: Sequence[Row], strip: _Strip) -> bool:
    """Return whether a line is on the right of a strip, and text on the left.

    One line of the text is on its level: several are cells. A single line on the left of text is its label.
    """
    band = rows[strip.first : strip.last + 1]
    left = [[item for item in row.items if item.box.right <= strip.left + 1] for row in band]
    level = [items for items, row in zip(left, band, strict=True) if 0 < len(items) < len(row.items)]
    return all(len(items) == 1 for items in level) and is_prose([item for items in left for item in items])


def _width(row: Row) -> int:
    return max(1, int(WORD_GAP * min((item.size for item in row.items if item.line), default=8.0)))


def _seeds(rows: Sequence[Row], index: int) -> Iterator[tuple[int, int]]:
    """Yield left and right of the gaps of a row and of overlapping rows."""
    items = list(rows[index].items)
    if index + 1 < len(rows):
        following = rows[index + 1]
        if following.items[0].box.top > items[0].box.bottom + ONE_LINE * items[0].size:
            items = sorted([*items, *following.items], key=lambda item: item.box.left)
    right = items[0].box.right
    for item in items[1:]:
        if item.box.left > right:
            yield int(right) + 1, int(item.box.left)
        right = max(right, item.box.right)


def _grow(rows: Sequence[Row], index: int, gap: tuple[int, int], width: int) -> _Strip:
    first = last = index
    for step, end in ((1, len(rows)), (-1, -1)):
        for at in range(index + step, end, step):
            narrower = _narrow(rows[at].ink, gap, width)
            if narrower is None or _are_far_apart(rows[at], rows[at - step]):
                break
            gap = narrower
            first, last = min(first, at), max(last, at)
    left, right = gap
    on_left = [at for at in range(first, last + 1) if rows[at].ink & ((1 << left) - 1)]
    on_right = [at for at in range(first, last + 1) if rows[at].ink >> right]
    if not on_left or not on_right:
        return _Strip(left, right, first, last, 0)
    start, end = max(on_left[0], on_right[0]), min(on_left[-1], on_right[-1])
    support = min(sum(start <= at <= end for at in side) for side in (on_left, on_right))
    return _Strip(left, right, first, last, support)


def _are_far_apart(row: Row, other: Row) -> bool:
    """Return whether a wide white space is between two rows."""
    if row.is_tall or other.is_tall:
        return False
    sizes = [item.size for item in (*row.items, *other.items) if item.line]
    return abs(row.level - other.level) > _BLANK * max(sizes)


def _narrow(ink: int, gap: tuple[int, int], width: int) -> tuple[int, int] | None:
    """Return the widest part of a gap that is free of ink."""
    left, right = gap
    inside = (ink >> left) & ((1 << (right - left)) - 1)
    if not inside:
        return gap
    best = (0, 0)
    start = 0
    while inside:
        low = (inside & -inside).bit_length() - 1
        if low > best[1] - best[0]:
            best = (start, start + low)
        inside >>= low
        filled = (~inside & (inside + 1)).bit_length() - 1
        inside >>= filled
        start += low + filled
    if right - left - start > best[1] - best[0]:
        best = (start, right - left)
    return (left + best[0], left + best[1]) if best[1] - best[0] >= width else None


def _find_gaps(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the gaps that all rows of a band have in common."""
    ink = 0
    for row in rows:
        ink |= row.ink
    width = min(map(_width, rows))
    gaps: list[tuple[int, int]] = []
    place = (ink & -ink).bit_length() - 1
    ink >>= place
    while ink:
        filled = (~ink & (ink + 1)).bit_length() - 1
        ink >>= filled
        place += filled
        if not ink:
            break
        free = (ink & -ink).bit_length() - 1
        if free >= width:
            gaps.append((place, place + free))
        ink >>= free
        place += free
    return gaps
