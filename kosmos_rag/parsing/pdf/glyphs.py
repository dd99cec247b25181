"""Read letters that fonts of a PDF do not name: numbers of glyphs, letters under accents."""

import ctypes
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from kosmos_rag.parsing.pdf.graphics import Box, load_pdfium

CONTROLS = re.compile(r"[\x03-\x08\x0b\x0c\x0e-\x1f]")
"""Numbers of glyphs that no text has as characters."""
_ACCENTS = dict(
    zip(
        "\u0060\u00a8\u00b4\u00b8\u02c6\u02c7\u02da\u02dc",
        "\u0300\u0308\u0301\u0327\u0302\u030c\u030a\u0303",
        strict=True,
    )
)
"""Accents that TeX draws over or under a letter, and those that Unicode has for it."""
ACCENTS = re.compile(f"[{''.join(_ACCENTS)}]")
NO_CHARACTER = "\u200b"
"""Replaces what belongs to another character; it is not printed."""
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
    letters: dict[int, list[tuple[Box, int]]] = {}
    """Boxes and places of the letters, by their middles in points."""
    for at, character in enumerate(text):
        if character.isalpha() and character not in _ACCENTS:
            box = _read_box(layer, to_index(at))
            letters.setdefault(round((box.left + box.right) / 2), []).append((box, at))
    for at in [match.start() for match in ACCENTS.finditer(text)]:
        accent = _read_box(layer, to_index(at))
        middle = (accent.left + accent.right) / 2
        near = (each for x in range(round(middle) - 2, round(middle) + 3) for each in letters.get(x, ()))
        below = [
            place
            for box, place in near
            if box.left - 1 < middle < box.right + 1 and abs(accent.bottom - box.top) < box.height
        ]
        letter = min(below, key=lambda place: abs(place - at), default=None)
        if letter is None:
            continue
        base = _DOTLESS.get(characters[letter], characters[letter])
        composed = unicodedata.normalize("NFC", base + _ACCENTS[text[at]])
        if len(composed) == 1:
            characters[letter], characters[at] = composed, NO_CHARACTER
            for space in _spaces_around(text, at):
                characters[space] = NO_CHARACTER
    return "".join(characters)


def _spaces_around(text: str, at: int) -> Iterator[int]:
    """Yield the places of the spaces that PDFium sets around an accent within a word."""
    if text[at - 1 : at].isspace() and text[at + 1 : at + 2] == " ":
        yield from (at - 1, at + 1)


def _read_box(layer: Any, index: int) -> Box:
    """Return the area of the ink of a character."""
    raw = load_pdfium()
    sides = [ctypes.c_double() for _ in range(4)]
    raw.FPDFText_GetCharBox(layer, index, *sides)
    left, right, bottom, top = (side.value for side in sides)
    return Box(left, bottom, right, top)
