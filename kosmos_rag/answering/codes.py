"""Codes after a name, by which a unit names another thing than a question.

Building B, error E-102 and quarter Q3 have such codes. A number is one after the name of what is only numbered, such as
route 168: others may be quantities, or versions that another one includes.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping

from kosmos_rag.answering.words import stem, words

_CODE = re.compile(
    r"""
    (?<![\w-])(?=
        (?:
            (?P<name>[^\W\d_]+)[ \u00a0-](?P<code>(?![Vv]-?\d)[^\W\d_]-?\d+|\d+[a-cA-C]|[^\W\d_])
            | (?P<letter>(?![Vv])[^\W\d_])-?(?P<number>\d+)
            | (?P<numbered>(?i:articles?|chapters?|flights?|gates?|highways?|interstates?|platforms?|rooms?|routes?
                |artikel|gleis|kapitel|raum))[ \u00a0](?P<numeral>\d+)
        )
        (?![\w-]|[.,:]\d)
        (?P<range>
            \s*[-\u2013\u2014+]
            | \s+(?:to|through|bis)\b
            | \s+(?:or|and|oder|und)\s+(?:above|below|better|earlier|higher|larger|later|lower|newer|older|smaller|up
                |gr\u00f6\u00dfer|h\u00f6her|kleiner|neuer|sp\u00e4ter)\b
        )?
    )
    """,
    re.VERBOSE,
)
"""They may overlap: error E-102 is a code of "error", and 102 one of "E". A letter after a number is often a unit."""
_BOUND = re.compile(
    r"\b(?:above|after|at (?:least|most)|before|below|from|(?:max|min)imum of|since|until|up to"
    r"|ab|h\u00f6chstens|mindestens|nach|seit|vor)\s+",
    re.IGNORECASE,
)
_WORDS_OF_ONE_LETTER = frozenset("aeiouy")
"""Articles, conjunctions and pronouns of some language."""

Codes = Mapping[str, Collection[str]]
"""Codes by the stem of the name before them."""


def find_codes(text: str, language: str) -> Codes:
    """Return the codes of a text, case-folded.

    A code is a letter, or a letter and a number. A name with a range or a bound of codes has none: it may mean any.
    """
    codes = defaultdict[str, set[str]](set)
    ranges = set()
    bounds = {match.end() for match in _BOUND.finditer(text)}
    for match in _CODE.finditer(text):
        name = (match["name"] or match["letter"] or match["numbered"]).casefold()
        code = match["code"] or match["number"] or match["numeral"]
        if code in _WORDS_OF_ONE_LETTER or not words(name, language):
            continue
        codes[stem(name, language)].add(code.casefold())
        if match["range"] or match.start() in bounds:
            ranges.add(stem(name, language))
    return {name: values for name, values in codes.items() if name not in ranges}


def has_other_code(question: Codes, text: str, language: str) -> bool:
    """Return whether a text has other codes after a name than a question.

    A text that also has one of the question has none.
    """
    if not question:
        return False
    text_codes = find_codes(text, language)
    tokens = frozenset(re.findall(r"\w+", text.casefold()))
    return any(
        tokens.isdisjoint(codes) and set(codes).isdisjoint(text_codes[name])
        for name, codes in question.items()
        if name in text_codes
    )
