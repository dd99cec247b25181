"""Arrange what is on a PDF page in the order in which a person reads it."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.pdf.cells import LEAST_ROWS, FoundTable, SplitWords
from kosmos_rag.parsing.pdf.graphics import NEAR, Box, Rules, unite
from kosmos_rag.parsing.pdf.grid import Grid, GridArea
from kosmos_rag.parsing.pdf.lattices import Lattice, find_lattices
from kosmos_rag.parsing.pdf.lines import ONE_LINE, Line, join_line, join_rows, join_runs
from kosmos_rag.parsing.pdf.page import PageContent
from kosmos_rag.parsing.pdf.regions import Divider, Item, Region, is_prose
from kosmos_rag.parsing.pdf.stacks import TableFinder
from kosmos_rag.parsing.pdf.text_layer import MIDDLE, Run

_LEAST_DRAWING = 60.0
"""Points that a figure is wide and high at least."""
_NEAR_SHAPES = 10.0
"""Points between the shapes of one figure at most, and to its labels."""


def arrange(content: PageContent) -> list[Region]:
    """Return the regions of a page in reading order."""
    lines = join_rows(list(_drop_copies(line for line in join_runs(content.lines) if line.text)))
    lines = list(_mark_bands(_drop_line_numbers(lines, content.rules), content.boxes))
    lines = list(_mark_headings(lines, content.headings)) if content.headings else lines
    items = [Item(box=line.box, order=order, line=line) for order, line in enumerate(lines)]
    turned = list(content.turned)
    if content.is_vertical or len(items) > bounds.MAX_PAGE_LINES:
        regions = [Region(lines)]
    else:
        items = _take_figures(items, content)
        items = _take_lattices(items, turned, content)
        finder = TableFinder(content.rules, content.split_words)
        regions = [region for chunks in Divider(content.rules).divide(items) for region in finder.find(chunks)]
    return [*regions, *(Region([join_line([run])], is_figure=True) for run in turned)]


def _drop_copies(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield lines once: letters that are drawn twice, a little apart, look bold."""
    places: dict[str, list[Line]] = defaultdict(list)
    bold: set[int] = set()
    remaining = []
    for line in lines:
        copies = places[line.text]
        copy = next((other for other in copies if _is_copy(line, other)), None)
        if copy is None:
            copies.append(line)
            remaining.append(line)
        else:
            bold.add(id(copy))
    for line in remaining:
        yield line._replace(bold=True) if id(line) in bold else line


def _drop_line_numbers(lines: Sequence[Line], rules: Rules) -> Sequence[Line]:
    """Return the lines without the numbers of lines in a margin.

    These count up, and are alone on the left of a line down the page that no other line meets.
    """
    for wall in rules.vertical:
        outside = sorted(
            (line for line in lines if line.right < wall.left and wall.bottom < line.baseline < wall.top),
            key=lambda line: -line.baseline,
        )
        if len(outside) < LEAST_ROWS or not all(line.text.isdecimal() for line in outside):
            continue
        numbers = [int(line.text) for line in outside]
        is_met = any(rule.left - NEAR <= wall.left <= rule.right + NEAR for rule in rules.horizontal)
        if not is_met and all(second == first + 1 for first, second in pairwise(numbers)):
            outside_ids = set(map(id, outside))
            return [line for line in lines if id(line) not in outside_ids]
    return lines


def _is_copy(line: Line, other: Line) -> bool:
    return max(abs(line.left - other.left), abs(line.baseline - other.baseline)) < ONE_LINE * line.size


def _mark_bands(lines: Sequence[Line], boxes: Iterable[Box]) -> Iterator[Line]:
    """Yield the lines; those that are alone in a band are marked.

    A band is as high as one line, and wider. Bands that touch are the background of one text.
    """
    bands = sorted({Box(*map(round, box)) for box in boxes}, key=lambda box: box.bottom)
    bottoms = [box.bottom for box in bands]
    by_level = sorted(lines, key=lambda line: line.baseline)
    levels = [line.baseline for line in by_level]

    def is_band(box: Box, line: Line) -> bool:
        is_around = box.left <= line.left + NEAR and line.right - NEAR <= box.right and line.baseline < box.top
        inside = by_level[bisect_left(levels, box.bottom) : bisect_left(levels, box.top)]
        return (
            is_around
            and box.height < 2 * line.size
            and box.width > line.right - line.left + 2 * line.size
            and sum(other.left < box.right and box.left < other.right for other in inside) == 1
            and not any(abs(other.bottom - box.top) < NEAR or abs(other.top - box.bottom) < NEAR for other in bands)
        )

    for line in lines:
        near = bands[bisect_left(bottoms, line.baseline - line.size) : bisect_right(bottoms, line.baseline)]
        yield line._replace(is_banded=True) if any(is_band(box, line) for box in near) else line


def _mark_headings(lines: Sequence[Line], headings: Sequence[tuple[Box, int]]) -> Iterator[Line]:
    """Yield the lines; those that begin and end in headings of the file have their level."""
    areas = [(box.inflate(NEAR), level) for box, level in headings[: bounds.MAX_GRID_LINES]]
    for line in lines:
        height = line.baseline + MIDDLE * line.size
        begins = [level for box, level in areas if box.contains(line.left, height)]
        ends = any(box.contains(line.right, height) for box, _ in areas)
        yield line._replace(heading=begins[0]) if begins and ends else line


def _take_lattices(items: list[Item], turned: list[Run], content: PageContent) -> list[Item]:
    """Replace what is between ruled lines by tables and frames, the smallest first."""
    for lattice in find_lattices(content.rules):
        lattice = _widen(lattice, [item for item in items if item.line])
        box = lattice.box.inflate(NEAR)
        contents = [item for item in items if box.contains(*_middle(item.box))]
        inside = [item for item in contents if item.line and _is_inside(item.line.runs, box)]
        extra = [run for run in turned if _is_inside([run], box)]
        if len(inside) + len(extra) < 2 and len(contents) < 2:
            continue
        grid, runs = _read_grid(lattice, [item.line.runs for item in inside if item.line], content.split_words)
        runs += extra
        table = grid.build_table(runs)
        is_layout = grid.is_form(runs) or (table and (grid.is_sparse or any(item.line is None for item in contents)))
        if table is not None and not is_layout:
            for run in extra:
                turned.remove(run)
            replaced, region, parts = inside, Region(table=FoundTable(table, lattice.box, grid.edges)), []
        elif (is_layout and len(grid.faces) > 1) or (len(grid.faces) == 1 and 2 * len(contents) <= len(items)):
            replaced, region, parts = contents, None, _divide(contents, grid)
        else:
            continue
        order = min((item.order for item in replaced), default=0)
        replaced_ids = {id(item) for item in replaced}
        items = [item for item in items if id(item) not in replaced_ids]
        items.append(Item(box=lattice.box, order=order, region=region, inner=parts))
    return items


def _widen(lattice: Lattice, items: Sequence[Item]) -> Lattice:
    """Return a lattice with the names of its rows, if these are on its left.

    Each is in a row of its own, most are level with texts between the lines, and they are no prose.
    """
    box = lattice.box
    levels = [item for item in items if box.bottom < item.level < box.top]
    labels = [item for item in levels if item.box.right <= box.left + NEAR]
    inside = sorted(item.level for item in levels if box.contains(*_middle(item.box)))

    def is_level(item: Item) -> bool:
        at = bisect_left(inside, item.level - ONE_LINE * item.size)
        return at < len(inside) and inside[at] <= item.level + ONE_LINE * item.size

    count = sum(map(is_level, labels))
    are_rows = len({round(item.level) for item in labels}) == len(labels) < 2 * count
    if len(lattice.vertical) < LEAST_ROWS or count < LEAST_ROWS or not are_rows or is_prose(labels):
        return lattice
    return lattice._replace(box=box._replace(left=min(item.box.left for item in labels)))


def _read_grid(lattice: Lattice, lines: Sequence[Sequence[Run]], split_words: SplitWords) -> tuple[Grid, list[Run]]:
    """Return the grid of a lattice, and its cells."""
    grid = Grid(lattice)
    runs = [run for line in lines for run in grid.divide_line(line, split_words)]
    if edges := grid.find_hidden_edges(runs):
        grid = Grid(lattice, edges)
        runs = [run for line in lines for run in grid.divide_line(line, split_words)]
    return grid, runs


def _divide(items: Iterable[Item], grid: Grid) -> list[list[Item]]:
    """Return the items in each area of a grid, in reading order.

    Lines across several areas are divided.
    """

    def find_face(box: Box) -> GridArea | None:
        return grid.find_face(*_middle(box))

    parts: dict[GridArea | None, list[Item]] = defaultdict(list)
    for item in items:
        pieces = groupby(item.line.runs, lambda run: find_face(join_line([run]).box)) if item.line else ()
        lines = [(face, join_line(list(runs))) for face, runs in pieces]
        if len(lines) < 2:
            parts[find_face(item.box)].append(item)
        else:
            for face, line in lines:
                parts[face].append(Item(box=line.box, order=item.order, line=line))
    return [parts[face] for face in (None, *grid.reading_order) if face in parts]


def _is_inside(runs: Sequence[Run], box: Box) -> bool:
    return all(box.contains((run.left + run.right) / 2, run.baseline + MIDDLE * run.size) for run in runs)


def _take_figures(items: list[Item], content: PageContent) -> list[Item]:
    """Replace the labels of figures by regions without tables."""
    for box in _find_figures(content):
        near = box.inflate(_NEAR_SHAPES)
        inside = [item for item in items if item.line and near.overlaps(item.box) and near.contains(*_middle(item.box))]
        if not inside or is_prose(inside):
            continue
        inside_ids = {id(item) for item in inside}
        items = [item for item in items if id(item) not in inside_ids]
        region = Region([item.line for item in inside if item.line], is_figure=True)
        items.append(Item(box=unite([box, *(item.box for item in inside)]), order=inside[0].order, region=region))
    return items


def _find_figures(content: PageContent) -> list[Box]:
    """Return the areas of curves and slanted lines with the lines and boxes around them."""
    clusters: list[Box] = []
    for shape in content.drawings:
        box, apart = shape, []
        for other in clusters:
            if other.inflate(_NEAR_SHAPES).overlaps(box):
                box = unite([box, other])
            else:
                apart.append(other)
        clusters = [*apart, box]
    shapes = [*content.boxes, *content.rules.horizontal, *content.rules.vertical]
    return [_grow(box, shapes) for box in clusters if min(box.width, box.height) >= _LEAST_DRAWING]


def _grow(figure: Box, shapes: Sequence[Box]) -> Box:
    """Return the area of a figure with the axes, grids and frames around it."""
    while True:
        near = figure.inflate(_NEAR_SHAPES)
        parts = [shape for shape in shapes if near.contains(*_middle(shape))]
        grown = unite([figure, *parts])
        if grown == figure:
            return figure
        figure = grown


def _middle(box: Box) -> tuple[float, float]:
    return (box.left + box.right) / 2, (box.bottom + box.top) / 2
