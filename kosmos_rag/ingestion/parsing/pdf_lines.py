"""Lines of a PDF page with where they stand and what they are set in: what tells paragraphs and headings."""

import ctypes
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_PARAGRAPH_GAP = 1.25
"""How many times the usual distance of two lines makes them two paragraphs."""
_LARGER = 1.1
"""How many times the size of the text a heading has at least."""
_MAX_HEADING_CHARS = 100
_MAX_LEVEL = 6
_NAME_BYTES = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line of the text layer."""

    text: str
    size: float
    """Of its first character, in points."""
    bold: bool
    bottom: float
    """Of its first character, in points from the bottom of the page."""


def read_lines(layer: Any) -> list[Line]:
    """Return the non-blank lines of a page's text layer, in order."""
    return list(_lines(layer, layer.get_text_range()))


def _lines(layer: Any, text: str) -> Iterator[Line]:
    import pypdfium2

    count = layer.count_chars()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    start = 0
    for line in text.split("\r\n"):
        first = start + len(line) - len(line.lstrip())
        start += len(line) + 2
        if not line.strip() or first >= count:
            continue
        length = pypdfium2.raw.FPDFText_GetFontInfo(layer, first, name, _NAME_BYTES, None)
        yield Line(
            text=line,
            size=round(pypdfium2.raw.FPDFText_GetFontSize(layer, first), 1),
            bold=b"bold" in name.raw[:length].lower(),
            bottom=layer.get_charbox(first, loose=True)[1],
        )


def texts(pages: Sequence[Sequence[Line]]) -> list[str]:
    """Return the text of each page, with blank lines between paragraphs.

    Paragraphs are separated by a larger line distance.
    """
    distances = sorted(distance for lines in pages for distance in _distances(lines) if distance > 0)
    # Paragraphs of two lines have as many gaps as lines: the lower quartile is within them still.
    line_distance = distances[len(distances) // 4] if distances else 0.0
    return ["".join(_join_lines(lines, line_distance * _PARAGRAPH_GAP)) for lines in pages]


def _distances(lines: Sequence[Line]) -> list[float]:
    """Return the distance of each line to the previous one.

    In sizes of the larger letters.
    """
    return [(above.bottom - below.bottom) / max(above.size, below.size, 1.0) for above, below in pairwise(lines)]


def _join_lines(lines: Sequence[Line], gap: float) -> Iterator[str]:
    for line, distance in zip(lines, [0.0, *_distances(lines)], strict=False):
        if line is not lines[0]:
            yield "\n\n" if distance > gap else "\n"
        yield line.text


def titles(pages: Sequence[Sequence[Line]]) -> list[tuple[int, str, int]]:
    """Return level, title and page of lines set as headings.

    Larger than the text, or bold where the text is not.

    Neighbouring lines in the same letters are one title. The larger the letters, the higher the level.
    """
    usual: Counter[tuple[float, bool]] = Counter()
    for line in (line for lines in pages for line in lines):
        usual[line.size, line.bold] += len(line.text)
    if not usual:
        return []
    size, bold = usual.most_common(1)[0][0]

    def is_heading(line: Line) -> bool:
        return line.size >= size * _LARGER or (line.bold and not bold and line.size >= size)

    candidates: list[tuple[tuple[float, bool], str, int]] = []
    for page, lines in enumerate(pages):
        before: Line | None = None
        for line in lines:
            style = (line.size, line.bold)
            if is_heading(line):
                text = line.text.strip()
                if before is not None and is_heading(before) and (before.size, before.bold) == style:
                    text = f"{candidates.pop()[1]} {text}"
                candidates.append((style, text, page))
            before = line
    short = [entry for entry in candidates if len(entry[1]) <= _MAX_HEADING_CHARS and any(map(str.isalpha, entry[1]))]
    levels = {style: level for level, style in enumerate(sorted({entry[0] for entry in short}, reverse=True), start=1)}
    return [(min(levels[style], _MAX_LEVEL), text, page) for style, text, page in short]
