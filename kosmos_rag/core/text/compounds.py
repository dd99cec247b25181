"""Parts of German compounds, so that `Versicherung` finds `Krankenversicherung`.

The dictionary is that of simplemma, which writes nouns with a capital letter. Dictionaries of other languages do not
mark nouns, and a quarter of their splits is wrong (docs/decisions/0051-compounds-and-languages.md).
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from kosmos_rag.core.text.dictionary import is_listed

COMPOUNDING = frozenset({"german"})
"""Text search configurations whose compounds are split."""

_CODE = "de"
_MIN_PART = 4
"""Letters of a part: shorter words of the dictionary are prefixes and endings too."""
_MAX_WORD = 60
"""Letters. Longer words are encoded data."""
_CACHED_WORDS = 2**15
_NOUN = re.compile(r"\b(?:[A-ZÄÖÜ][a-zäöüß]{7,}|[A-ZÄÖÜ]{8,})\b")
_LINKS = ("", "s", "n", "es", "en", "er", "e")
"""Letters between two parts; `n` follows an `e`."""
_NO_PARTS = frozenset(
    """assi baust beis besch best bind buchs bunde dagegen darauf davon dazu durch eins eint empor entgegen ergeb
    erle ford fort funkt gegen gene genera herab heran herauf heraus herein hervor hier hinauf hinaus hinein
    hint hinter hinzu inan inner inter kata kennt klei kombi komm lief liefe mate miss nach neben nieder
    papi para reak reakt rege rück sankt schot sech selb seme sich slow spei spezi stell stenz ster tele
    temp tran unter verb verein vers vorab voran voraus vorbei vorher vors vorüber weiter wider wied wiede
    wieder zurück zusammen über übern""".split()  # noqa: SIM905
)
"""Words of the dictionary that are prefixes or fragments where a longer word begins with them."""
_NO_LAST_PARTS = frozenset(
    """barten bungen chen dung dungs eien ende enden endes eren essen haft halb heit ionen ions isch ische ischem ischen
    ischer isches keit lets linge lings lungen nisse nissen nisses rinnen ritt ritte ritts rungen samt
    samtes samts schaft schaften schafts stag stage stagen steil steile sten taben tand tands uren weise""".split()  # noqa: SIM905
)
"""Words of the dictionary that are endings, or begin with the linking letter, where a longer word ends with them."""


def find_parts(text: str, language: str) -> str:
    """Return the parts of the compounds of a text, each once.

    Only nouns are split: they begin with a capital letter.

    Args:
        language: Its text search configuration; texts of others than `COMPOUNDING` have no parts.
    """
    if language not in COMPOUNDING:
        return ""
    nouns = dict.fromkeys(word.lower() for word in _NOUN.findall(unicodedata.normalize("NFC", text)))
    return " ".join(dict.fromkeys(part for noun in nouns for part in split_compound(noun)))


@lru_cache(maxsize=_CACHED_WORDS)
def split_compound(word: str) -> tuple[str, ...]:
    """Return the parts of a compound, or nothing for another word.

    A compound is split before its longest last part that is a noun of the dictionary, if the rest is a word of the
    dictionary or a compound, with or without a linking letter; then each of both is split. The parts are the words that
    cannot be split, and all sequences of them that are nouns: `krankenversicherungsbeitrag` has `kranken`,
    `versicherung`, `beitrag`, `krankenversicherung` and `versicherungsbeitrag`.

    Args:
        word: A German word in lower case, with composed letters.
    """
    spans = _split(word) if len(word) <= _MAX_WORD else ()
    last = len(spans) - 1
    sequences = [
        word[spans[first][0] : spans[end][1]]
        for first in range(last + 1)
        for end in range(first + 1, last + 1)
        if (first, end) != (0, last)
    ]
    return (*(word[start:end] for start, end in spans), *filter(_is_noun, sequences))


def _split(word: str) -> tuple[tuple[int, int], ...]:
    """Return start and end of the parts that cannot be split.

    The result is empty for a word that is no compound.
    """
    for at in range(_MIN_PART, len(word) - _MIN_PART + 1):
        if word[at:] in _NO_LAST_PARTS or not _is_noun(word[at:]):
            continue
        heads = list(_without_links(word[:at]))
        head = next(filter(_is_word, heads), None)
        first = _split(head) or ((0, len(head)),) if head else next(filter(None, map(_split, heads)), ())
        if first:
            rest = _split(word[at:]) or ((0, len(word) - at),)
            return (*first, *((start + at, end + at) for start, end in rest))
    return ()


def _without_links(head: str) -> Iterator[str]:
    """Yield what may be the first part: `arbeit` before `arbeits`."""
    if head in _NO_PARTS:
        return
    if head.endswith("s") and _is_noun(head[:-1]):
        yield head[:-1]
    for link in _LINKS:
        rest = head.removesuffix(link)
        if len(rest) >= _MIN_PART and (not link or rest != head) and (link != "n" or rest.endswith("e")):
            yield rest


def _is_noun(word: str) -> bool:
    return len(word) >= _MIN_PART and word not in _NO_PARTS and is_listed(word.capitalize(), _CODE)


def _is_word(word: str) -> bool:
    return _is_noun(word) or (word not in _NO_PARTS and is_listed(word, _CODE))
