"""Lines, tables and paragraphs of the pages of a PDF, and its typography."""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from kosmos_rag.parsing.pdf.cells import FoundTable
from kosmos_rag.parsing.pdf.graphics import Box
from kosmos_rag.parsing.pdf.lines import LARGER, Line
from kosmos_rag.parsing.tables.table import TableText

APART = 1.25
"""Usual distances of two lines that make them two paragraphs, or set a heading or a running line apart."""
CAPTION = re.compile(
    r"(?:fig(?:ure|\.)?|tab(?:le|\.)?|abb(?:ildung|\.)?|tabelle|chart|listing|algorithm|scheme|図|表)\s*[A-Z]?\d+",
    re.IGNORECASE,
)
_PUNCTUATION = ".,;:!?()[]\"'\u201c\u201d\u2018\u2019\u201e\u00ab\u00bb"


@dataclass(kw_only=True, slots=True)
class Paragraph:
    """Lines of one page that belong together."""

    lines: list[Line]
    continues: bool = False
    """The paragraph continues at the start of the next page that has text."""
    space_above: float = math.inf
    """Distance to the line above, in the usual distance of two lines; infinite at the top of a column."""
    verbatim: str | None = None
    """Text instead of that of the lines: of a table, of an annotation."""
    table: TableText | None = None
    found_table: FoundTable | None = None
    """The table before it is rendered."""
    box: Box | None = None
    """Area of a table."""
    is_running: bool = False
    """It is the header or footer of several pages."""

    @property
    def text(self) -> str:
        """The lines of the paragraph.

        A divided word is whole, in the first of its lines.
        """
        if self.verbatim is not None:
            return self.verbatim
        return join_lines(self.lines)

    def boxes(self) -> Iterator[tuple[int, int, Box]]:
        """Yield start, end and area of each line, or of the table."""
        if self.verbatim is not None:
            if self.box is not None:
                yield 0, len(self.verbatim), self.box
            return
        start = 0
        for line in self.lines:
            yield start, start + len(line.text), line.box
            start += len(line.text) + (not line.divided)


def join_lines(lines: Sequence[Line]) -> str:
    """Join lines, and divided words within them."""
    return "".join(line.text if line.divided else f"{line.text}\n" for line in lines).removesuffix("\n")


@dataclass(kw_only=True, slots=True)
class PageLines:
    """The lines and tables of a page in file order."""

    items: list[Line | Paragraph] = field(default_factory=list)
    top: float = 0.0
    bottom: float = 0.0

    @property
    def lines(self) -> list[Line]:
        """The lines that are in no table."""
        return [item for item in self.items if isinstance(item, Line)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """How most of the text is set."""

    size: float
    """Of most letters."""
    distance: float
    """Of two lines of a paragraph, in sizes of their letters."""

    def is_larger(self, line: Line) -> bool:
        """Return whether a line is in larger letters than the text, as a title is."""
        return line.size > self.size * LARGER


def find_body_style(lines: Iterable[Line]) -> tuple[float, bool] | None:
    """Return the style of most letters."""
    usual: Counter[tuple[float, bool]] = Counter()
    for line in lines:
        usual[line.style] += len(line.text)
    return usual.most_common(1)[0][0] if usual else None


def adapt_metrics(page: PageLines, metrics: Metrics) -> Metrics:
    """Return the metrics with the size of the page's own text.

    They stay as they are unless that size is distinct, as in an appendix.
    """
    sizes: Counter[float] = Counter()
    for line in page.lines:
        sizes[line.size] += len(line.text)
    if not sizes:
        return metrics
    size, characters = sizes.most_common(1)[0]
    return replace(metrics, size=size) if 2 * characters > sizes.total() else metrics


def measure(pages: Sequence[PageLines]) -> Metrics:
    """Return how most of the text of a document is set."""
    lines = [line for page in pages for line in page.lines]
    style = find_body_style([line for line in lines if not line.is_label] or lines)
    distances = sorted(
        (distance, min(len(above.text), len(below.text)))
        for page in pages
        for above, below in pairwise(page.lines)
        if above.size == below.size and 0.5 < (distance := line_distance(above, below)) < 4
    )
    # Paragraphs of two lines have as many gaps as lines: the lower quartile is within them still.
    ends = list(accumulate(letters for _, letters in distances))
    distance = distances[bisect_right(ends, ends[-1] / 4)][0] if ends else 1.2
    return Metrics(size=style[0] if style else 0.0, distance=distance)


def line_distance(above: Line, below: Line) -> float:
    """Return the distance of two lines, in sizes of the larger letters."""
    return (above.baseline - below.baseline) / max(above.size, below.size, 1.0)


def resolve_hyphens(pages: Sequence[PageLines]) -> None:
    """Restore hyphens of words that a line end divides.

    A word has its own hyphen before a capital or a digit, and if the document writes it with a hyphen elsewhere.
    """
    lines = [line for page in pages for line in page.lines]
    if not any(line.divided for line in lines):
        return
    words = {word.strip(_PUNCTUATION) for line in lines for word in line.text.split()}
    after: dict[int, Line] = {}
    following_of_size: dict[float, Line] = {}
    """The next line of each size, the nearest one last."""
    for line in reversed(lines):
        if line.divided:
            # A footnote may be between the two lines of a word, and lines of a scan differ a little in size.
            for size, next_line in reversed(following_of_size.items()):
                if line.size / LARGER <= size <= line.size * LARGER:
                    after[id(line)] = next_line
                    break
        following_of_size.pop(line.size, None)
        following_of_size[line.size] = line
    for page in pages:
        for index, item in enumerate(page.items):
            if isinstance(item, Line) and item.divided and (following := after.get(id(item))):
                first = item.text.split()[-1].lstrip(_PUNCTUATION) if item.text else ""
                second = following.text.split(maxsplit=1)[0].rstrip(_PUNCTUATION) if following.text else ""
                is_hyphenated = not second[:1].islower() or (
                    f"{first}-{second}" in words and first + second not in words
                )
                if is_hyphenated and second[:1].isascii():
                    page.items[index] = item._replace(text=f"{item.text}-")
