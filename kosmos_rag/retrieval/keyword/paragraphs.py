"""Split a text at blank lines into paragraphs."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, kw_only=True, slots=True)
class Paragraph:
    """Adjacent lines of a text without a blank line between them."""

    text: str
    source: str | None
    """Its file or document; None for a text passed by the caller."""
    line_start: int
    """Counts from 1."""
    line_end: int


def split_paragraphs(text: str, source: str | None = None) -> Iterator[Paragraph]:
    """Yield the paragraphs of a text, trimmed.

    A line of white space is blank; line ends may be those of any system.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for blank, run in groupby(enumerate(lines, start=1), key=lambda line: not line[1].strip()):
        if not blank:
            numbers, parts = zip(*run, strict=True)
            yield Paragraph(text="\n".join(parts).strip(), source=source, line_start=numbers[0], line_end=numbers[-1])
