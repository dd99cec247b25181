"""Normalise words of questions and names for comparison.

Schema linking keeps its own stop words and stemmer. Words such as `list`, `show` and `total` are instructions in a
question for data and carry meaning in a text. Names are short: the stemmer of `core.text.words` also cuts `-ation`,
`-ment` and `-ly`, which joins names that differ.
"""

import re
from functools import lru_cache

from kosmos_rag.core.text.accents import fold_accents
from kosmos_rag.text2sql.catalog.naming import abbreviations, humanize, singular

QUOTED = re.compile(r"\"([^\"]+)\"|(?<!\w)'([^']{2,})'(?!\w)|“([^”]+)”")
"""A quoted value: its words are content of a row, not names of tables."""

_GERMAN_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})
"""As names of tables are often written: `stoerung` for Störung."""
_WORD = re.compile(r"[^\W\d_]+")
_NAME = re.compile(r"\w+(?:[._]\w+)+")
_AMERICAN = tuple(
    (re.compile(british), american)
    for british, american in (
        ("(?<=[^s].)our", "or"),  # colour, and neither mourning nor scour
        ("isation", "ization"),
        ("llment", "lment"),  # British has one l: enrolment
        ("ellery", "elry"),
        ("(?<=[bt])r$", "er"),  # the stems of fibre and litre
        ("artef", "artif"),
        ("sulph", "sulf"),
        ("neuvr$", "neuver"),  # manoeuvre, after its `oe`
    )
)
_WITH_LIGATURE = re.compile(
    "anaem|leukaem|caem|haem[aio]|paed|aesth|oestr|oesoph|foet|faec|gynaec|archaeo|manoeuv|diarrhoea"
)
"""Stems with `ae` or `oe` where American has `e`. Elsewhere these are umlauts: `laender` is no lender."""
STOP_WORDS = frozenset(
    _WORD.findall(
        "a about all also am an and any are as at be been both but by can could did do does each either every find "
        "for from get give had has have having how i if in into is it its list many me more most much my no not of "
        "on only or our out per please return show so such tell than that the their them then there these they this "
        "those to total up us was we were what when where which while who whom whose why will with would you your"
    )
)
"""Words that are no part of a name or a value."""


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a lower-case word without its ending and accents: plural, `-ing`, `-ed`, final `e`."""
    base = singular(word if word.isascii() else fold_accents(word.translate(_GERMAN_LETTERS)))
    for ending in ("ing", "ed"):
        if base.endswith(ending) and len(base) - len(ending) >= 3:
            base = base[: -len(ending)]
            if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "ls":
                base = base[:-1]
            break
    return base[:-1] if base.endswith("e") and len(base) > 3 else base


def unify_spelling(word: str) -> str:
    """Return one spelling for a British and an American stem: `color` of colour."""
    word = _WITH_LIGATURE.sub(lambda match: re.sub("[ao]e", "e", match[0]), word)
    for british, american in _AMERICAN:
        word = british.sub(american, word)
    return word


@lru_cache(maxsize=200_000)
def stem_name(name: str) -> tuple[str, ...]:
    """Return the stems of the words of a name, with abbreviations expanded."""
    return tuple(dict.fromkeys(stem(word) for word in humanize(name).lower().split()))


def question_words(question: str) -> list[str]:
    """Return the lower-case words of a question outside quoted values."""
    text = QUOTED.sub(" ", question)
    for name in _NAME.findall(text):
        text = text.replace(name, humanize(name))
    question_tokens = [word.lower() for word in _WORD.findall(text)]
    return [part for word in question_tokens for part in _expand(word)]


def _expand(word: str) -> list[str]:
    """Return a word as names have it: `ids` is identifier."""
    full = abbreviations().get(singular(word)) if is_content_word(word) else None
    return full.split() if full else [word]


def is_content_word(word: str) -> bool:
    """Return whether a word can be part of a name.

    Stop words and single letters cannot.
    """
    return len(word) > 1 and word not in STOP_WORDS
