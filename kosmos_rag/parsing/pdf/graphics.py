"""Read the ruled lines, boxes and drawings of a PDF page with PDFium."""

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from kosmos_rag.parsing import bounds

_THIN = 3.0
"""Points that a ruled line may be thick; it is more than twice as long. TeX draws underscores as shorter ones."""
NEAR = 2.5
"""Points between ruled lines that are one, and between ends that meet."""
_WHITE = 250
"""Least of red, green and blue of what is not seen on paper."""


class Box(NamedTuple):
    """A rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def width(self) -> float:
        """From left to right."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """From bottom to top."""
        return self.top - self.bottom

    def overlaps(self, other: "Box") -> bool:
        """Return whether two rectangles have an area in common."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def contains(self, x: float, y: float) -> bool:
        """Return whether a point is inside."""
        return self.left <= x <= self.right and self.bottom <= y <= self.top

    def inflate(self, by: float) -> "Box":
        """Return the rectangle with a margin around it."""
        return Box(self.left - by, self.bottom - by, self.right + by, self.top + by)


class Rules(NamedTuple):
    """The ruled lines of a page; pieces that touch are one."""

    horizontal: Sequence[Box] = ()
    """From top to bottom."""
    vertical: Sequence[Box] = ()
    """From left to right."""
    pieces: Sequence[Box] = ()
    """The pieces of the horizontal lines: under names of columns, the line of each is a piece."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Graphics:
    """What is drawn on a page, without its text."""

    rules: list[Box] = field(default_factory=list)
    """Pieces of ruled lines: thin rectangles, straight strokes, and the edges of boxes."""
    drawings: list[Box] = field(default_factory=list)
    """Areas of curves and slanted lines."""
    boxes: list[Box] = field(default_factory=list)
    """Rectangles that are filled or framed."""
    headings: list[tuple[Box, int]] = field(default_factory=list)
    """Areas of texts that a tagged file calls headings, and their levels."""


def unite(boxes: Iterable[Box]) -> Box:
    """Return the smallest rectangle around others."""
    lefts, bottoms, rights, tops = zip(*boxes, strict=True)
    return Box(min(lefts), min(bottoms), max(rights), max(tops))


def read_graphics(page: Any, heading_levels: Mapping[int, int]) -> Graphics:
    """Return the visible graphics of a page.

    Args:
        page: an open page of PDFium.
        heading_levels: levels of the marked contents that are headings, by id.
    """
    return _GraphicsReader(heading_levels).read(page)


def sort_rules(pieces: Iterable[Box]) -> Rules:
    """Return the ruled lines that pieces make.

    Dashes, the sides of cells, and the two edges of a thin rectangle.
    """
    across: list[Box] = []
    down: list[Box] = []
    for piece in pieces:
        (across if piece.width >= piece.height else down).append(piece)
    horizontal = [
        Box(start, at, end, at) for at, start, end in _join_pieces((box.bottom, box.left, box.right) for box in across)
    ]
    vertical = [Box(at, start, at, end) for at, start, end in _join_pieces((b.left, b.bottom, b.top) for b in down)]
    return Rules(horizontal[::-1], vertical, across)


def _join_pieces(pieces: Iterable[tuple[float, float, float]]) -> Iterator[tuple[float, float, float]]:
    """Yield place, start and end of each line; `pieces` have the same."""
    for group in _group_places(sorted(pieces)):
        (start, end), *others = sorted(piece[1:] for piece in group)
        for other_start, other_end in others:
            if other_start > end + NEAR:
                yield group[0][0], start, end
                start, end = other_start, other_end
            else:
                end = max(end, other_end)
        yield group[0][0], start, end


def _group_places(pieces: Iterable[tuple[float, float, float]]) -> Iterator[list[tuple[float, float, float]]]:
    group: list[tuple[float, float, float]] = []
    for piece in pieces:
        if group and piece[0] - group[0][0] > NEAR:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


class _GraphicsReader:
    """Collects the graphics of a page, those in form objects too."""

    def __init__(self, heading_levels: Mapping[int, int]) -> None:
        self._raw = load_pdfium()
        self._heading_levels = heading_levels
        self._graphics = Graphics()
        self._parts = 0
        self._bounds = [ctypes.c_float() for _ in range(4)]
        self._color = [ctypes.c_uint() for _ in range(4)]

    def read(self, page: Any) -> Graphics:
        raw = self._raw
        for index in range(raw.FPDFPage_CountObjects(page.raw)):
            self._read_object(raw.FPDFPage_GetObject(page.raw, index), _IDENTITY, bounds.MAX_FORM_LEVELS)
            if self._parts > bounds.MAX_PAGE_DRAWINGS:
                return Graphics()
        return self._graphics

    def _read_object(self, shape: Any, matrix: "_Matrix", depth: int) -> None:
        raw = self._raw
        self._parts += 1
        kind = raw.FPDFPageObj_GetType(shape)
        if kind == raw.FPDF_PAGEOBJ_PATH:
            self._read_path(shape, matrix)
        elif kind == raw.FPDF_PAGEOBJ_TEXT and self._heading_levels:
            if level := self._heading_levels.get(raw.FPDFPageObj_GetMarkedContentID(shape)):
                self._graphics.headings.append((self._read_bounds(shape, matrix), level))
        elif kind == raw.FPDF_PAGEOBJ_FORM and depth:
            inner = _multiply(self._matrix(shape), matrix)
            for index in range(raw.FPDFFormObj_CountObjects(shape)):
                self._read_object(raw.FPDFFormObj_GetObject(shape, index), inner, depth - 1)
                if self._parts > bounds.MAX_PAGE_DRAWINGS:
                    return

    def _read_path(self, shape: Any, matrix: "_Matrix") -> None:
        raw = self._raw
        fill, stroke = ctypes.c_int(), ctypes.c_int()
        raw.FPDFPath_GetDrawMode(shape, ctypes.byref(fill), ctypes.byref(stroke))
        is_framed = bool(stroke.value) and self._is_visible(raw.FPDFPageObj_GetStrokeColor, shape)
        is_filled = bool(fill.value) and self._is_visible(raw.FPDFPageObj_GetFillColor, shape)
        box = self._read_bounds(shape, matrix)
        if min(box.width, box.height) <= _THIN:
            is_seen = is_framed or is_filled or self._is_on_shade(box)
            if is_seen and max(box.width, box.height) > 2 * _THIN:
                self._graphics.rules.append(box)
            return
        if not is_framed and not is_filled:
            return
        self._parts += raw.FPDFPath_CountSegments(shape)
        if self._parts > bounds.MAX_PAGE_DRAWINGS:
            return
        lines, is_straight = self._read_lines(shape, _multiply(self._matrix(shape), matrix))
        if not is_straight:
            self._graphics.drawings.append(box)
            return
        self._graphics.boxes.append(box)
        # The sides of a shaded row are no lines between columns.
        rules = (line for line in lines if is_framed or line.width > line.height)
        self._graphics.rules.extend(line for line in rules if max(line.width, line.height) > 2 * _THIN)

    def _is_on_shade(self, line: Box) -> bool:
        """Return whether a line is on one of the last boxes, where white is seen."""
        middle = (line.left + line.right) / 2, (line.bottom + line.top) / 2
        return any(box.contains(*middle) for box in self._graphics.boxes[-bounds.MAX_GRID_LINES :])

    def _is_visible(self, read_color: Any, shape: Any) -> bool:
        red, green, blue, alpha = self._color
        if not read_color(shape, red, green, blue, alpha):
            return True
        return alpha.value > 0 and min(red.value, green.value, blue.value) < _WHITE

    def _read_bounds(self, shape: Any, matrix: "_Matrix") -> Box:
        self._raw.FPDFPageObj_GetBounds(shape, *self._bounds)
        left, bottom, right, top = (value.value for value in self._bounds)
        if matrix is _IDENTITY:
            return Box(left, bottom, right, top)
        corners = [_transform(matrix, x, y) for x in (left, right) for y in (bottom, top)]
        return unite(Box(x, y, x, y) for x, y in corners)

    def _matrix(self, shape: Any) -> "_Matrix":
        matrix = self._raw.FS_MATRIX()
        self._raw.FPDFPageObj_GetMatrix(shape, matrix)
        return matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f

    def _read_lines(self, shape: Any, matrix: "_Matrix") -> tuple[list[Box], bool]:
        """Return the straight lines of a path, and whether it has no other parts."""
        lines: list[Box] = []
        is_straight = True
        for start, end in self._read_parts(shape, matrix):
            if start is None:
                return [], False
            line = unite([Box(*start, *start), Box(*end, *end)])
            if min(line.width, line.height) > NEAR:
                return [], False
            lines.append(line)
        return lines, is_straight

    def _read_parts(
        self, shape: Any, matrix: "_Matrix"
    ) -> Iterator[tuple[tuple[float, float] | None, tuple[float, float]]]:
        """Yield start and end of each part of a path.

        The start of a curve is None.
        """
        raw = self._raw
        x, y = ctypes.c_float(), ctypes.c_float()
        before = origin = (0.0, 0.0)
        for index in range(raw.FPDFPath_CountSegments(shape)):
            segment = raw.FPDFPath_GetPathSegment(shape, index)
            raw.FPDFPathSegment_GetPoint(segment, x, y)
            point = _transform(matrix, x.value, y.value)
            kind = raw.FPDFPathSegment_GetType(segment)
            if kind == raw.FPDF_SEGMENT_MOVETO:
                origin = point
            elif kind == raw.FPDF_SEGMENT_LINETO:
                yield before, point
            else:
                yield None, point
            if raw.FPDFPathSegment_GetClose(segment):
                yield point, origin
            before = point


_Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: _Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def _multiply(inner: _Matrix, outer: _Matrix) -> _Matrix:
    if outer is _IDENTITY:
        return inner
    a, b, c, d, e, f = inner
    oa, ob, oc, od, oe, of = outer
    return (
        a * oa + b * oc, a * ob + b * od,
        c * oa + d * oc, c * ob + d * od,
        e * oa + f * oc + oe, e * ob + f * od + of,
    )  # fmt: skip


def _transform(matrix: _Matrix, x: float, y: float) -> tuple[float, float]:
    a, b, c, d, e, f = matrix
    return a * x + c * y + e, b * x + d * y + f


@cache
def load_pdfium() -> Any:
    """Return the functions of PDFium."""
    import pypdfium2

    return pypdfium2.raw
