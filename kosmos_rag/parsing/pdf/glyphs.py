"""Read letters by the numbers of glyphs where the fonts of a PDF have no Unicode."""

import re
from collections import Counter
from typing import Any

from kosmos_rag.parsing.pdf.graphics import load_pdfium

CONTROLS = re.compile(r"[\x03-\x08\x0b\x0c\x0e-\x1f]")
"""Numbers of glyphs that no text has as characters."""
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
