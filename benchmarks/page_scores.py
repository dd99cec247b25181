"""Compare the text that a parser reads of a page with its description."""

import html
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from benchmarks.page_descriptions import DescribedPage, DescribedTable, Labels, Passage

_TAG = re.compile(r"</?(?:br|sup|sub|u|b|i|mark)\s*/?>")
_MARKER_LETTERS = 4
"""Letters and digits of a list marker before the words of an item."""
_SHORT = 15
"""Letters of an anchor below which a table may contain it by chance."""
_RIGHT = 0.9
"""Of each part of the score of a page that is right."""

_Pair = tuple[str, str]


def squeeze_cell(text: str) -> str:
    """Return the letters and digits of a cell, or its signs where it has none."""
    return squeeze(text) or unicodedata.normalize("NFKC", text).strip("*_ ")


def squeeze(text: str) -> str:
    """Return the letters and digits of a text, in small letters."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


@dataclass(kw_only=True)
class ReadPage:
    """What a parser reads of a page."""

    text: str
    headings: Sequence[str] = ()
    tables: Sequence[str] = ()
    """The lines of each table, as they are in the text."""

    @cached_property
    def squeezed(self) -> str:
        """The letters and digits of the text."""
        return self._layout[0]

    @cached_property
    def blocks(self) -> list[int]:
        """Offsets of `squeezed` where a paragraph begins."""
        return self._layout[1]

    @cached_property
    def lines(self) -> list[int]:
        """Offsets of `squeezed` where a line begins."""
        return self._layout[2]

    @cached_property
    def _layout(self) -> tuple[str, list[int], list[int]]:
        parts: list[str] = []
        blocks, lines = [], []
        length, is_apart = 0, True
        for line in _TAG.sub(" ", html.unescape(self.text)).split("\n"):
            letters = squeeze(line)
            is_block = is_apart or line.lstrip().startswith(("#", "|"))
            if letters:
                lines.append(length)
                if is_block:
                    blocks.append(length)
                parts.append(letters)
                length += len(letters)
                is_apart = line.lstrip().startswith("#")
            elif not line.strip():
                is_apart = True
        return "".join(parts), blocks, lines


@dataclass(kw_only=True, slots=True)
class PageScore:
    """How the reading of a page agrees with its description."""

    anchors: int = 0
    in_order: int = 0
    """Anchors that are in the text, in the order of the page."""
    false_breaks: int = 0
    missing_breaks: int = 0
    headings: int = 0
    true_headings: int = 0
    found_headings: int = 0
    """All that the parser gives, but for those that may be headings."""
    cells: int = 0
    true_cells: int = 0
    found_cells: int = 0
    false_names: int = 0
    invented_tables: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def order(self) -> float:
        """Share of the anchors that are in their place."""
        return self.in_order / self.anchors if self.anchors else 1.0

    @property
    def breaks(self) -> float:
        """One minus the wrong breaks of each anchor."""
        return max(0.0, 1 - (self.false_breaks + self.missing_breaks) / max(1, self.anchors))

    @property
    def heading_f1(self) -> float:
        """Harmonic mean of precision and recall of headings."""
        total = self.headings + self.found_headings
        return 2 * self.true_headings / total if total else 1.0

    @property
    def cell_f1(self) -> float:
        """Harmonic mean of precision and recall of names with values."""
        total = self.cells + self.found_cells
        return 2 * self.true_cells / total if total else 1.0

    @property
    def is_read_right(self) -> bool:
        """Whether order, breaks and tables are right."""
        parts = (self.order, self.breaks, self.cell_f1)
        return min(parts) >= _RIGHT and not self.invented_tables and not self.false_names

    @property
    def is_right(self) -> bool:
        """Whether order, breaks, tables and headings are right."""
        return self.is_read_right and self.heading_f1 >= _RIGHT


def score_page(page: DescribedPage, read: ReadPage) -> PageScore:
    """Compare a page with its description."""
    score = PageScore()
    _score_passages(page, read, score)
    _score_headings(page, read, score)
    _score_tables(page, read, score)
    for words in page.words:
        score.anchors += 1
        if squeeze(words) in read.squeezed:
            score.in_order += 1
        else:
            score.faults.append(f"in pieces: {words}")
    return score


def _score_passages(page: DescribedPage, read: ReadPage, score: PageScore) -> None:
    anchors = [_anchor(element) for element in page.elements]
    places = _places(page, anchors, read)
    score.anchors += len(anchors)
    for index, (element, anchor, place) in enumerate(zip(page.elements, anchors, places, strict=True)):
        if place is None:
            score.faults.append(f"not in its place: {anchor[:40]}")
            place = read.squeezed.find(anchor)
        else:
            score.in_order += 1
        if place >= 0 and isinstance(element, Passage):
            following = next((other for other in places[index + 1 :] if other is not None), None)
            _score_breaks(element, place, following, read, score)


def _anchor(element: Passage | DescribedTable | Labels) -> str:
    if isinstance(element, Passage):
        return squeeze(element.begin)
    if isinstance(element, Labels):
        return squeeze(element.pairs[0][0])
    return max(map(squeeze, element.rows[0]), key=len)


def _places(page: DescribedPage, anchors: Sequence[str], read: ReadPage) -> list[int | None]:
    """Return where the anchors are, in the longest sequence that keeps their order; None for the others."""
    best: list[tuple[float, int, int, int]] = []
    """Weight of the best sequence that ends here, index of the anchor, place, index of the one before."""
    for index, (element, anchor) in enumerate(zip(page.elements, anchors, strict=True)):
        starts = read.lines if isinstance(element, Passage) and element.kind == "i" else read.blocks
        for place in _occurrences(anchor, read.squeezed):
            weight = 1.01 if _begins(starts, place) else 1.0
            before = max(
                (at for at, (_, other, start, _) in enumerate(best) if other < index and start < place),
                key=lambda at: best[at][0],
                default=-1,
            )
            best.append((weight + (best[before][0] if before >= 0 else 0.0), index, place, before))
    places: list[int | None] = [None] * len(anchors)
    at = max(range(len(best)), key=lambda at: best[at][0], default=-1)
    while at >= 0:
        _, index, place, at = best[at]
        places[index] = place
    return places


def _occurrences(anchor: str, text: str) -> Iterator[int]:
    place = text.find(anchor) if anchor else -1
    while place >= 0:
        yield place
        place = text.find(anchor, place + 1)


def _begins(starts: Sequence[int], place: int) -> bool:
    at = bisect_left(starts, place + 1) - 1
    return at >= 0 and place - starts[at] <= _MARKER_LETTERS


def _score_breaks(passage: Passage, place: int, following: int | None, read: ReadPage, score: PageScore) -> None:
    starts = read.lines if passage.kind == "i" else read.blocks
    if passage.kind != "c" and not _begins(starts, place):
        score.missing_breaks += 1
        score.faults.append(f"no break before: {passage.begin[:40]}")
    begin_end = place + len(squeeze(passage.begin))
    end = begin_end
    if passage.end:
        letters = squeeze(passage.end)
        at = read.squeezed.find(letters, begin_end)
        if at < 0 or (following is not None and following > place and at > following):
            score.false_breaks += 1
            score.faults.append(f"does not end as it should: {passage.begin[:40]}")
            return
        end = at + len(letters)
    breaks = sum(place < start < end for start in read.blocks)
    if breaks:
        score.false_breaks += breaks
        score.faults.append(f"{breaks} breaks in: {passage.begin[:40]}")


def _score_headings(page: DescribedPage, read: ReadPage, score: PageScore) -> None:
    expected = [squeeze(e.begin) for e in page.elements if isinstance(e, Passage) and e.kind == "h"]
    optional = [squeeze(title) for title in page.optional_headings]
    remaining = Counter(filter(None, map(squeeze, read.headings)))
    score.headings = len(expected)
    for title in expected:
        match = next((other for other in remaining if _is_same_title(title, other)), None)
        if match is not None:
            score.true_headings += 1
            score.found_headings += 1
            remaining -= Counter([match])
        elif any(title in other for other in optional if other in read.headings or other in remaining):
            score.true_headings += 1
            score.found_headings += 1
        else:
            score.faults.append(f"no heading: {title[:40]}")
    for title in remaining.elements():
        if not any(title in other or other in title for other in optional):
            score.found_headings += 1
            score.faults.append(f"is no heading: {title[:40]}")


def _is_same_title(title: str, other: str) -> bool:
    """Return whether titles are the same, but for a number or a few words."""
    longer, shorter = sorted((title, other), key=len, reverse=True)
    return shorter in longer and len(shorter) >= 0.6 * len(longer)


def _score_tables(page: DescribedPage, read: ReadPage, score: PageScore) -> None:
    rows = [*_text_rows(read.text), *_markdown_rows(read.text)]
    for element in page.elements:
        if isinstance(element, Labels):
            missing = [label for label, value in element.pairs if not _has_pair(label, value, read.squeezed)]
            score.cells += len(element.pairs)
            score.true_cells += len(element.pairs) - len(missing)
            score.found_cells += len(element.pairs)
            if missing:
                score.faults.append(f"values apart from: {missing}")
        elif isinstance(element, DescribedTable):
            for row in element.rows:
                _score_row(element.names, row, rows, score)
    for table in read.tables:
        if _is_invented(page, squeeze(table)):
            score.invented_tables += 1
            score.faults.append(f"invented table: {table[:60]!r}")


def _has_pair(label: str, value: str, text: str) -> bool:
    letters, following = squeeze(label), squeeze(value)
    return any(
        following in text[place + len(letters) : place + len(letters) + len(following) + _MARKER_LETTERS]
        for place in _occurrences(letters, text)
    )


def _score_row(names: Sequence[str], row: Sequence[str], rows: Sequence[Sequence[_Pair]], score: PageScore) -> None:
    expected = [(name, squeeze_cell(value)) for name, value in zip(names, row, strict=True) if value]
    best = max(rows, key=lambda pairs: _agreement(expected, pairs), default=())
    agreement = _agreement(expected, best)
    score.cells += len(expected)
    score.true_cells += agreement
    if not agreement:
        score.faults.append(f"no row: {row}")
        return
    score.found_cells += len(best)
    values = {value for _, value in expected}
    wrong = [(name, value) for name, value in best if name and value in values and not _matches(expected, name, value)]
    score.false_names += len(wrong)
    if wrong:
        score.faults.append(f"false names: {wrong[:3]}")
    elif agreement < max(len(expected), len(best)):
        score.faults.append(f"row {row[0]} read as {best}")


def _agreement(expected: Sequence[_Pair], pairs: Sequence[_Pair]) -> int:
    return sum(_matches(expected, name, value) for name, value in pairs)


def _matches(expected: Sequence[_Pair], name: str, value: str) -> bool:
    return any(value == other and _is_same_name(name, full) for full, other in expected)


def _is_same_name(name: str, full: str) -> bool:
    """Return whether a name is that of a column, or its last parts."""
    parts = [squeeze(part) for part in full.split(" / ")]
    return name in {"".join(parts[at:]) for at in range(len(parts))}


def _text_rows(text: str) -> Iterator[list[_Pair]]:
    """Yield the pairs of lines like `name: value; name: value`."""
    names: list[str] = []
    for line in text.split("\n"):
        if " | " in line:
            names = line.split(" | ")
        elif "; " in line or ": " in line:
            yield _split_cells(line.split("; "), names)


def _split_cells(cells: Sequence[str], names: Sequence[str]) -> list[_Pair]:
    """Return names and values of the cells of a row; a name of the line above may have a colon."""
    parts = [
        next(((name, cell[len(name) + 2 :]) for name in names if cell.startswith(f"{name}: ")), ("", cell))
        for cell in cells
    ]
    if not any(name for name, _ in parts):
        parts = [
            (name, value) if colon else ("", cell) for cell in cells for name, colon, value in [cell.partition(": ")]
        ]
    return [(squeeze(name), squeeze_cell(value)) for name, value in parts]


def _markdown_rows(text: str) -> Iterator[list[_Pair]]:
    """Yield the pairs of rows of Markdown tables."""
    names: list[str] | None = None
    for line in text.split("\n"):
        if not line.lstrip().startswith("|"):
            names = None
            continue
        plain = _TAG.sub(" ", html.unescape(line)).strip().strip("|")
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", plain)]
        if names is None:
            names = [squeeze(cell) for cell in cells]
        elif not re.fullmatch(r"[-:| ]*", plain):
            yield [(name, squeeze_cell(cell)) for name, cell in zip(names, cells, strict=False) if cell]


def _is_invented(page: DescribedPage, letters: str) -> bool:
    """Return whether a table is none on the page, or contains its text."""
    tables = [element for element in page.elements if isinstance(element, DescribedTable)]
    if any(table.with_text for table in tables) or page.has_other_tables:
        return False
    if not tables and not any(isinstance(element, Labels) for element in page.elements):
        return True
    anchors = (squeeze(element.begin) for element in page.elements if isinstance(element, Passage))
    return any(len(anchor) >= _SHORT and anchor in letters for anchor in anchors)
