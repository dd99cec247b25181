"""Headings of a PDF without an outline.

They are found by size, weight, numbering and position.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from kosmos_rag.parsing.pdf.layout import Paragraph, find_body_style

_LARGER = 1.1
"""How many times the size of the text a heading has at least."""
_MAX_CHARS = 100
_MAX_NUMBERED_CHARS = 80
_MAX_LINES = 4
_MAX_LEVEL = 6
_APART = 1.25
"""Usual distances of two lines above a numbered heading in the letters of the text."""
_NUMBER = re.compile(r"((?:\d{1,2}(?:\.\d{1,2}){0,4}|[A-Z](?:\.\d{1,2})+))\.?\s+(?=[^\W\d_])")
_MONTH = r"(?:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)\w*\.?"
_DATE = re.compile(
    rf"\W*(?:\w+day,?\s+)?(?:\d{{1,4}}[-./]\d{{1,2}}[-./]\d{{1,4}}|(?:\d{{1,2}}\.?\s+(?:of\s+)?)?{_MONTH}"
    rf"(?:\s+\d{{1,2}}(?:st|nd|rd|th)?,?)?\s+\d{{2,4}}|{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?)\W*",
    re.IGNORECASE,
)
_SENTENCE_END = (".", ",", ";", "。", "、")


class FoundHeading(NamedTuple):
    """A paragraph that is a heading."""

    paragraph: Paragraph
    title: str
    level: int


def find_headings(pages: Sequence[Sequence[Paragraph]]) -> list[FoundHeading]:
    """Return the headings, in order.

    Paragraphs in larger letters, in bold ones where the text is not, and numbered ones with space around
    them. The larger the letters, the higher the level; the deeper the number, the lower.
    """
    flow = [paragraph for page in pages for paragraph in page if paragraph.lines]
    usual = find_body_style(line for paragraph in flow if paragraph.verbatim is None for line in paragraph.lines)
    if usual is None:
        return []
    candidates = list(_candidates(flow, *usual))
    styles = sorted({paragraph.lines[0].style for paragraph, _ in candidates}, reverse=True)
    depths = {style: min(_depth(title) for p, title in candidates if p.lines[0].style == style) for style in styles}
    return [
        FoundHeading(
            paragraph,
            title,
            min(styles.index(style := paragraph.lines[0].style) + 1 + _depth(title) - depths[style], _MAX_LEVEL),
        )
        for paragraph, title in candidates
    ]


def _candidates(flow: Sequence[Paragraph], size: float, bold: bool) -> Iterator[tuple[Paragraph, str]]:
    for paragraph, following in pairwise([*flow, None]):
        if paragraph is None or paragraph.verbatim is not None or len(paragraph.lines) > _MAX_LINES:
            continue
        title = " ".join(paragraph.text.split())
        if not _may_be_title(title):
            continue
        line = paragraph.lines[0]
        larger = line.size >= size * _LARGER
        heavier = not bold and line.size >= 0.98 * size and all(part.bold for part in paragraph.lines)
        if larger or heavier or (line.size >= 0.98 * size and _is_numbered(paragraph, title, following)):
            yield paragraph, title


def _may_be_title(title: str) -> bool:
    return (
        len(title) <= _MAX_CHARS
        and any(map(str.isalpha, title))
        and not title.endswith(_SENTENCE_END)
        and not _DATE.fullmatch(title)
    )


def _is_numbered(paragraph: Paragraph, title: str, following: Paragraph | None) -> bool:
    """Return whether a paragraph is a numbered heading.

    It has the letters of the text and is above a longer paragraph.
    """
    number = _NUMBER.match(title)
    return (
        number is not None
        and title[number.end()].isupper()
        and len(paragraph.lines) == 1
        and len(title) <= _MAX_NUMBERED_CHARS
        and paragraph.space_above > _APART
        and following is not None
        and following.verbatim is None
        and len(following.text) > len(title)
        and not _NUMBER.match(following.text)
    )


def _depth(title: str) -> int:
    number = _NUMBER.match(title)
    return number[1].count(".") if number else 0
