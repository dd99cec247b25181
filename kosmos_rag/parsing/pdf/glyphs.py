"""Read letters that fonts of a PDF do not name: numbers of glyphs, letters under accents."""

import ctypes
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kosmos_rag.parsing.pdf.graphics import Box, load_pdfium

CONTROLS = re.compile(r"[\x03-\x08\x0b\x0c\x0e-\x1f]")
"""Numbers of glyphs that no text has as characters."""
_ACCENTS = dict(
    zip(
        "\u0060\u00a8\u00b4\u00b8\u02c6\u02c7\u02da\u02dc\u02dd",
        "\u0300\u0308\u0301\u0327\u0302\u030c\u030a\u0303\u030b",
        strict=True,
    )
)
"""Accents that TeX draws over or under a letter, and those that Unicode has for it."""
ACCENTS = re.compile(f"[{''.join(_ACCENTS)}]")
TURNED_LIGATURES = re.compile("[\u0622\u0623\u0625\u0627\u0671]\u0644")
"""Alef before lam, which one glyph draws as lam before alef."""
NO_CHARACTER = "\u200b"
"""Replaces what belongs to another character; it is not printed."""
_CEDILLA = "\u00b8"
_DOTLESS = {"\u0131": "i", "\u0237": "j"}
_GLYPH_OF_SPACE = ord("\x03")
_DELETE = ord("\x7f")


def read_glyphs(layer: Any, count: int) -> str | None:
    """Return the letters of a text layer, one for each index; None without glyphs.

    Fonts for Windows and the Macintosh begin with space, glyph 3, and continue in the order of Mac Roman. A text has
    about as many spaces as it has of the most frequent letter.

    Args:
        layer: the raw text layer.
        count: of its characters.
    """
    raw = load_pdfium()
    codes = [raw.FPDFText_GetUnicode(layer, index) for index in range(count)]
    glyphs = [at for at in range(count) if raw.FPDFText_HasUnicodeMapError(layer, at) == 1]
    numbers = Counter(codes[at] for at in glyphs)
    if 2 * numbers[_GLYPH_OF_SPACE] <= max(numbers.values(), default=0):
        return None
    for at in glyphs:
        # Mac Roman has DEL, which is no glyph.
        code = codes[at] - _GLYPH_OF_SPACE + ord(" ")
        code += code >= _DELETE
        codes[at] = ord(bytes([code]).decode("mac_roman")) if ord(" ") <= code <= 0xFF else codes[at]
    return "".join(map(chr, codes))


def compose_accents(layer: Any, text: str, to_index: Callable[[int], int]) -> str:
    """Return a text whose accents are part of the letters that they are drawn on.

    Args:
        layer: the raw text layer, which has an accent before or after its letter, or elsewhere in the line.
        text: what PDFium reads, with the accents as characters of their own.
        to_index: returns the index in the layer of a character of the text.
    """
    characters = list(text)
    letters: dict[int, list[int]] = {}
    """Places of the letters, by their middles in points."""
    for at, character in enumerate(text):
        if character.isalpha() and character not in _ACCENTS:
            left, right = _read_advance(layer, to_index(at))
            letters.setdefault(round((left + right) / 2), []).append(at)
    for at in [match.start() for match in ACCENTS.finditer(text)]:
        middle = round(sum(_read_advance(layer, to_index(at))) / 2)
        near = [place for x in range(middle - 2, middle + 3) for place in _find_nearest(letters.get(x, ()), at)]
        bases = [place for place in near if _is_marked(layer, to_index(place), to_index(at), text[at])]
        letter = min(bases, key=lambda place: abs(place - at), default=None)
        if letter is None:
            continue
        base = _DOTLESS.get(characters[letter], characters[letter])
        composed = unicodedata.normalize("NFC", base + _ACCENTS[text[at]])
        if len(composed) == 1:
            characters[letter], characters[at] = composed, NO_CHARACTER
            for space in _spaces_around(text, at):
                characters[space] = NO_CHARACTER
    return "".join(characters)


def order_ligatures(layer: Any, text: str, to_index: Callable[[int], int]) -> str:
    """Return a text whose Arabic ligatures have their letters in order.

    PDFium turns the letters of a line round, also those that one glyph draws.

    Args:
        layer: the raw text layer.
        text: what PDFium reads.
        to_index: returns the index in the layer of a character of the text.
    """

    def read(pair: re.Match[str]) -> str:
        alef, lam = (_read_advance(layer, to_index(at)) for at in (pair.start(), pair.start() + 1))
        return pair[0][::-1] if alef == lam else pair[0]

    return TURNED_LIGATURES.sub(read, text)


def _find_nearest(column: Sequence[int], at: int) -> Sequence[int]:
    """Return the letters of a column before and after a place in the text.

    That of its line is one of them.
    """
    after = bisect_left(column, at)
    return column[max(0, after - 1) : after + 1]


def _is_marked(layer: Any, letter: int, accent: int, character: str) -> bool:
    """Return whether an accent is on a letter, not before or after it."""
    left, right = _read_advance(layer, letter)
    middle = sum(_read_advance(layer, accent)) / 2
    box, mark = _read_box(layer, letter), _read_box(layer, accent)
    distance = box.bottom - mark.top if character == _CEDILLA else mark.bottom - box.top
    return left < middle < right and abs(distance) < box.height


def _spaces_around(text: str, at: int) -> Iterator[int]:
    """Yield the places of the spaces that PDFium sets around an accent within a word."""
    if text[at - 1 : at].isspace() and text[at + 1 : at + 2] == " ":
        yield from (at - 1, at + 1)


def _read_advance(layer: Any, index: int) -> tuple[float, float]:
    """Return where the space of a character begins and ends."""
    raw = load_pdfium()
    loose = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(layer, index, loose)
    return loose.left, loose.right


def _read_box(layer: Any, index: int) -> Box:
    """Return the area of the ink of a character."""
    raw = load_pdfium()
    sides = [ctypes.c_double() for _ in range(4)]
    raw.FPDFText_GetCharBox(layer, index, *sides)
    left, right, bottom, top = (side.value for side in sides)
    return Box(left, bottom, right, top)
