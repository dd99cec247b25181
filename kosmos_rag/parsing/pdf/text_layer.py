"""Read the text layer of a PDF page with PDFium.

Lines of runs of characters with their positions.
"""

import ctypes
import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.pdf.faces import Face, Faces
from kosmos_rag.parsing.pdf.glyphs import (
    ACCENTS,
    CONTROLS,
    NO_CHARACTER,
    TURNED_LIGATURES,
    compose_accents,
    order_ligatures,
    read_glyphs,
)
from kosmos_rag.parsing.pdf.graphics import Box, Rules, load_pdfium, unite

_LINE_PIECES = re.compile(r"[^\ufffe\x02\r\n]+[\ufffe\x02]?")
"""PDFium writes U+FFFE or U+0002 for the hyphen of a divided word, and continues with the next line of the page."""
_WIDE_ADVANCE = 0.61
"""Sizes of the letters that a character takes on average where cells of a table share a text object."""
RAISED = 0.22
"""Sizes of the letters from the baseline to a superscript, and of its height at least."""
_MOST_SCRIPTED = 3
"""Characters that may be a letter with superscripts and subscripts as high as a line of vertical text."""
_IDEOGRAPHS = "\u2e80"
_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
COLUMN_GAP = 0.4
"""Sizes of the letters between two characters, or text objects, that may belong to different cells."""
WORD_GAP = 0.7
"""Sizes of the letters between two words of one line at most."""
SEAM = 0.33
"""Sizes of the letters between two text objects of a line of cells that are two cells."""
_STOPS = ".:!?"
_LEADERS = "._\u2026\u00b7"
_LETTERS_OF_CODES = dict(
    zip(
        "\x0b\x0c\x0e\x0f\x1b\x1c\x1d\x1e\x1f\x15\x16\x88",
        "\ufb00\ufb01\ufb03\ufb04\ufb00\ufb01\ufb02\ufb03\ufb04\u2013\u2014\u2022",
        strict=True,
    )
)
"""Characters of TeX fonts without Unicode, by their codes in the encodings OT1, T1 and TS1."""
_CODES = re.compile(f"[{re.escape(''.join(_LETTERS_OF_CODES))}]")
_BULLET = "\x88"

MIDDLE = 0.3
"""Sizes of the letters from the baseline to the middle of a line."""
UPWARD, DOWNWARD = 1, 3
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
    start: int | None = None
    """Index of its first character in the text layer; None where its characters are not consecutive."""


class _Style(NamedTuple):
    size: float
    bold: bool
    named_bold: bool
    """Bold by the name of its face."""
    baseline: float
    turn: int


class LayerReader:
    """Reads the lines of a text layer with few calls of PDFium.

    A call costs more than it computes.
    """

    def __init__(self, layer: Any, rules: Rules, faces: Faces) -> None:
        """Begin; ruled lines across a line of text divide what is on their two sides.

        Args:
            layer: the text layer.
            rules: the ruled lines.
            faces: those of the document.
        """
        self._raw = load_pdfium()
        self._layer = layer.raw
        self._text = self._read_units(layer.count_chars())
        self._walls = rules.vertical, rules.horizontal
        self._seams: list[float] = []
        self._name = ctypes.create_string_buffer(bounds.MAX_FONT_NAME_BYTES)
        self._numbers = (ctypes.c_double * 4)()
        size = ctypes.sizeof(ctypes.c_double)
        self._pointers = [
            ctypes.cast(ctypes.byref(self._numbers, at * size), ctypes.POINTER(ctypes.c_double)) for at in range(4)
        ]
        self._faces = faces
        self._turned_at: tuple[int, int] | None = None
        """Index in its words and in the layer of the first character of a line that runs in another direction."""
        self._matrix = self._raw.FS_MATRIX()
        self._loose = self._raw.FS_RECTF()
        letters = read_glyphs(self._layer, layer.count_chars()) if CONTROLS.search(self._text) else None
        self._has_glyphs = letters is not None
        """The text has the letters of glyphs, at their own indexes."""
        self._text = letters or self._text
        if ACCENTS.search(self._text):
            self._text = compose_accents(self._layer, self._text, self._to_index)
        if TURNED_LIGATURES.search(self._text):
            self._text = order_ligatures(self._layer, self._text, self._to_index)
        self._text = _CODES.sub(self._read_code, self._text)

    def read(self) -> list[tuple[int, list[Run]]]:
        """Return direction and runs of each line."""
        lines = list(self._read_lines())
        if self._faces.has_heavy_text:
            return [(style.turn, [run._replace(bold=style.named_bold) for run in runs]) for style, runs in lines]
        return [(style.turn, runs) for style, runs in lines]

    def _read_lines(self) -> Iterator[tuple[_Style, list[Run]]]:
        count = self._raw.FPDFText_CountChars(self._layer)
        for piece in _LINE_PIECES.finditer(self._text):
            text = piece[0].rstrip("\ufffe\x02")
            words = text.strip()
            if not words:
                continue
            start = piece.start() + len(text) - len(text.lstrip())
            first = self._to_index(start)
            while words and 0 <= first < count:
                style, runs = self._read_line(first, words, divided=len(text) < len(piece[0]))
                if runs:
                    yield style, runs
                at, first = self._take_turned() or (len(words), first)
                words = words[at:]

    def _read_units(self, count: int) -> str:
        """Return the text, a character for each index of the layer that has one.

        A character outside the first plane has two indexes, of which a file may have one alone.
        """
        units = (ctypes.c_ushort * (count + 1))()
        length = max(0, self._raw.FPDFText_GetText(self._layer, 0, count, units) - 1)
        content = bytes(units)[: 2 * length]
        text = content.decode("utf-16-le", "surrogatepass")
        return text if len(text) == length else "".join(map(chr, units[:length]))

    def _to_index(self, at: int) -> int:
        """Return the index in the layer of a character of the text."""
        if self._has_glyphs:
            return at
        index: int = self._raw.FPDFText_GetCharIndexFromTextIndex(self._layer, at)
        return index

    def _read_code(self, code: re.Match[str]) -> str:
        """Return the letters of a code of a bitmap font, which has no name.

        Fonts of symbols, which have names, have other characters at these codes.
        """
        index = self._to_index(code.start())
        is_letter = code[0] == _BULLET or not self._face(index).name
        return _LETTERS_OF_CODES[code[0]] if is_letter else code[0]

    def _take_turned(self) -> tuple[int, int] | None:
        """Return where the last line begins to run in another direction, once."""
        turned_at, self._turned_at = self._turned_at, None
        return turned_at

    def _read_line(self, first: int, words: str, *, divided: bool) -> tuple[_Style, list[Run]]:
        style = self._style(first, len(words))
        boxes = list(self._boxes(first, len(words), style.turn))
        if not boxes:
            return style, []
        if style.turn == 0 and _is_vertical(boxes, words, style.size):
            style = style._replace(turn=DOWNWARD, baseline=boxes[0].left)
            boxes = [turn_box(unite(boxes), DOWNWARD)]
        elif not self._is_simple(boxes, words, style):
            self._seams = list(_find_seams(boxes, style.size))
            runs = list(self._runs(first, words, style))
            if runs:
                runs[-1] = runs[-1]._replace(divided=divided and self._turned_at is None)
            return style, runs
        left, _, right, _ = boxes[0] if len(boxes) == 1 else unite(boxes)
        run = Run(_join_surrogates(words), left, right, style.baseline, style.size, style.bold, divided)
        return style, [run if style.turn else run._replace(start=first)]

    def split_words(self, run: Run) -> list[Run]:
        """Return the words of a horizontal run with their positions; nothing if they cannot be read."""
        if run.start is None:
            return []
        words: list[Run] = []
        loose, index = self._loose, run.start
        for word in run.text.split():
            while chr(self._raw.FPDFText_GetUnicode(self._layer, index)).isspace():
                index += 1
            self._raw.FPDFText_GetLooseCharBox(self._layer, index, loose)
            left = loose.left
            for character in word:
                if ord(character) != self._raw.FPDFText_GetUnicode(self._layer, index):
                    return []
                index += 1
            self._raw.FPDFText_GetLooseCharBox(self._layer, index - 1, loose)
            words.append(run._replace(text=word, left=left, right=loose.right, start=None))
        return words

    def _style(self, index: int, count: int) -> _Style:
        size, turn = self._size(index)
        # A line that only begins in bold letters is not bold.
        first, last = self._face(index), self._face(index + count - 1)
        self._faces.add(first, count)
        bold, named_bold = (
            self._faces.is_bold(first, by_name=by_name) and self._faces.is_bold(last, by_name=by_name)
            for by_name in (False, True)
        )
        return _Style(size, bold, named_bold, self._baseline(index, turn), turn)

    def _baseline(self, index: int, turn: int) -> float:
        self._raw.FPDFText_GetCharOrigin(self._layer, index, self._pointers[0], self._pointers[1])
        x, y = self._numbers[0], self._numbers[1]
        return turn_box(Box(x, y, x, y), turn).bottom if turn else y

    def _face(self, index: int) -> Face:
        self._raw.FPDFText_GetFontInfo(self._layer, index, self._name, bounds.MAX_FONT_NAME_BYTES, None)
        return Face(self._name.value, self._raw.FPDFText_GetFontWeight(self._layer, index))

    def _size(self, index: int) -> tuple[float, int]:
        """Return the size of a character on the page, and its direction."""
        size = self._raw.FPDFText_GetFontSize(self._layer, index)
        if not self._raw.FPDFText_GetMatrix(self._layer, index, self._matrix):
            return round(size, 1), 0
        matrix = self._matrix
        a, b, c, d = matrix.a, matrix.b, matrix.c, matrix.d
        if size < 0:
            # Letters of a negative size are upright where the matrix turns them back.
            size, a, b, c, d = -size, -a, -b, -c, -d
        scaled = round(size * (d if c == 0.0 and d > 0.0 else math.hypot(c, d)), 1) or round(size, 1)
        if b != 0.0 and abs(b) > abs(a):
            return scaled, UPWARD if b > 0 else DOWNWARD
        return scaled, 2 if a < 0 else 0

    def _boxes(self, first: int, count: int, turn: int) -> Iterator[Box]:
        """Yield the box of each text object among some characters."""
        layer, numbers, read_box = self._layer, self._numbers, self._raw.FPDFText_GetRect
        at_left, at_top, at_right, at_bottom = self._pointers
        for index in range(self._raw.FPDFText_CountRects(layer, first, count)):
            read_box(layer, index, at_left, at_top, at_right, at_bottom)
            left, top, right, bottom = numbers
            box = Box(left, bottom, right, top)
            yield turn_box(box, turn) if turn else box

    def _is_simple(self, boxes: list[Box], words: str, style: _Style) -> bool:
        """Return whether a line has no cells and no superscripts.

        The boxes of its text objects show it.
        """
        if _RIGHT_TO_LEFT.search(words):
            return True
        size = max(style.size, 1.0)
        box = boxes[0] if len(boxes) == 1 else unite(boxes)
        walls = self._walls[style.turn % 2]
        if walls and any(
            map(box.overlaps, walls if not style.turn else (turn_box(wall, style.turn) for wall in walls))
        ):
            return False
        if words[0] < _IDEOGRAPHS and box.right - box.left > _WIDE_ADVANCE * size * len(words):
            return False
        if len(boxes) == 1:
            return True
        baseline = style.baseline
        raised, high = baseline + RAISED * size, RAISED * size
        below, low, lowest = baseline - 0.05 * size, baseline + 0.4 * size, baseline + 0.15 * size
        right = boxes[0].left
        for left, bottom, end, top in boxes:
            if left - right > COLUMN_GAP * size or (bottom > raised and top - bottom > high):
                return False
            # A comma is lowered too, and lower.
            if bottom < below and top < low and (lowest < top or top - bottom > high):
                return False
            right = end
        return True

    def _runs(self, first: int, words: str, style: _Style) -> Iterator[Run]:
        """Yield the runs of a line: adjacent characters of one size.

        The box of a character shows with one call whether its size or its baseline differs from those of the last one.
        """
        loose, indexes, turn = self._loose, self._indexes(first, len(words)), style.turn
        layer, read_box = self._layer, self._raw.FPDFText_GetLooseCharBox
        all_walls = [turn_box(wall, turn) if turn else wall for wall in self._walls[turn % 2]]
        walls: list[tuple[float, float]] = []
        """Left and right of those at the height of the character."""
        letters: list[str] = []
        left = right = bottom = top = 0.0
        start = first
        size, baseline = own_size, own_baseline = style.size, style.baseline
        for at, (index, character) in enumerate(zip(indexes, words, strict=True)):
            if character.isspace() or character == NO_CHARACTER:
                if letters and letters[-1] != " " and character != NO_CHARACTER:
                    letters.append(" ")
                continue
            read_box(layer, index, loose)
            box = Box(loose.left, loose.bottom, loose.right, loose.top)
            if turn:
                box = turn_box(box, turn)
            box_left, box_bottom, box_right, box_top = box
            if box_bottom != bottom or box_top != top:
                bottom, top = box_bottom, box_top
                own_size, own_turn = self._size(index)
                if own_turn != turn:
                    self._turned_at = at, index
                    break
                own_baseline = self._baseline(index, turn)
                walls = [(wall.left, wall.right) for wall in all_walls if bottom < wall.top and wall.bottom < top]
            if letters and (
                own_size != size
                or abs(own_baseline - baseline) > 0.05 * style.size
                or self._are_apart(right, _last_letter(letters), box_left, character, style.size, walls)
            ):
                text = _join_surrogates("".join(letters))
                yield Run(text, left, right, baseline, size, style.bold, start=None if style.turn else start)
                letters = []
            if not letters:
                left, size, baseline, start = box_left, own_size, own_baseline, index
            letters.append(character)
            right = box_right
        if "".join(letters).strip():
            text = _join_surrogates("".join(letters)).rstrip()
            yield Run(text, left, right, baseline, size, style.bold, start=None if style.turn else start)

    def _indexes(self, first: int, count: int) -> Sequence[int]:
        """Return the indexes of consecutive characters of the text, which the layer may have more of."""
        start = first if self._has_glyphs else self._raw.FPDFText_GetTextIndexFromCharIndex(self._layer, first)
        if self._to_index(start + count - 1) == first + count - 1:
            return range(first, first + count)
        return [self._to_index(start + at) for at in range(count)]

    def _are_apart(
        self, right: float, before: str, left: float, character: str, size: float, walls: list[tuple[float, float]]
    ) -> bool:
        """Return whether two characters, one after the other, belong to different cells.

        Args:
            right: end of the first character.
            before: the first character.
            left: start of the second one.
            character: the second one.
            size: of the letters of the line.
            walls: left and right of the ruled lines at its height.
        """
        gap = left - right
        # The space after a sentence or colon is wider.
        if gap > (WORD_GAP if before in _STOPS else COLUMN_GAP) * size:
            return character not in _LEADERS or before != character
        if gap < -size:
            return True
        for seam in self._seams:
            if right - 1.0 <= seam <= left + 1.0:
                return True
        start, end = (left, right) if left < right else (right, left)
        return any(start - 1.0 < wall_right and wall_left < end + 1.0 for wall_left, wall_right in walls)


def _last_letter(letters: Sequence[str]) -> str:
    """Return the last character that is no space."""
    return letters[-2] if letters[-1] == " " and len(letters) > 1 else letters[-1]


def _find_seams(boxes: Sequence[Box], size: float) -> Iterator[float]:
    """Yield the middle of each gap between text objects that is wider than one between words."""
    for before, after in pairwise(boxes):
        if after.left - before.right > SEAM * size:
            yield (before.right + after.left) / 2


def _join_surrogates(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")


def _is_vertical(boxes: list[Box], words: str, size: float) -> bool:
    """Return whether characters are below each other, as in vertical Japanese."""
    box = unite(boxes)
    if len(words) < 2 or box.height <= 0.8 * size * (len(words) - 1) or box.width >= 2 * size:
        return False
    # A letter and its superscript (`m2`) are as high, and are next to each other.
    return len(words) > _MOST_SCRIPTED or max(each.left for each in boxes) < min(each.right for each in boxes)


def turn_box(box: Box, turn: int) -> Box:
    """Return a rectangle in the coordinates of text in a direction."""
    if turn == DOWNWARD:
        return Box(-box.top, box.left, -box.bottom, box.right)
    if turn == UPWARD:
        return Box(box.bottom, -box.right, box.top, -box.left)
    return Box(-box.right, -box.top, -box.left, -box.bottom) if turn else box


def turn_back(x: float, y: float, turn: int) -> tuple[float, float]:
    """Return a point of turned text in the coordinates of the page.

    Args:
        x: its distance along the direction of the text.
        y: its distance across it.
        turn: direction of the text.
    """
    if turn == DOWNWARD:
        return y, -x
    if turn == UPWARD:
        return -y, x
    return (-x, -y) if turn else (x, y)
