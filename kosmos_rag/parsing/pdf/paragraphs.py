"""Paragraphs of a PDF in reading order.

Running lines are left out; footnotes and captions are between paragraphs.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.pdf.cells import LEADING
from kosmos_rag.parsing.pdf.graphics import NEAR
from kosmos_rag.parsing.pdf.lines import LARGER, Line
from kosmos_rag.parsing.pdf.page_lines import (
    APART,
    CAPTION,
    Metrics,
    PageLines,
    Paragraph,
    adapt_metrics,
    line_distance,
    measure,
)
from kosmos_rag.parsing.pdf.regions import PROSE_LETTERS
from kosmos_rag.parsing.pdf.running_lines import drop_running_lines
from kosmos_rag.parsing.pdf.table_pages import continue_tables
from kosmos_rag.parsing.pdf.text_layer import WORD_GAP

_SENTENCE_END = re.compile(r"[.!?:;\u3002\uff01\uff1f\u2026][\"'\u201d\u2019\u00bb)\]]*(?:\^\(?\w+\)?)?$")
_EDGE_POINTS = 8
"""Points by which lines of one column may differ at the left."""
_ITEM = re.compile(r"(?:[•▪◦‣*\u2013\u2014-]|\(?(?:(?P<number>\d{1,3})|[a-zA-Z]|[ivx]{1,4})[.)])\s")
_NUMBERED = re.compile(r"(?:\d{1,2}(?:\.\d{1,2}){0,4}\.?|[A-Z]\.|[IVX]{1,5}\.)\s+[^\W\d_]")


def build_paragraphs(pages: Sequence[PageLines], limits: OutputLimits) -> list[list[Paragraph]]:
    """Return the paragraphs of each page.

    Args:
        pages: their lines and tables.
        limits: of tables that are rendered again.
    """
    metrics = measure(pages)
    cleared = list(drop_running_lines(pages, metrics))
    continue_tables([page for page, _ in cleared], limits)
    result: list[list[Paragraph]] = []
    before: _PageEnd | None = None
    for page, asides in cleared:
        builder = _PageBuilder(page, adapt_metrics(page, metrics), before)
        result.append(builder.build(asides))
        before = builder.end
    return result


class _PageEnd(NamedTuple):
    """The last paragraph of a page, where it is of the text."""

    page: list[Paragraph]
    paragraph: Paragraph
    line: Line
    edge: float
    """Right edge of the column of the line."""

    def go_on(self) -> None:
        """Let the paragraph continue on the next page: the notes below it come before it."""
        self.paragraph.continues = True
        self.page.append(self.page.pop(next(at for at, each in enumerate(self.page) if each is self.paragraph)))


class _PageBuilder:
    """Builds the paragraphs of one page, after those of the page before."""

    def __init__(self, page: PageLines, metrics: Metrics, before: "_PageEnd | None") -> None:
        self._page = page
        self._metrics = metrics
        self._before = before
        self._edges: dict[int, float] = {}
        self._paragraphs: list[Paragraph] = []
        self._text: Paragraph | None = None
        """The last paragraph of the text."""
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
            if above is not None and above.region != item.region:
                self._interrupted, above = True, None
            if below is not None and below.region != item.region:
                below = None
            aside = self._is_aside(item, above, aside=aside) or self._is_head(item, above, below)
            if aside:
                self._add_aside(item, above)
            else:
                self._add(item, above if not self._interrupted else None, below)
                self._last, self._interrupted = item, False
            if aside:
                self._interrupted = True
            above = item
        heads, feet = self._split_asides(asides)
        self._pending += feet
        self._flush()
        at = int(self._joins_page_before)
        self._paragraphs[at:at] = heads
        return self._paragraphs

    def _split_asides(self, asides: Sequence[Line]) -> tuple[list[Paragraph], list[Paragraph]]:
        """Return those at the top and those at the bottom of the page."""
        middle = (self._page.top + self._page.bottom) / 2
        sides: tuple[list[Paragraph], list[Paragraph]] = [], []
        for line in asides:
            sides[line.baseline < middle].append(Paragraph(lines=[line], is_running=True))
        return sides

    @property
    def end(self) -> _PageEnd | None:
        """The end of the text of the page, before its footnotes.

        The result is None if it has none, or only the middle of a paragraph and notes.
        """
        if self._text is None or self._last is None or self._text.lines[-1:] != [self._last]:
            return None
        if self._joins_page_before and self._text is self._paragraphs[0] is not self._paragraphs[-1]:
            return None
        at = next(at for at, each in enumerate(self._paragraphs) if each is self._text)
        is_above_table = any(each.table is not None for each in self._paragraphs[at:])
        if is_above_table and _SENTENCE_END.search(self._last.text):
            return None
        return _PageEnd(self._paragraphs, self._text, self._last, self._right_edge(self._last))

    def _is_aside(self, line: Line, above: Line | None, *, aside: bool) -> bool:
        """Return whether a line belongs to a footnote, caption or figure."""
        if line.size <= self._metrics.size / LARGER:
            # A line of the text may begin with a word in smaller letters: code, an abbreviation in capitals.
            return aside or self._begins_block(line, above)
        if CAPTION.match(line.text) and self._begins_block(line, above):
            return True
        return aside and above is not None and above.style == line.style and not self._is_apart(above, line)

    def _is_head(self, line: Line, above: Line | None, below: Line | None) -> bool:
        """Return whether a line in the margin is above a column in which a paragraph continues."""
        return (
            above is None
            and below is not None
            and self._is_apart(line, below)
            and self._text is not None
            and self._carries_on(self._text.lines[-1], below, None)
            and not self._carries_on(self._text.lines[-1], line, below)
        )

    def _begins_block(self, line: Line, above: Line | None) -> bool:
        return above is None or self._is_apart(above, line)

    def _is_apart(self, above: Line, line: Line) -> bool:
        usual = self._metrics.distance
        most = usual * APART
        if self._metrics.is_larger(line):
            most = min(most, LEADING)
        return not -0.5 <= line_distance(above, line) <= most

    def _add_aside(self, line: Line, above: Line | None) -> None:
        last = self._pending[-1] if self._pending else None
        if last and last.verbatim is None and last.lines[-1] is above and not self._divides(above, line, None):
            last.lines.append(line)
        else:
            self._pending.append(Paragraph(lines=[line], space_above=self._space(above, line)))

    def _space(self, above: Line | None, line: Line) -> float:
        distance = line_distance(above, line) if above else -1.0
        return distance / self._metrics.distance if distance > 0 else math.inf

    def _add(self, line: Line, above: Line | None, below: Line | None) -> None:
        last = self._last
        self._jumped = not self._text or (last is not None and line_distance(last, line) < -0.5)
        if last is None or self._follows_display(last, line):
            divides = True
        elif above is None or line_distance(above, line) < -0.5:
            divides = not self._carries_on(last, line, below)
        else:
            divides = self._divides(last, line, below)
        if self._text and not divides:
            self._text.lines.append(line)
            return
        if not self._text and not divides and self._before:
            self._before.go_on()
            self._joins_page_before = True
        else:
            self._flush()
        self._text = Paragraph(lines=[line], space_above=self._space(above, line))
        self._paragraphs.append(self._text)

    def _follows_display(self, last: Line, line: Line) -> bool:
        """Return whether text in smaller letters, as code, is between two lines of a column.

        It does not only interrupt a sentence that fills the line above it.
        """
        lines = [each.lines[0] if each.lines else None for each in self._pending]
        return (
            not self._jumped
            and last.region == line.region
            and bool(lines)
            and not self._is_within_sentence(last, line)
            and all(
                each
                and each.region == line.region
                and line.baseline < each.baseline < last.baseline
                and not CAPTION.match(each.text)
                for each in lines
            )
        )

    def _is_within_sentence(self, last: Line, line: Line) -> bool:
        goes_on = line.text[:1].islower() and not _SENTENCE_END.search(last.text)
        return goes_on and not self._has_room(last, line)

    def _flush(self) -> None:
        self._paragraphs += self._pending
        self._pending = []

    def _divides(self, above: Line, line: Line, below: Line | None) -> bool:
        """Return whether two lines, one below the other, are of two paragraphs."""
        if above.divided:
            return False
        if above.is_banded or line.is_banded or above.heading != line.heading:
            return True
        if above.style != line.style and not self._same_text(above, line):
            return True
        if self._begins_note(above, line) or self._is_next_item(above, line):
            return True
        if self._is_apart(above, line):
            return not self._is_spaced(above, line)
        if _NUMBERED.match(line.text) and (line.bold or self._metrics.is_larger(line)):
            return True
        if self._begins_like(above, line, below):
            return True
        if not _SENTENCE_END.search(above.text):
            return False
        return self._is_indented(above, line, below) or self._is_cut_short(above, line)

    def _begins_note(self, above: Line, line: Line) -> bool:
        """Return whether a line begins with the raised mark of a footnote, not with an isotope."""
        mark = line.runs[0] if line.runs else None
        if mark is None or mark.size >= line.size or mark.baseline <= line.baseline or mark.text[0].isalpha():
            return False
        return line.size < self._metrics.size or _SENTENCE_END.search(above.text) is not None

    def _is_next_item(self, above: Line, line: Line) -> bool:
        """Return whether a line begins another item below the item of a list.

        A number that is not the next one, as that of a day, is so only below a sentence.
        """
        first = self._text.lines[0] if self._text and self._text.lines[-1] is above else above
        marks = _ITEM.match(first.text), _ITEM.match(line.text)
        if abs(line.left - first.left) >= NEAR or not (marks[0] and marks[1]):
            return False
        numbers = [int(number) for mark in marks if mark and (number := mark["number"])]
        return len(numbers) < 2 or numbers[1] == numbers[0] + 1 or bool(_SENTENCE_END.search(above.text))

    def _begins_like(self, above: Line, line: Line, below: Line | None) -> bool:
        """Return whether a line and the one above it are indented as first lines of paragraphs."""
        return (
            below is not None
            and self._text is not None
            and self._text.lines == [above]
            and abs(line.left - above.left) < NEAR
            and line.left - below.left >= WORD_GAP * line.size
            and not self._is_apart(line, below)
            and above.style == line.style == below.style
            and self._has_room(above, line)
        )

    def _is_spaced(self, above: Line, line: Line) -> bool:
        """Return whether a paragraph continues below a space that is wider than the usual one."""
        distance = line_distance(above, line)
        before = self._text.lines[-2:-1] if self._text else []
        is_even = any(abs(line_distance(other, above) - distance) < 0.05 * distance for other in before)
        begins_sentence = line.text[0].isupper() or not line.text[0].isalpha()
        is_sentence = not begins_sentence and not _SENTENCE_END.search(above.text)
        return (
            0 < distance < 2 * self._metrics.distance
            and (is_even or is_sentence)
            and len(above.text) >= PROSE_LETTERS
            and not self._has_room(above, line)
        )

    def _same_text(self, above: Line, line: Line) -> bool:
        """Return whether a change of style is within a sentence.

        For example a line that begins with a bold word.
        """
        if max(above.size, line.size) > 1.05 * max(self._metrics.size, min(above.size, line.size)):
            return False
        if line.text[:1].islower():
            return True
        if above.size == line.size and self._metrics.is_larger(line):
            return True
        return above.bold == line.bold and not _SENTENCE_END.search(above.text) and not self._has_room(above, line)

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
            after_table = any(each.verbatim is not None for each in self._pending)
            may_go_on = not after_table and not self._is_title_like(last) and not self._is_cut_short(last, line)
            return len(last.text) >= PROSE_LETTERS and (line.text[:1].islower() or may_go_on)
        if line.text[:1].islower():
            return True
        first_line = below is not None and line.left - below.left >= WORD_GAP * line.size
        return self._jumped and not first_line and self._is_full(last, line)

    def _is_title_like(self, last: Line) -> bool:
        return self._metrics.is_larger(last) or (last.bold and len(last.text) < 60)

    def _is_indented(self, above: Line, line: Line, below: Line | None) -> bool:
        indent = line.left - above.left
        if indent < WORD_GAP * line.size or _ITEM.match(above.text):
            return False
        return below is None or line_distance(line, below) < 0 or line.left - below.left > 0.5 * indent

    def _is_cut_short(self, above: Line, line: Line) -> bool:
        """Return whether a line ended before a word of the next one that had room."""
        return line.text[:1].isupper() and self._has_room(above, line)

    def _has_room(self, above: Line, line: Line) -> bool:
        """Return whether the first word of a line would fit behind the line above.

        The line above may be on the page before.
        """
        word = line.text.split(maxsplit=1)[0]
        advance = (line.right - line.left) / max(1, len(line.text))
        is_before = self._before is not None and above is self._before.line
        edge = self._before.edge if self._before and is_before else self._right_edge(above)
        return above.right + (len(word) + 2) * advance * 1.2 < edge

    def _is_full(self, last: Line, line: Line) -> bool:
        """Return whether the last two lines before a line reach their column's right edge."""
        text = self._text or (self._before.paragraph if self._before else None)
        return (
            text is not None
            and len(text.lines) > 1
            and not self._has_room(text.lines[-2], last)
            and not self._has_room(last, line)
        )

    def _right_edge(self, line: Line) -> float:
        """Return the right edge of the column of a line."""
        if not self._edges:
            for other in self._page.lines:
                key = round(other.left / _EDGE_POINTS)
                if other.right > self._edges.get(key, 0.0):
                    self._edges[key] = other.right
        key = round(line.left / _EDGE_POINTS)
        return max(line.right, *(self._edges.get(near, line.right) for near in (key - 1, key, key + 1)))
