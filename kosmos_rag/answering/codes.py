"""Codes after a name, by which a unit names another thing than a question.

Building B, error E-102 and section 3.2 have such codes.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping

from kosmos_rag.answering.words import stem, words

_CODE = re.compile(
    r"""
    (?<![\w-])(?=
        (?P<name>[^\W\d_]+)
        (?:[ \u00a0-](?P<code>[^\W\d_]?-?\d+(?:\.\d+)*[^\W\d_]?|[^\W\d_])|(?P<number>\d+))
        (?![\w-]|[.,:]\d)
        (?P<range>\s*[-\u2013\u2014]|\s+(?:to|through|bis)\b)?
    )
    """,
    re.VERBOSE,
)
"""They may overlap: error E-102 is a code of "error", and 102 one of "E"."""
_WORDS_OF_ONE_LETTER = frozenset("aeiouy")
"""Articles, conjunctions and pronouns of some language."""

Codes = Mapping[str, Collection[str]]
"""Codes by the stem of the name before them."""


def find_codes(text: str, language: str) -> Codes:
    """Return the codes of a text, case-folded.

    A code is a letter or has a digit. A name before a range of codes has none: it may mean any of them.
    """
    codes = defaultdict[str, set[str]](set)
    ranges = set()
    for match in _CODE.finditer(text):
        name, code = match["name"].casefold(), match["code"] or match["number"]
        if code in _WORDS_OF_ONE_LETTER or not words(name, language):
            continue
        codes[stem(name, language)].add(code.casefold())
        if match["range"]:
            ranges.add(stem(name, language))
    return {name: values for name, values in codes.items() if name not in ranges}


def has_other_code(question: Codes, text: str, language: str) -> bool:
    """Return whether a text has other codes after a name than a question.

    A text that also has one of the question has none. Python 3.10 is a Python 3.
    """
    if not question:
        return False
    text_codes = find_codes(text, language)
    tokens = frozenset(re.findall(r"\w+", text.casefold()))
    return any(
        not tokens.intersection(codes)
        and not any(_is_part(code, other) for code in codes for other in text_codes[name])
        for name, codes in question.items()
        if name in text_codes
    )


def _is_part(first: str, second: str) -> bool:
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")
