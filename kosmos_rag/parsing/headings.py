"""Headings of text without markup, by their typography.

They are in CAPITALS, In Title Case, or numbered.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from kosmos_rag.core.types import Heading

LONGEST = 100
"""Characters of a heading at most."""
_NUMBER = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})[.)]?\s+(?=[^\W\d_])")
_SENTENCE_END = (".", ",", ";", ":", "?", "!")
_SMALL = frozenset(
    (
        *("a", "an", "and", "as", "at", "but", "by", "for", "from", "in", "into", "nor", "of", "on", "or", "per"),
        *("the", "to", "via", "vs", "with"),
    )
)
"""Words that title case leaves small."""


def find_plain_headings(text: str) -> tuple[Heading, ...]:
    """Find the headings of a plain text.

    Short lines after a blank one, or at the start, that end no sentence.

    Lines in capitals are outermost; below them come numbered ones by their numbers, and lines in title case.
    """
    return tuple(_headings([("", 0), *_lines(text), ("", len(text))]))


def _lines(text: str) -> Iterator[tuple[str, int]]:
    start = 0
    for line in text.split("\n"):
        yield line.strip(), start + len(line) - len(line.lstrip())
        start += len(line) + 1


def _headings(lines: list[tuple[str, int]]) -> Iterator[Heading]:
    heads_before = False
    for number, ((above, _), (line, start)) in enumerate(pairwise(lines[:-1]), start=1):
        level = _level(line) if not above or heads_before else None
        if level is not None and _is_list_item(line, lines[number + 1][0]):
            level = None
        if level is not None:
            yield Heading(level=level, title=line, start=start)
        heads_before = level is not None


def _level(line: str) -> int | None:
    words = line.split()
    if not words or len(line) > LONGEST or line.endswith(_SENTENCE_END):
        return None
    if (numbered := _NUMBER.match(line)) and line[numbered.end()].isupper():
        return 2 + numbered[1].count(".")
    letters = [character for character in line if character.isalpha()]
    if len(letters) >= 3 and line.upper() == line:
        return 1
    return 2 if len(letters) >= 3 and _is_title_case(words) else None


def _is_title_case(words: list[str]) -> bool:
    stripped_words = [word.strip("()\"'-/&") for word in words]
    return stripped_words[0][:1].isupper() and all(
        not word or word[0].isupper() or word[0].isdigit() or word in _SMALL for word in stripped_words
    )


def _is_list_item(line: str, below: str) -> bool:
    """Return whether a numbered line is an item of a list.

    Another numbered line follows at once.
    """
    return bool(_NUMBER.match(line) and _NUMBER.match(below))
