"""A text as its paragraphs: what blank lines separate."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, kw_only=True, slots=True)
class Paragraph:
    """Lines of a text without a blank one between them, as one piece."""

    text: str
    source: str | None
    """The file or document that it stands in; None for a text that was given as it is."""
    line_start: int
    """Counts from 1."""
    line_end: int


def split_paragraphs(text: str, source: str | None = None) -> Iterator[Paragraph]:
    """Find the paragraphs of a text, trimmed.

    A line of white space alone is blank; line ends may be of any system.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for blank, run in groupby(enumerate(lines, start=1), key=lambda line: not line[1].strip()):
        if not blank:
            numbers, parts = zip(*run, strict=True)
            yield Paragraph(text="\n".join(parts).strip(), source=source, line_start=numbers[0], line_end=numbers[-1])
