"""Find headers, footers and page numbers: lines at the edges of many pages."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kosmos_rag.parsing.pdf.lines import Line
from kosmos_rag.parsing.pdf.page_lines import APART, Metrics, PageLines, Paragraph, line_distance

_MARGIN = 0.14
"""Share of the page's height at the top and the bottom where running lines are."""
_DIGITS = re.compile(r"\d+")
_PAGE_NUMBER = re.compile(
    r"\W*(?:(?:page|seite|p\.|pag\.|página|pagina)\s*)?(?:\d{1,4}|[ivxlc]{1,7})"
    r"(?:\s*(?:/|of|von|de|di|sur|\|)\s*\d{1,4})?\W*",
    re.IGNORECASE,
)
_NUMBER_FIRST = re.compile(r"\W*(\d{1,4})\b")
_NUMBER_LAST = re.compile(r"\b(\d{1,4})\W*$")


def drop_running_lines(pages: Sequence[PageLines], metrics: Metrics) -> Iterator[tuple[PageLines, list[Line]]]:
    """Yield each page without page number and running lines.

    The second value has the running lines that first occur on the page.
    """
    outer = [_outer_lines(page, metrics) for page in pages]
    counts = Counter(key for lines in outer for key in {_key(line) for line in lines})
    with_number = sum(any(map(_is_page_number, lines)) for lines in outer)
    offsets = Counter(
        offset
        for index, lines in enumerate(outer)
        for offset in {offset for line in lines for offset in _page_offsets(line, index)}
    )
    least = 2 if len(pages) <= 4 else 3
    on_sides = Counter((index % 2, key) for index, lines in enumerate(outer) for key in set(map(_side_key, lines)))

    def is_of_side(index: int, line: Line) -> bool:
        """Return whether a line is on at least half of the left or right pages."""
        count = on_sides[index % 2, _side_key(line)]
        return count > 1 and 2 * count >= len(pages[index % 2 :: 2])

    on_pages = Counter(key for lines in outer for key in set(map(_side_key, lines)))
    known_keys: set[str] = set()
    titles: set[tuple[str, int]] = set()
    for index, (page, lines) in enumerate(zip(pages, outer, strict=True)):
        running, first = set(), []
        for line in lines:
            if metrics.is_larger(line):
                # The title of a document is a heading on the first page that has it, and a text on the others.
                if on_pages[_side_key(line)] > max(2, len(pages) / 2) and _side_key(line) in titles:
                    running.add(id(line))
                    first.append(line)
            elif _is_page_number(line):
                if with_number >= 2:
                    running.add(id(line))
            elif (
                counts[_key(line)] >= least
                or is_of_side(index, line)
                or any(offsets[at] >= least for at in _page_offsets(line, index))
            ):
                running.add(id(line))
                text = _key(line)[0]
                first += [line] if text not in known_keys else []
                known_keys.add(text)
        titles |= {_side_key(line) for line in lines if metrics.is_larger(line)}
        first.sort(key=lambda line: -line.baseline)
        items = [item for item in page.items if isinstance(item, Paragraph) or id(item) not in running]
        yield (replace(page, items=items) if running else page), first


def _outer_lines(page: PageLines, metrics: Metrics) -> list[Line]:
    """Return the first and last lines in the margins of a page.

    Lines that belong to the lines next to them are left out.
    """
    lines = sorted(page.lines, key=lambda line: line.baseline)
    margin = (page.top - page.bottom) * _MARGIN
    low = [line for line in lines if line.baseline < page.bottom + margin]
    high = [line for line in lines if line.baseline > page.top - margin and line not in low]
    low = low[: _count_apart(low, lines[len(low) :], metrics)]
    high = high[len(high) - _count_apart(high[::-1], lines[: len(lines) - len(high)][::-1], metrics) :]
    return low + high


def _count_apart(outer: Sequence[Line], inner: Sequence[Line], metrics: Metrics) -> int:
    """Return how many lines at the edge of the page are set apart from the others."""
    lines = [*outer, *inner[:1]]
    for count in range(len(outer), 0, -1):
        if count == len(lines):
            return count
        line, following = lines[count - 1], lines[count]
        distance = abs(line_distance(line, following))
        if distance > APART * metrics.distance or line.style != following.style:
            return count
    return 0


def _key(line: Line) -> tuple[str, int]:
    return _DIGITS.sub("0", line.text), _place(line)


def _side_key(line: Line) -> tuple[str, int]:
    # Few pages are of one side: titles that differ in a number, as those of annexes, are text.
    return line.text, _place(line)


def _place(line: Line) -> int:
    return round(line.baseline / 3)


def _page_offsets(line: Line, index: int) -> Iterator[tuple[int, int]]:
    """Yield the place of a line with each number that may be the page number."""
    for match in (_NUMBER_FIRST.match(line.text), _NUMBER_LAST.search(line.text)):
        if match is not None:
            yield int(match[1]) - index, _place(line)


def _is_page_number(line: Line) -> bool:
    return _PAGE_NUMBER.fullmatch(line.text) is not None
