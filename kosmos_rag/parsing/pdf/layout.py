"""Paragraphs of a PDF in reading order.

Running lines are left out; footnotes and captions are between paragraphs.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from kosmos_rag.parsing.pdf.lines import Line
from kosmos_rag.parsing.pdf.page import Box
from kosmos_rag.parsing.tables.table import TableText

_PARAGRAPH_GAP = 1.25
"""How many times the usual distance of two lines makes them two paragraphs."""
_LARGER = 1.05
"""Times the size of the text that a title has at least."""
_TITLE_DISTANCE, _TITLE_GAP = 1.42, 1.1
"""Distance of two lines that makes them two titles, in sizes of their letters and in usual distances."""
_INDENT = 0.8
"""Sizes of the letters by which the first line of a paragraph is indented at least."""
_SMALLER = 0.93
"""Times the size of the text that footnotes and captions have at most."""
_MARGIN = 0.14
"""Share of the page's height at the top and the bottom where running lines are."""
_OUTER_LINES = 3
_DOMINANT = 0.7
"""Share of the letters of a page that are its text, whatever the size of most letters of the document."""
_DIGITS = re.compile(r"\d+")
_PAGE_NUMBER = re.compile(
    r"\W*(?:(?:page|seite|p\.|pag\.|página|pagina)\s*)?(?:\d{1,4}|[ivxlc]{1,7})"
    r"(?:\s*(?:/|of|von|de|di|sur|\|)\s*\d{1,4})?\W*",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?:;\u3002\uff01\uff1f\u2026][\"'\u201d\u2019\u00bb)\]]*(?:\^\(?\w+\)?)?$")
_CAPTION = re.compile(
    r"(?:fig(?:ure|\.)?|tab(?:le|\.)?|abb(?:ildung|\.)?|tabelle|chart|listing|algorithm|scheme|図|表)\s*[A-Z]?\d+",
    re.IGNORECASE,
)
_EDGE_POINTS = 8
"""Points by which lines of one column may differ at the left."""
_RAGGED = 3.0
"""Sizes of the letters by which a full line may miss the right edge."""
_LEAST_LINE = 15
"""Characters of a line that may continue in the next column or page."""
_PUNCTUATION = ".,;:!?()[]\"'\u201c\u201d\u2018\u2019\u201e\u00ab\u00bb"
_ITEM = re.compile(r"(?:[•▪◦‣*\u2013\u2014-]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})[.)])\s")
_NUMBERED = re.compile(r"(?:\d{1,2}(?:\.\d{1,2}){0,4}\.?|[A-Z]\.|[IVX]{1,5}\.)\s+[^\W\d_]")


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
    box: Box | None = None
    """Area of a table."""

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
class _Metrics:
    size: float
    """Of most letters."""
    distance: float
    """Of two lines of a paragraph, in sizes of their letters."""


def build_paragraphs(pages: Sequence[PageLines]) -> list[list[Paragraph]]:
    """Return the paragraphs of each page."""
    metrics = _measure(pages)
    cleared = _drop_running_lines(pages, metrics)
    result: list[list[Paragraph]] = []
    before: _PageEnd | None = None
    for page, asides in cleared:
        builder = _PageBuilder(page, _adapt_metrics(page, metrics), before)
        result.append(builder.build(asides))
        before = builder.end
    return result


def resolve_hyphens(pages: Sequence[PageLines]) -> None:
    """Restore hyphens of words that a line end divides.

    A word has its own hyphen before a capital or a digit, and if the document writes it with a hyphen elsewhere.
    """
    if not any(line.divided for page in pages for line in page.lines):
        return
    words = {word.strip(_PUNCTUATION) for page in pages for line in page.lines for word in line.text.split()}
    flows = [line for page in pages for line in page.lines]
    after = {id(line): following for line, following in pairwise(flows)}
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


def find_body_style(lines: Iterable[Line]) -> tuple[float, bool] | None:
    """Return the style of most letters."""
    usual: Counter[tuple[float, bool]] = Counter()
    for line in lines:
        usual[line.style] += len(line.text)
    return usual.most_common(1)[0][0] if usual else None


def _adapt_metrics(page: PageLines, metrics: _Metrics) -> _Metrics:
    """Return the metrics with the size of the page's own text.

    Only if that size is distinct, as in an appendix.
    """
    sizes: Counter[float] = Counter()
    for line in page.lines:
        sizes[line.size] += len(line.text)
    if not sizes:
        return metrics
    size, characters = sizes.most_common(1)[0]
    return replace(metrics, size=size) if characters > _DOMINANT * sizes.total() else metrics


def _measure(pages: Sequence[PageLines]) -> _Metrics:
    style = find_body_style(line for page in pages for line in page.lines)
    distances = sorted(
        distance
        for page in pages
        for above, below in pairwise(page.lines)
        if above.size == below.size and 0.5 < (distance := _distance(above, below)) < 4
    )
    # Paragraphs of two lines have as many gaps as lines: the lower quartile is within them still.
    distance = distances[len(distances) // 4] if distances else 1.2
    return _Metrics(size=style[0] if style else 0.0, distance=distance)


def _distance(above: Line, below: Line) -> float:
    """Return the distance of two lines, in sizes of the larger letters."""
    return (above.baseline - below.baseline) / max(above.size, below.size, 1.0)


def _drop_running_lines(pages: Sequence[PageLines], metrics: _Metrics) -> Iterator[tuple[PageLines, list[Line]]]:
    """Yield each page without page number and running lines.

    The second value has the running lines that first occur on the page.
    """
    outer = [_outer_lines(page, metrics) for page in pages]
    counts = Counter(key for lines in outer for key in {_running_key(line) for line in lines})
    numbered = sum(any(map(_is_page_number, lines)) for lines in outer)
    least = 2 if len(pages) <= 4 else 3
    known_keys: set[tuple[str, int]] = set()
    for page, lines in zip(pages, outer, strict=True):
        running, first = set(), []
        for line in lines:
            key = _running_key(line)
            if _is_page_number(line):
                if numbered >= 2:
                    running.add(line)
            elif counts[key] >= least:
                running.add(line)
                first += [line] if key not in known_keys else []
                known_keys.add(key)
        first.sort(key=lambda line: -line.baseline)
        items = [item for item in page.items if isinstance(item, Paragraph) or item not in running]
        yield (replace(page, items=items) if running else page), first


def _outer_lines(page: PageLines, metrics: _Metrics) -> list[Line]:
    """Return the first and last lines in the margins of a page.

    Only lines that are not larger than the text.
    """
    lines = sorted(page.lines, key=lambda line: line.baseline)
    margin = (page.top - page.bottom) * _MARGIN
    low = [line for line in lines[:_OUTER_LINES] if line.baseline < page.bottom + margin]
    high = [line for line in lines[-_OUTER_LINES:] if line.baseline > page.top - margin and line not in low]
    return [line for line in low + high if line.size <= metrics.size * _LARGER]


def _running_key(line: Line) -> tuple[str, int]:
    return _DIGITS.sub("0", line.text), round(line.baseline / 3)


def _is_page_number(line: Line) -> bool:
    return len(line.text) <= 20 and _PAGE_NUMBER.fullmatch(line.text) is not None


class _PageEnd(NamedTuple):
    """The last paragraph of a page, where it is of the text."""

    paragraph: Paragraph
    line: Line
    is_full: bool
    """The line reaches the right edge of its column."""


class _PageBuilder:
    """Builds the paragraphs of one page, after those of the page before."""

    def __init__(self, page: PageLines, metrics: _Metrics, before: "_PageEnd | None") -> None:
        self._page = page
        self._metrics = metrics
        self._before = before
        self._edges: dict[int, float] = {}
        self._paragraphs: list[Paragraph] = []
        self._pending: list[Paragraph] = []
        """What would cut the open paragraph."""
        self._last: Line | None = before.line if before else None
        """The last line of the text."""
        self._jumped = True
        """The line is in another column or page than the last one."""
        self._interrupted = True
        self._joins_page_before = False

    def build(self, asides: Sequence[Line]) -> list[Paragraph]:
        """Return the paragraphs; `asides` are lines that may go anywhere between them."""
        items = self._page.items
        aside = False
        above: Line | None = None
        for index, item in enumerate(items):
            if isinstance(item, Paragraph):
                self._pending.append(item)
                self._interrupted, above = True, None
                continue
            following = items[index + 1] if index + 1 < len(items) else None
            below = following if isinstance(following, Line) else None
            aside = self._is_aside(item, above, aside=aside)
            if aside:
                self._add_aside(item, above)
            else:
                self._add(item, above if not self._interrupted else None, below)
                self._last, self._interrupted = item, False
            if aside:
                self._interrupted = True
            above = item
        self._pending += [Paragraph(lines=[line]) for line in asides]
        self._end_page()
        return self._paragraphs

    @property
    def end(self) -> _PageEnd | None:
        """The end of the page.

        None if it has no text, or ends with a note.
        """
        if not self._paragraphs or self._last is None or self._paragraphs[-1].lines[-1:] != [self._last]:
            return None
        return _PageEnd(self._paragraphs[-1], self._last, self._is_full(self._paragraphs[-1].lines))

    def _is_aside(self, line: Line, above: Line | None, *, aside: bool) -> bool:
        """Return whether a line belongs to a footnote, caption or figure."""
        if line.size <= self._metrics.size * _SMALLER:
            # A line of the text may begin with a word in smaller letters: code, an abbreviation in capitals.
            return aside or self._begins_block(line, above)
        if _CAPTION.match(line.text) and self._begins_block(line, above):
            return True
        return aside and above is not None and above.style == line.style and not self._is_apart(above, line)

    def _begins_block(self, line: Line, above: Line | None) -> bool:
        return above is None or self._is_apart(above, line)

    def _is_apart(self, above: Line, line: Line) -> bool:
        usual = self._metrics.distance
        most = usual * _PARAGRAPH_GAP
        if line.size > self._metrics.size * _LARGER:
            most = min(most, max(_TITLE_DISTANCE, usual * _TITLE_GAP))
        return not -0.5 <= _distance(above, line) <= most

    def _add_aside(self, line: Line, above: Line | None) -> None:
        last = self._pending[-1] if self._pending else None
        if last and last.verbatim is None and last.lines[-1] is above and not self._divides(above, line, None):
            last.lines.append(line)
        else:
            self._pending.append(Paragraph(lines=[line], space_above=self._space(above, line)))

    def _space(self, above: Line | None, line: Line) -> float:
        distance = _distance(above, line) if above else -1.0
        return distance / self._metrics.distance if distance > 0 else math.inf

    def _add(self, line: Line, above: Line | None, below: Line | None) -> None:
        last = self._last
        self._jumped = not self._paragraphs or (last is not None and _distance(last, line) < -0.5)
        if last is None:
            divides = True
        elif above is None or _distance(above, line) < -0.5:
            divides = not self._carries_on(last, line, below)
        else:
            divides = self._divides(last, line, below)
        if self._paragraphs and not divides:
            self._paragraphs[-1].lines.append(line)
            return
        if not self._paragraphs and not divides and self._before:
            self._before.paragraph.continues = True
            self._joins_page_before = True
        else:
            self._flush()
        self._paragraphs.append(Paragraph(lines=[line], space_above=self._space(above, line)))

    def _flush(self) -> None:
        self._paragraphs += self._pending
        self._pending = []

    def _end_page(self) -> None:
        """Put pending blocks before the last paragraph.

        The paragraph may continue, if it began on this page.
        """
        end = self.end
        is_joined = len(self._paragraphs) == 1 and self._joins_page_before
        may_go_on = end is not None and not _SENTENCE_END.search(end.line.text) and not is_joined
        at = len(self._paragraphs) - 1 if may_go_on else len(self._paragraphs)
        self._paragraphs[at:at] = self._pending

    def _divides(self, above: Line, line: Line, below: Line | None) -> bool:
        """Return whether two lines, one below the other, are of two paragraphs."""
        if above.divided:
            return False
        if above.style != line.style and not self._same_text(above, line):
            return True
        if self._is_apart(above, line):
            return True
        if _NUMBERED.match(line.text) and (line.bold or line.size > self._metrics.size * _LARGER):
            return True
        if not _SENTENCE_END.search(above.text):
            return False
        return self._is_indented(above, line, below) or self._is_cut_short(above, line)

    def _same_text(self, above: Line, line: Line) -> bool:
        """Return whether a change of style is within a sentence.

        For example a line that begins with a bold word.
        """
        if max(above.size, line.size) > 1.05 * max(self._metrics.size, min(above.size, line.size)):
            return False
        if above.bold != line.bold:
            return line.text[:1].islower()
        return line.text[:1].islower() or not _SENTENCE_END.search(above.text)

    def _carries_on(self, last: Line, line: Line, below: Line | None) -> bool:
        """Return whether a line continues the last paragraph elsewhere.

        In the next column or on the next page.
        """
        if last.divided:
            return True
        if abs(last.size - line.size) > 0.05 * last.size or (last.bold != line.bold and not line.text[:1].islower()):
            return False
        if _ITEM.match(line.text) or _NUMBERED.match(line.text):
            return False
        if not _SENTENCE_END.search(last.text):
            return len(last.text) >= _LEAST_LINE and (line.text[:1].islower() or not self._is_title_like(last))
        if line.text[:1].islower():
            return True
        first_line = below is not None and line.left - below.left >= _INDENT * line.size
        return self._jumped and not first_line and self._last_is_full()

    def _last_is_full(self) -> bool:
        if self._paragraphs:
            return self._is_full(self._paragraphs[-1].lines)
        return self._before is not None and self._before.is_full

    def _is_title_like(self, last: Line) -> bool:
        return last.size > self._metrics.size * _LARGER or (last.bold and len(last.text) < 60)

    def _is_indented(self, above: Line, line: Line, below: Line | None) -> bool:
        indent = line.left - above.left
        if indent < _INDENT * line.size or _ITEM.match(above.text):
            return False
        return below is None or _distance(line, below) < 0 or line.left - below.left > 0.5 * indent

    def _is_cut_short(self, above: Line, line: Line) -> bool:
        """Return whether a line's first word would fit the line above."""
        if not line.text[:1].isupper():
            return False
        word = line.text.split(maxsplit=1)[0]
        advance = (line.right - line.left) / max(1, len(line.text))
        return above.right + (len(word) + 2) * advance * 1.2 < self._right_edge(above)

    def _is_full(self, lines: Sequence[Line]) -> bool:
        """Return whether the last two lines reach their column's right edge."""
        edge = self._right_edge(lines[-1])
        return len(lines) > 1 and all(line.right > edge - _RAGGED * line.size for line in lines[-2:])

    def _right_edge(self, line: Line) -> float:
        """Return the right edge of the column of a line."""
        if not self._edges:
            for other in self._page.lines:
                key = round(other.left / _EDGE_POINTS)
                if other.right > self._edges.get(key, 0.0):
                    self._edges[key] = other.right
        key = round(line.left / _EDGE_POINTS)
        return max(line.right, *(self._edges.get(near, line.right) for near in (key - 1, key, key + 1)))
