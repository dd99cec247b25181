"""Read one page of a PDF with PDFium.

Runs of characters with their positions, graphics, forms and annotations.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kosmos_rag.parsing.pdf.faces import Faces
from kosmos_rag.parsing.pdf.form_fields import read_values
from kosmos_rag.parsing.pdf.graphics import Box, Graphics, Rules, read_graphics, sort_rules, unite
from kosmos_rag.parsing.pdf.tags import TaggedHeadings
from kosmos_rag.parsing.pdf.text_layer import DOWNWARD, MIDDLE, UPWARD, LayerReader, Run, turn_back, turn_box


class PageFrame(NamedTuple):
    """The displayed area of a page, and its rotation."""

    area: Box
    """In points, before any turn."""
    rotation: int = 0
    """Degrees by which viewers turn the page clockwise."""
    turn: int = 0
    """Quarter turns, counter-clockwise, of its text."""

    def place(self, box: Box) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom on the displayed page.

        In 10,000ths of its width and height.

        Args:
            box: in the coordinates of `PageContent`.
        """
        corners = [self._place(box.left, box.bottom), self._place(box.right, box.top)]
        (left, right), (top, bottom) = (sorted(values) for values in zip(*corners, strict=True))
        return left, top, right, bottom

    def _place(self, x: float, y: float) -> tuple[int, int]:
        x, y = turn_back(x, y, self.turn)
        area = self.area
        across = (x - area.left) / max(area.width, 1.0)
        down = (area.top - y) / max(area.height, 1.0)
        if self.rotation == 90:
            across, down = 1 - down, across
        elif self.rotation == 180:
            across, down = 1 - across, 1 - down
        elif self.rotation == 270:
            across, down = down, 1 - across
        return _share(across), _share(down)


def _share(value: float) -> int:
    return round(10_000 * min(max(value, 0.0), 1.0))


def _split_nothing(_run: Run) -> Sequence[Run]:
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PageContent:
    """What is on a page.

    Coordinates are turned so that most of the text runs from left to right and from top to bottom.
    """

    lines: list[list[Run]] = field(default_factory=list)
    """Runs of each line, in the order of the file."""
    turned: list[Run] = field(default_factory=list)
    """Lines in other directions, a run each, as a stamp in the margin; left and right are those of the page."""
    rules: Rules = field(default_factory=Rules)
    drawings: list[Box] = field(default_factory=list)
    """Areas of curves and slanted lines."""
    boxes: list[Box] = field(default_factory=list)
    """Rectangles that are filled or framed."""
    headings: list[tuple[Box, int]] = field(default_factory=list)
    """Areas of texts that a tagged file calls headings, and their levels."""
    values: list[str] = field(default_factory=list)
    """Values of form fields and texts of annotations."""
    top: float = 0.0
    bottom: float = 0.0
    scanned: bool = False
    """Read from a picture: its letters say nothing of headings."""
    frame: PageFrame | None = None
    """None where nothing is read of the page."""
    split_words: Callable[[Run], Sequence[Run]] = _split_nothing
    """Returns the words of a run with their positions, where these are known, while the text layer is open."""

    @property
    def is_vertical(self) -> bool:
        """Whether most lines run downwards, as in Japanese."""
        return self.frame is not None and self.frame.turn == DOWNWARD


def read_page(page: Any, layer: Any, faces: Faces, tags: TaggedHeadings, forms: Any = None) -> PageContent:
    """Return the content of a page.

    Args:
        layer: its text layer.
        faces: those of the document.
        tags: the headings that the document names.
        forms: the form environment of the document.
    """
    graphics = read_graphics(page, tags.read_levels(page)) if layer.count_chars() else Graphics()
    area = Box(*page.get_bbox())
    rules = sort_rules(graphics.rules)
    reader = LayerReader(layer, rules, faces)
    lines = [(turn, runs) for turn, runs in reader.read() if _is_on_page(turn, runs, area)]
    characters: Counter[int] = Counter()
    for turn, runs in lines:
        characters[turn] += sum(len(run.text) for run in runs)
    turn = characters.most_common(1)[0][0] if characters else 0
    left, bottom, right, top = area
    page_lines = [runs for line_turn, runs in lines if line_turn == turn]
    if turn == DOWNWARD:
        # PDFium gives columns of vertical writing from left to right; they are read from right to left.
        page_lines.sort(key=lambda runs: -runs[0].baseline)
        bottom, top = left, right
    elif turn == UPWARD:
        bottom, top = -right, -left
    return PageContent(
        lines=page_lines,
        turned=[_lay(run, line_turn, turn) for line_turn, runs in lines if line_turn != turn for run in runs],
        rules=sort_rules(turn_box(rule, turn) for rule in graphics.rules) if turn else rules,
        drawings=[turn_box(box, turn) for box in graphics.drawings],
        boxes=[turn_box(box, turn) for box in graphics.boxes],
        headings=[(turn_box(box, turn), level) for box, level in graphics.headings],
        values=list(read_values(page, forms)),
        bottom=bottom,
        top=top,
        frame=PageFrame(area, page.get_rotation(), turn),
        split_words=reader.split_words,
    )


def _is_on_page(turn: int, runs: Sequence[Run], area: Box) -> bool:
    """Return whether a line is on the page and not in its margin for printers."""
    run = runs[0]
    ends = (turn_back(x, run.baseline, turn) for x in (run.left, run.right))
    return unite(Box(x, y, x + run.size, y + run.size) for x, y in ends).overlaps(area)


def _lay(run: Run, own_turn: int, turn: int) -> Run:
    """Return a run in the coordinates of another direction, around the same middle."""
    corners = [(run.left, run.baseline), (run.right, run.baseline + run.size)]
    box = turn_box(unite(Box(x, y, x, y) for x, y in (turn_back(*corner, own_turn) for corner in corners)), turn)
    middle = (box.bottom + box.top) / 2
    return run._replace(left=box.left, right=box.right, baseline=middle - MIDDLE * run.size)
