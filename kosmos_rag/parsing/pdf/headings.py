"""Headings of a PDF, by the letters, numbers and space of their lines."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import NamedTuple

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.headings import LONGEST
from kosmos_rag.parsing.pdf.cells import LEADING, is_amount, is_value
from kosmos_rag.parsing.pdf.graphics import NEAR
from kosmos_rag.parsing.pdf.lines import LARGER, Line, join_line, join_text
from kosmos_rag.parsing.pdf.page_lines import APART, Paragraph, line_distance
from kosmos_rag.parsing.pdf.table_evidence import LEADER

Style = tuple[float, bool]
"""Size of the letters, and whether they are bold."""

_MOST_IN_A_ROW = 3
"""Headings of one style without text between them; more are a list."""
_NUMBER = re.compile(r"((?:\d{1,2}(?:\.\d{1,2}){0,4}|[A-Z](?:\.\d{1,2})+|[IVX]{1,5}(?=\.)))\.?\s+(?=[^\W\d_])")
_CHAPTER = re.compile(r"[^\W\d_]{2,} (?:\d{1,2}|[A-Z]|[IVX]{1,5})[.:]?")
_ITEM = re.compile(r"(?:[•▪◦‣○●■□☐☒*–—-]|\(?[a-z][.)]|\d+[.)](?=\s+[a-z]))\s")  # noqa: RUF001
_MONTH = r"(?:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)\w*\.?"
_DATE = re.compile(
    rf"\W*(?:\w+day,?\s+)?(?:\d{{1,4}}[-./]\d{{1,2}}[-./]\d{{1,4}}|(?:\d{{1,2}}\.?\s+(?:of\s+)?)?{_MONTH}"
    rf"(?:\s+\d{{1,2}}(?:st|nd|rd|th)?,?)?\s+\d{{2,4}}|{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?)"
    r"(?:,?\s+\d{1,2}:\d{2}(?::\d{2})?)?\W*",
    re.IGNORECASE,
)
_DATE_AT_PLACE = re.compile(rf"(?:[^\W\d_]+,\s+)?{_DATE.pattern}", re.IGNORECASE)
"""A title may have the same form, and is bold."""
_REMARK = re.compile(r"\([^()]*\)|(?:page|p\.|seite)\s+\d+(?:\s+\w+\s+\d+)?", re.IGNORECASE)
"""A text in brackets; the number of a page."""
_LABEL = re.compile(r"[a-z] [A-Z]|[^\W\d_A-Z][^A-Z:]*:")
"""Begins a line of a form: a letter as its number, or words in small letters with a colon."""
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+")
_POINT = re.compile(r"\d{1,2}\.\s")
_HOUSE = re.compile(r"\d{3,}\s")
"""Begins a street of an address, or an amount."""
_YEAR = re.compile(r"(?:19|20)\d\d\s")
_LETTERS = re.compile(
    r"(?:(?=.*\b[a-z\d]{2}\b)(?:\W*\b[a-z\d]{1,2}\b)+|(?:\W*\b[a-z\d]{1,2}\b){1,3})\W*", re.IGNORECASE | re.ASCII
)
"""Labels of a drawing; a title of more single letters may be spaced."""
_SENTENCE_END = (".", ",", "。", "、")
_LABELLED = re.compile(r"[^:]+:\s+(?=\S)")
_MAIL = re.compile(r"\S+@\S+\.\w+")


class FoundHeading(NamedTuple):
    """A paragraph that is a heading."""

    paragraph: Paragraph
    title: str
    level: int


def find_headings(pages: Sequence[Sequence[Paragraph]], letters: Mapping[Style, int]) -> list[FoundHeading]:
    """Return the headings, in order.

    Paragraphs in larger letters, in bold ones where the text is not, and numbered ones with space around
    them. The larger the letters, the higher the level; the deeper the number, the lower.

    Args:
        letters: how many letters of the file have each style, those of tables too.
    """
    flows = [[paragraph for paragraph in page if not paragraph.is_running] for page in pages]
    flow = [paragraph for page in flows for paragraph in page]
    if not letters or not any(paragraph.lines for paragraph in flow):
        return []
    # What ends a page is above nothing, but for the last item of an agenda.
    last = {id(page[-1]) for page in flows if len(page) > 1 and not _tagged_level(page[-1])}
    candidates = [
        (paragraph, title)
        for paragraph, title in _candidates(flow, _TextStyles(flow, letters))
        if id(paragraph) not in last or _POINT.match(title)
    ]
    styles = sorted({paragraph.lines[0].style for paragraph, _ in candidates}, reverse=True)
    depths = {style: min(_depth(title) for p, title in candidates if p.lines[0].style == style) for style in styles}

    def find_level(style: Style, title: str) -> int:
        return min(styles.index(style) + 1 + _depth(title) - depths[style], bounds.MAX_HEADING_LEVEL)

    return [
        FoundHeading(paragraph, title, _tagged_level(paragraph) or find_level(paragraph.lines[0].style, title))
        for paragraph, title in candidates
    ]


def _tagged_level(paragraph: Paragraph) -> int:
    """Return the level that a tagged file gives to a short text; 0 for none."""
    is_short = len(paragraph.text) <= 2 * LONGEST and any(map(str.isalnum, paragraph.text))
    return paragraph.lines[0].heading if paragraph.lines and is_short else 0


class _TextStyles:
    """The styles in which the text of a file is set."""

    def __init__(self, flow: Sequence[Paragraph], letters: Mapping[Style, int]) -> None:
        self.size, self.bold = max(letters, key=letters.__getitem__)
        in_text: Counter[Style] = Counter()
        in_all: Counter[Style] = Counter()
        for paragraph in flow:
            is_text = bool(paragraph.lines) and self._is_text(paragraph)
            for line in paragraph.lines:
                in_all[line.style] += len(line.text)
                in_text[line.style] += len(line.text) * is_text
        self.of_text = {style for style, count in in_text.items() if 2 * count > in_all[style]}

    def _is_text(self, paragraph: Paragraph) -> bool:
        """Return whether a paragraph is no title by its form.

        It is too long, a sentence, or rows of a form. A bold sentence is a part of a text in other letters.
        """
        text = paragraph.text
        return (
            len(text) > self.find_longest(paragraph)
            or (_is_sentence(text) and text[-2:-1].isalpha() and not paragraph.lines[0].bold)
            or (len(paragraph.lines) > 1 and (_has_labels(paragraph) or _has_cells(paragraph, None, None)))
        )

    def may_be_heading(self, paragraph: Paragraph) -> bool:
        """Return whether a paragraph is in larger or bolder letters than the text."""
        line = paragraph.lines[0]
        if line.style in self.of_text:
            return False
        is_heavier = not self.bold and all(part.bold for part in paragraph.lines)
        return self.is_larger(paragraph) or (is_heavier and self.is_as_large(paragraph))

    def is_larger(self, paragraph: Paragraph) -> bool:
        """Return whether the letters of a paragraph are larger than those of the text."""
        return paragraph.lines[0].size >= self.size * LARGER

    def is_title_above(self, paragraph: Paragraph, following: Paragraph | None) -> bool:
        """Return whether a paragraph is larger, bold, and above a longer text that is not larger."""
        return (
            self.is_larger(paragraph)
            and all(line.bold for line in paragraph.lines)
            and following is not None
            and bool(following.lines)
            and not self.is_larger(following)
            and len(following.text) > len(paragraph.text)
        )

    def is_broken_title(self, paragraph: Paragraph) -> bool:
        """Return whether two lines are in larger and bold letters: an address has more lines."""
        return len(paragraph.lines) == 2 and self.is_larger(paragraph) and all(line.bold for line in paragraph.lines)

    def find_longest(self, paragraph: Paragraph) -> int:
        """Return how many letters a heading has at most: in larger letters twice as many."""
        return LONGEST * (1 + self.is_larger(paragraph))

    def may_be_numbered(self, paragraph: Paragraph) -> bool:
        """Return whether a paragraph is as large as the text, or bold."""
        return self.is_as_large(paragraph) or (not self.bold and paragraph.lines[0].bold)

    def is_as_large(self, paragraph: Paragraph) -> bool:
        """Return whether the letters of a paragraph are as large as those of the text."""
        return paragraph.lines[0].size >= self.size


def _candidates(flow: Sequence[Paragraph], styles: _TextStyles) -> Iterator[tuple[Paragraph, str]]:
    """Yield paragraphs that are headings, with their titles.

    Many of one style in a row are a list.
    """
    marked: list[tuple[Paragraph, str | None]] = []
    for before, paragraph, following in zip([None, *flow], flow, [*flow[1:], None], strict=False):
        part = paragraph
        if paragraph.lines and styles.is_larger(paragraph) and (aside := _find_aside(paragraph, before, following)):
            part = replace(paragraph, lines=[join_line(paragraph.lines[0].runs[:aside])])
        title = None if _has_cells(part, before, following) else _title(part, styles)
        is_heading = (
            title is not None
            and (not _is_label(title) or styles.is_title_above(paragraph, following))
            and (
                styles.may_be_heading(paragraph)
                or (styles.may_be_numbered(paragraph) and _is_numbered(paragraph, title, following))
            )
            and not _is_above_value(paragraph, following)
            and (_POINT.match(title) or not (_are_one(before, paragraph) or _are_one(paragraph, following)))
        )
        if _tagged_level(paragraph):
            marked.append((paragraph, " ".join(paragraph.text.split())))
        else:
            marked.append((paragraph, title if is_heading else None))
    for style, group in groupby(marked, key=lambda each: each[1] and each[0].lines[0].style):
        headings = [(paragraph, title) for paragraph, title in group if title]
        is_list = not style or len(headings) > _MOST_IN_A_ROW
        yield from (each for each in headings if not is_list or _tagged_level(each[0]))


def _title(paragraph: Paragraph, styles: _TextStyles) -> str | None:
    """Return the text of a paragraph in one line.

    The result is None if it is too long, a date, a sentence, or no words.
    """
    if paragraph.verbatim is not None or not paragraph.lines:
        return None
    title = " ".join(paragraph.text.split())
    if (
        len(title) > styles.find_longest(paragraph)
        or sum(map(str.isalpha, title)) < 2
        or _is_sentence(title)
        or _LABEL.match(title)
        or any(_ADDRESS.fullmatch(line.text) or _MAIL.fullmatch(line.text) for line in paragraph.lines)
        or _has_labels(paragraph)
        or any(line.is_label for line in paragraph.lines)
        or (_is_list(paragraph.lines) and not styles.is_broken_title(paragraph))
        or _ITEM.match(title)
        or (
            _HOUSE.match(title) and not (_YEAR.match(title) and styles.is_larger(paragraph) and paragraph.lines[0].bold)
        )
        or _REMARK.fullmatch(title)
        or _LETTERS.fullmatch(title)
        or (_DATE if paragraph.lines[0].bold else _DATE_AT_PLACE).fullmatch(title)
        or LEADER.search(title)
    ):
        return None
    return title


def _are_one(above: Paragraph | None, paragraph: Paragraph | None) -> bool:
    """Return whether two paragraphs are near to each other, and in the same letters."""
    if not above or not paragraph or not above.lines or not paragraph.lines:
        return False
    last, first = above.lines[-1], paragraph.lines[0]
    is_near = paragraph.space_above <= APART and line_distance(last, first) <= LEADING
    return is_near and last.style == first.style and last.region == first.region


def _is_above_value(paragraph: Paragraph, following: Paragraph | None) -> bool:
    """Return whether the text below is the value of a label.

    It is a number, date or address in letters as large: a title is larger.
    """
    return (
        following is not None
        and len(following.lines) == 1
        and following.space_above <= 2 * APART
        and _is_form_value(following.text)
        and paragraph.lines[0].region == following.lines[0].region
        and paragraph.lines[0].size <= following.lines[0].size * LARGER
    )


def _is_list(lines: Sequence[Line]) -> bool:
    """Return whether lines end before a word that had room, as in an address."""
    widest = max(line.right - line.left for line in lines)
    return any(
        min(abs(line.left - following.left), abs(line.right - following.right)) < NEAR
        and line.right - line.left + line.size + _first_width(following) < widest
        for line, following in pairwise(lines)
    )


def _is_sentence(text: str) -> bool:
    return text.endswith(_SENTENCE_END) and not text.startswith("§")


def _has_labels(paragraph: Paragraph) -> bool:
    """Return whether each of several lines is a label with its value."""
    return len(paragraph.lines) > 1 and all(_LABELLED.match(line.text) for line in paragraph.lines)


def _first_width(line: Line) -> float:
    word = line.text.split(maxsplit=1)[0]
    return (line.right - line.left) * len(word) / len(line.text)


def _has_cells(paragraph: Paragraph, before: Paragraph | None, following: Paragraph | None) -> bool:
    """Return whether pieces of a line are set apart.

    They are cells, unless the first one is the number of a title. A word with a number is one where the lines above
    and below have no pieces.
    """
    lines = [(line, gaps) for line in paragraph.lines if (gaps := _find_gaps(line))]
    if not lines:
        return False
    line, gaps = lines[0]
    if len(paragraph.lines) == len(gaps) == 1 and _CHAPTER.fullmatch(join_text(line.runs[: gaps[0]])):
        neighbors = [*(before.lines[-1:] if before else ()), *(following.lines[:1] if following else ())]
        return any(map(_find_gaps, neighbors)) or not line.runs[gaps[0]].text[:1].isalpha()
    return not all(_is_number(join_text(line.runs[: gaps[-1]])) for line, gaps in lines)


def _find_aside(paragraph: Paragraph, before: Paragraph | None, following: Paragraph | None) -> int:
    """Return the place of a run on the right of a title, as a date.

    The result is 0 if there is none. The run ends at the right edge of the text. Cells are above or below others,
    headers are the first line of the file, and an amount belongs to its label.
    """
    gaps = _find_gaps(paragraph.lines[0]) if len(paragraph.lines) == 1 else []
    if len(gaps) != 1 or before is None or following is None:
        return 0
    if is_amount(join_text(paragraph.lines[0].runs[gaps[0] :])):
        return 0
    if any(map(_find_gaps, (*before.lines[-1:], *following.lines[:1]))):
        return 0
    title, aside = (paragraph.lines[0].runs[at] for at in (gaps[0] - 1, gaps[0]))
    edge = following.box.right if following.box else max((line.right for line in following.lines), default=0.0)
    is_at_edge = paragraph.lines[0].right > edge - aside.size
    return gaps[0] if is_at_edge and (aside.size == title.size or not aside.bold) else 0


def _find_gaps(line: Line) -> list[int]:
    """Return the places of the runs that begin a piece."""
    return [at for at, (run, other) in enumerate(pairwise(line.runs), 1) if other.left - run.right > 2 * line.size]


def _is_number(text: str) -> bool:
    number = _NUMBER.match(f"{text} x")
    return number is not None and number.end() == len(text) + 1


def _is_label(title: str) -> bool:
    """Return whether a text is a label, alone or with its value."""
    return (title.endswith((":", "\uff1a")) and not title.isupper()) or _is_labelled_value(title)


def _is_labelled_value(title: str) -> bool:
    """Return whether a text is a label with a number, a date or an address."""
    label = _LABELLED.match(title)
    return label is not None and _is_form_value(title[label.end() :])


def _is_form_value(text: str) -> bool:
    return any(form.fullmatch(text) for form in (_DATE_AT_PLACE, _ADDRESS, _MAIL)) or is_value(text)


def _is_numbered(paragraph: Paragraph, title: str, following: Paragraph | None) -> bool:
    """Return whether a paragraph is a numbered heading.

    It has the letters of the text and is above a longer paragraph.
    """
    number = _NUMBER.match(title)
    return (
        number is not None
        and title[number.end()].isupper()
        and len(paragraph.lines) == 1
        and paragraph.space_above > APART
        and following is not None
        and following.verbatim is None
        and len(following.text) > len(title)
        and not _NUMBER.match(following.text)
    )


def _depth(title: str) -> int:
    number = _NUMBER.match(title)
    return number[1].count(".") if number else 0
