"""Read one page of a PDF with PDFium.

It gives runs of characters with their positions, ruled lines, forms and annotations.
"""

import ctypes
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

_LINE_PIECES = re.compile(r"[^\ufffe\x02\r\n]+[\ufffe\x02]?")
"""PDFium writes U+FFFE or U+0002 for the hyphen of a divided word, and continues with the next line of the page."""
_BOLD = re.compile(rb"bold|black|heavy|demi|medi|cmbx|sfbx", re.IGNORECASE)
_NAME_BYTES = 128
_WIDE_GAP = 1.0
"""Sizes of the letters between two text objects of a line that may be two cells."""
_WIDE_ADVANCE = 0.72
"""Sizes of the letters that a character takes on average where cells of a table share a text object."""
_RAISED = 0.22
_SCRIPT_HEIGHT = 0.28
"""Sizes of the letters from the baseline to a superscript, and of its height; quotes and hyphens are lower."""
_MOST_SCRIPTED = 3
"""Characters that may be a letter with superscripts and subscripts as high as a line of vertical text."""
_IDEOGRAPHS = "\u2e80"
_CELL_GAP = 0.5
"""Sizes of the letters between two characters that belong to different runs."""
_MAX_PATHS = 5_000
_MAX_PATH_SEGMENTS = 20_000
_THIN = 3.0
"""Points that a filled rectangle may be thick and still is a ruled line."""
_SHORTEST_RULE = 7.0
"""Points; TeX draws underscores as shorter ones."""
_LEAST_RULES = 3
_MAX_RULE_GROUPS = 200
"""A page with more is a drawing."""
_NEAR = 2.5
"""Points between ends of ruled lines that meet."""
_MAX_ANNOTATIONS = 2_000
_MAX_VALUE_BYTES = 2**20
"""Of one value in UTF-16; longer ones are left out."""
_MAX_VALUE_CHARS = 2**20
"""Of all values of a page."""


_UPWARD, _DOWNWARD = 1, 3
"""Quarter turns, counter-clockwise, of text that does not run from left to right."""


class Run(NamedTuple):
    """Adjacent characters of one line, in points of the rotated page."""

    text: str
    left: float
    right: float
    baseline: float
    size: float
    bold: bool
    divided: bool = False
    """Ends in a hyphen that divides a word."""


class Rule(NamedTuple):
    """A ruled line, horizontal or vertical."""

    left: float
    bottom: float
    right: float
    top: float


class Box(NamedTuple):
    """A rectangle."""

    left: float
    bottom: float
    right: float
    top: float


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
        if self.turn == _DOWNWARD:
            x, y = y, -x
        elif self.turn == _UPWARD:
            x, y = -y, x
        elif self.turn:
            x, y = -x, -y
        area = self.area
        across = (x - area.left) / max(area.right - area.left, 1.0)
        down = (area.top - y) / max(area.top - area.bottom, 1.0)
        if self.rotation == 90:
            across, down = 1 - down, across
        elif self.rotation == 180:
            across, down = 1 - across, 1 - down
        elif self.rotation == 270:
            across, down = down, 1 - across
        return _share(across), _share(down)


def _share(value: float) -> int:
    return round(10_000 * min(max(value, 0.0), 1.0))


@dataclass(frozen=True, kw_only=True, slots=True)
class PageContent:
    """What is on a page.

    Coordinates are turned so that most of the text runs from left to right and from top to bottom.
    """

    lines: list[list[Run]] = field(default_factory=list)
    """Runs of each line, in the order of the file."""
    rules: list[Rule] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    """Values of form fields and texts of annotations."""
    top: float = 0.0
    bottom: float = 0.0
    scanned: bool = False
    """Read from a picture: its letters say nothing of headings."""
    frame: PageFrame | None = None
    """None where nothing is read of the page."""


class _Style(NamedTuple):
    size: float
    bold: bool
    baseline: float
    turn: int


def read_page(page: Any, layer: Any, forms: Any = None) -> PageContent:
    """Return the content of a page.

    Args:
        page: the page.
        layer: its text layer.
        forms: the form environment of the document.
    """
    rules = list(_rules(page)) if layer.count_chars() else []
    lines = list(_LayerReader(layer, find_table_regions(rules)).read())
    characters: Counter[int] = Counter()
    for turn, runs in lines:
        characters[turn] += sum(len(run.text) for run in runs)
    turn = characters.most_common(1)[0][0] if characters else 0
    area = Box(*page.get_bbox())
    left, bottom, right, top = area
    page_lines = [runs for line_turn, runs in lines if line_turn == turn]
    if turn == _DOWNWARD:
        # PDFium gives columns of vertical writing from left to right; they are read from right to left.
        page_lines.sort(key=lambda runs: -runs[0].baseline)
        bottom, top = left, right
    elif turn == _UPWARD:
        bottom, top = -right, -left
    # Text in another direction, as a stamp in the margin, follows the rest.
    page_lines += [runs for line_turn, runs in lines if line_turn != turn]
    return PageContent(
        lines=page_lines,
        rules=[_turn_rule(rule, turn) for rule in rules] if turn else rules,
        values=list(_values(page, forms)),
        bottom=bottom,
        top=top,
        frame=PageFrame(area, page.get_rotation(), turn),
    )


class _LayerReader:
    """Reads the lines of a text layer with few calls of PDFium.

    A call costs more than it computes.
    """

    def __init__(self, layer: Any, tables: Sequence[Box]) -> None:
        self._raw = _raw()
        self._layer = layer.raw
        self._text = layer.get_text_range()
        self._tables = tables
        self._name = ctypes.create_string_buffer(_NAME_BYTES)
        self._numbers = (ctypes.c_double * 4)()
        size = ctypes.sizeof(ctypes.c_double)
        self._pointers = [
            ctypes.cast(ctypes.byref(self._numbers, at * size), ctypes.POINTER(ctypes.c_double)) for at in range(4)
        ]
        self._bold: dict[bytes, bool] = {}
        """By the name of the font."""
        self._matrix = _raw().FS_MATRIX()
        self._loose = _raw().FS_RECTF()

    def read(self) -> Iterator[tuple[int, list[Run]]]:
        """Yield direction and runs of each line."""
        count = self._raw.FPDFText_CountChars(self._layer)
        to_index = self._raw.FPDFText_GetCharIndexFromTextIndex
        for piece in _LINE_PIECES.finditer(self._text):
            text = piece[0].rstrip("\ufffe\x02")
            words = text.strip()
            if not words:
                continue
            start = piece.start() + len(text) - len(text.lstrip())
            first = to_index(self._layer, start)
            if not 0 <= first < count:
                continue
            style = self._style(first)
            boxes = list(self._boxes(first, len(words)))
            divided = len(text) < len(piece[0])
            if not boxes:
                continue
            if style.turn == 0 and _is_vertical(boxes, words, style.size):
                style = style._replace(turn=_DOWNWARD, baseline=boxes[0].left)
            if style.turn:
                yield style.turn, [_turn_run(_union(boxes), words, style, divided=divided)]
            elif self._is_simple(boxes, words, style):
                left, _, right, _ = _union(boxes)
                yield 0, [Run(words, left, right, style.baseline, style.size, style.bold, divided)]
            elif runs := list(self._runs(first, len(words), style)):
                runs[-1] = runs[-1]._replace(divided=divided)
                yield 0, runs

    def _style(self, index: int) -> _Style:
        self._raw.FPDFText_GetFontInfo(self._layer, index, self._name, _NAME_BYTES, None)
        name = self._name.value
        if (bold := self._bold.get(name)) is None:
            bold = self._bold[name] = _BOLD.search(name) is not None
        self._raw.FPDFText_GetCharOrigin(self._layer, index, self._pointers[0], self._pointers[1])
        baseline = self._numbers[1]
        size, turn = self._size(index)
        return _Style(size, bold, baseline, turn)

    def _size(self, index: int) -> tuple[float, int]:
        """Return the size of a character on the page, and its direction."""
        size = self._raw.FPDFText_GetFontSize(self._layer, index)
        if not self._raw.FPDFText_GetMatrix(self._layer, index, self._matrix):
            return round(size, 1), 0
        matrix = self._matrix
        a, b, c, d = matrix.a, matrix.b, matrix.c, matrix.d
        scaled = round(size * (d if c == 0.0 and d > 0.0 else math.hypot(c, d)), 1) or round(size, 1)
        if b != 0.0 and abs(b) > abs(a):
            return scaled, _UPWARD if b > 0 else _DOWNWARD
        return scaled, 2 if a < 0 else 0

    def _boxes(self, first: int, count: int) -> Iterator[Box]:
        """Yield the box of each text object among some characters."""
        layer, numbers, read_box = self._layer, self._numbers, self._raw.FPDFText_GetRect
        at_left, at_top, at_right, at_bottom = self._pointers
        for index in range(self._raw.FPDFText_CountRects(layer, first, count)):
            read_box(layer, index, at_left, at_top, at_right, at_bottom)
            left, top, right, bottom = numbers
            yield Box(left, bottom, right, top)

    def _is_simple(self, boxes: list[Box], words: str, style: _Style) -> bool:
        """Return whether a line has no cells and no superscripts.

        The boxes of its text objects show it.
        """
        size = max(style.size, 1.0)
        box = _union(boxes)
        if self._tables and any(_overlap(box, table) for table in self._tables):
            return False
        if words[0] < _IDEOGRAPHS and box.right - box.left > _WIDE_ADVANCE * size * len(words):
            return False
        if len(boxes) == 1:
            return True
        baseline = style.baseline
        raised, high = baseline + _RAISED * size, _SCRIPT_HEIGHT * size
        below, low, lowest = baseline - 0.05 * size, baseline + 0.4 * size, baseline + 0.15 * size
        right = boxes[0].left
        for left, bottom, end, top in boxes:
            if left - right > _WIDE_GAP * size or (bottom > raised and top - bottom > high):
                return False
            # A comma is lowered too, and lower.
            if bottom < below and top < low and (lowest < top or top - bottom > high):
                return False
            right = end
        return True

    def _runs(self, first: int, count: int, style: _Style) -> Iterator[Run]:
        """Yield the runs of a line: adjacent characters of one size."""
        raw, loose = _raw(), ctypes.byref(self._loose)
        letters: list[str] = []
        left = right = baseline = 0.0
        size = style.size
        for index in range(first, first + count):
            character = chr(max(0, raw.FPDFText_GetUnicode(self._layer, index)))
            if raw.FPDFText_IsGenerated(self._layer, index) == 1 or character.isspace():
                if letters and letters[-1] != " ":
                    letters.append(" ")
                continue
            raw.FPDFText_GetLooseCharBox(self._layer, index, loose)
            own_size, _ = self._size(index)
            raw.FPDFText_GetCharOrigin(self._layer, index, *self._pointers[:2])
            own_baseline = self._numbers[1]
            gap = self._loose.left - right
            apart = gap > _CELL_GAP * size or gap < -size
            if letters and (apart or own_size != size or abs(own_baseline - baseline) > 0.05 * size):
                yield Run("".join(letters), left, right, baseline, size, style.bold)
                letters = []
            if not letters:
                left, size, baseline = self._loose.left, own_size, own_baseline
            letters.append(character)
            right = self._loose.right
        if "".join(letters).strip():
            yield Run("".join(letters).rstrip(), left, right, baseline, size, style.bold)


def _union(boxes: list[Box]) -> Box:
    if len(boxes) == 1:
        return boxes[0]
    lefts, bottoms, rights, tops = zip(*boxes, strict=True)
    return Box(min(lefts), min(bottoms), max(rights), max(tops))


def _overlap(box: Box, other: Box) -> bool:
    return box.left < other.right and other.left < box.right and box.bottom < other.top and other.bottom < box.top


def _is_vertical(boxes: list[Box], words: str, size: float) -> bool:
    """Return whether characters are below each other, as in vertical Japanese."""
    box = _union(boxes)
    if len(words) < 2 or box.top - box.bottom <= 0.8 * size * (len(words) - 1) or box.right - box.left >= 2 * size:
        return False
    # A letter and its superscript (`m2`) are as high, and are next to each other.
    return len(words) > _MOST_SCRIPTED or max(each.left for each in boxes) < min(each.right for each in boxes)


def _turn_run(box: Box, words: str, style: _Style, *, divided: bool) -> Run:
    if style.turn == _DOWNWARD:
        return Run(words, -box.top, -box.bottom, box.left, style.size, style.bold, divided)
    if style.turn == _UPWARD:
        return Run(words, box.bottom, box.top, -box.right, style.size, style.bold, divided)
    return Run(words, -box.right, -box.left, -style.baseline, style.size, style.bold, divided)


def _turn_rule(rule: Rule, turn: int) -> Rule:
    if turn == _DOWNWARD:
        return Rule(-rule.top, rule.left, -rule.bottom, rule.right)
    if turn == _UPWARD:
        return Rule(rule.bottom, -rule.right, rule.top, -rule.left)
    return Rule(-rule.right, -rule.top, -rule.left, -rule.bottom)


def find_table_regions(rules: Sequence[Rule]) -> list[Box]:
    """Return the boxes around ruled lines that may be of a table.

    Lines that touch, or horizontal ones of one width above each other, are of one table, which has three or more.
    """
    groups: list[_RuleGroup] = []
    for rule in sorted(rules, key=lambda rule: -rule.top):
        group = _RuleGroup(Box(*rule), 1, rule.right - rule.left >= rule.top - rule.bottom)
        apart = []
        for other in groups:
            if _belongs(group, other):
                group = _RuleGroup(
                    _union([group.box, other.box]), group.rules + other.rules, group.horizontal and other.horizontal
                )
            else:
                apart.append(other)
        groups = [*apart, group]
        if len(groups) > _MAX_RULE_GROUPS:
            return []
    return [box for box, count, _ in groups if count >= _LEAST_RULES and box.top - box.bottom > _SHORTEST_RULE]


class _RuleGroup(NamedTuple):
    box: Box
    rules: int
    horizontal: bool
    """All of its lines are."""


def _belongs(group: _RuleGroup, other: _RuleGroup) -> bool:
    box, near = group.box, other.box
    if group.horizontal and other.horizontal and abs(box.left - near.left) + abs(box.right - near.right) <= _NEAR:
        return True
    return _overlap(box, Box(near.left - _NEAR, near.bottom - _NEAR, near.right + _NEAR, near.top + _NEAR))


def _rules(page: Any) -> Iterator[Rule]:
    """Yield the ruled lines of a page.

    They are thin rectangles, edges of larger ones, and straight strokes.
    """
    raw = _raw()
    remaining = _MAX_PATH_SEGMENTS
    count = raw.FPDFPage_CountObjects(page.raw)
    if count > _MAX_PATHS:
        return
    for index in range(count):
        shape = raw.FPDFPage_GetObject(page.raw, index)
        if raw.FPDFPageObj_GetType(shape) != raw.FPDF_PAGEOBJ_PATH:
            continue
        remaining -= raw.FPDFPath_CountSegments(shape)
        if remaining < 0:
            return
        yield from _path_rules(shape)


def _path_rules(shape: Any) -> Iterator[Rule]:
    raw = _raw()
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    raw.FPDFPath_GetDrawMode(shape, ctypes.byref(fill), ctypes.byref(stroke))
    if not fill.value and not stroke.value:
        return
    points: list[tuple[float, float]] = []
    for start, end in _straight_parts(shape):
        left, right = sorted((start[0], end[0]))
        bottom, top = sorted((start[1], end[1]))
        # The sides of a shaded row are no lines between columns.
        is_line = stroke.value or right - left > top - bottom
        if is_line and min(right - left, top - bottom) <= 0.5 and max(right - left, top - bottom) >= _SHORTEST_RULE:
            yield Rule(left, bottom, right, top)
        points += (start, end)
    if points and not stroke.value:
        xs, ys = zip(*points, strict=True)
        box = Rule(min(xs), min(ys), max(xs), max(ys))
        width, height = box.right - box.left, box.top - box.bottom
        if min(width, height) <= _THIN <= max(width, height):
            yield box


def _straight_parts(shape: Any) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Yield start and end of each straight part of a path.

    In points of the page.
    """
    raw = _raw()
    matrix = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(shape, ctypes.byref(matrix))
    x, y = ctypes.c_float(), ctypes.c_float()
    before = origin = None
    for index in range(raw.FPDFPath_CountSegments(shape)):
        segment = raw.FPDFPath_GetPathSegment(shape, index)
        raw.FPDFPathSegment_GetPoint(segment, ctypes.byref(x), ctypes.byref(y))
        point = (
            matrix.a * x.value + matrix.c * y.value + matrix.e,
            matrix.b * x.value + matrix.d * y.value + matrix.f,
        )
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_MOVETO:
            origin = point
        elif kind == raw.FPDF_SEGMENT_LINETO and before is not None:
            yield before, point
        if origin is not None and raw.FPDFPathSegment_GetClose(segment):
            yield point, origin
        before = point


def _values(page: Any, forms: Any) -> Iterator[str]:
    """Yield `name: value` of form fields, and texts of annotations."""
    raw = _raw()
    remaining = _MAX_VALUE_CHARS
    for index in range(min(raw.FPDFPage_GetAnnotCount(page.raw), _MAX_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page.raw, index)
        if not annotation:
            continue
        try:
            value = _value(annotation, forms)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
        remaining -= len(value)
        if remaining < 0:
            return
        if value.strip():
            yield value


def _value(annotation: Any, forms: Any) -> str:
    raw = _raw()
    kind = raw.FPDFAnnot_GetSubtype(annotation)
    if kind == raw.FPDF_ANNOT_WIDGET:
        return _field(annotation, forms) if forms is not None else ""
    return "" if kind == raw.FPDF_ANNOT_POPUP else _wide(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")


def _field(annotation: Any, forms: Any) -> str:
    raw = _raw()
    kind = raw.FPDFAnnot_GetFormFieldType(forms, annotation)
    if kind in (raw.FPDF_FORMFIELD_PUSHBUTTON, raw.FPDF_FORMFIELD_SIGNATURE):
        return ""
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        if not raw.FPDFAnnot_IsChecked(forms, annotation):
            return ""
        value = _wide(raw.FPDFAnnot_GetFormFieldExportValue, forms, annotation) or "yes"
    else:
        value = _wide(raw.FPDFAnnot_GetFormFieldValue, forms, annotation)
    names = (raw.FPDFAnnot_GetFormFieldAlternateName, raw.FPDFAnnot_GetFormFieldName)
    name = next((text for read in names if (text := _wide(read, forms, annotation).strip())), "")
    return f"{name}: {value}" if name and value.strip() else value


def _wide(read: Any, *arguments: Any) -> str:
    """Return a text that PDFium writes into a buffer as UTF-16."""
    size = read(*arguments, None, 0)
    if not 2 < size <= _MAX_VALUE_BYTES:
        return ""
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    read(*arguments, buffer, size)
    return bytes(buffer)[: size - 2].decode("utf-16-le", "replace")


@cache
def _raw() -> Any:
    import pypdfium2

    return pypdfium2.raw
