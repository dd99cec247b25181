"""The words that carry meaning, in one form each, and how rare they are among passages."""

import math
import re
from collections.abc import Iterable, Mapping

_WORD = re.compile(r"[^\W_]+")
# Words of questions and sentences that name nothing.
_STOP_WORDS = frozenset(
    """a about after again all also am an and another any anybody are as at be because been before being below between
    both but by can cannot could did do does doing done down during each either else every everybody few find for from
    further get give given go had has have having he her here hers him his how i if in into is it its itself just let
    like many may me might mine more most much must my neither no nor not now of off often on once one only or other
    our ours out over own per please same shall she should show since so some somebody someone something still such
    take tell than that the their them themselves then there these they this those through to too under until up upon
    us very was we were what when where whether which while who whom whose why will with within without would yet you
    your yours""".split()  # noqa: SIM905 — a list of these would be a page
)
_ENDINGS = (
    "ations",
    "ation",
    "ating",
    "ated",
    "ates",
    "ate",
    "ings",
    "ing",
    "edly",
    "ed",
    "ies",
    "es",
    "s",
    "ly",
    "ments",
    "ment",
)
_SHORTEST_STEM = 3


def words(text: str) -> list[str]:
    """Return the words that carry meaning, case folded, in order; identifiers give the words in them."""
    return [word for word in _WORD.findall(text.casefold()) if word not in _STOP_WORDS]


def stems(text: str) -> list[str]:
    """Return the words that carry meaning, without their endings, in order."""
    return [stem(word) for word in words(text)]


def stem(word: str) -> str:
    """Cut the ending of an English word, so that `calculated` and `calculation` are one; crude, and the same always."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM and not word.endswith("ss"):
            word = word[: -len(ending)] + ("y" if ending == "ies" else "")
            break
    if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "aeious":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > _SHORTEST_STEM else word


def rarity(terms: Iterable[str], passages: Iterable[frozenset[str]]) -> dict[str, float]:
    """Return the weight of each term, in their order: the fewer passages have it, the more it tells.

    Source: the inverse document frequency of BM25, Robertson and Zaragoza (2009), over these passages.
    """
    pool = list(passages)
    counts = {term: sum(term in passage for passage in pool) for term in terms}
    return {term: math.log(1 + (len(pool) - count + 0.5) / (count + 0.5)) for term, count in counts.items()}


def held(weights: Mapping[str, float], found: Iterable[str]) -> float:
    """Return the sum of the weights whose term is found."""
    there = set(found)
    # In the order of the weights: a set's own order differs from process to process, and sums with it.
    return sum(weight for term, weight in weights.items() if term in there)


def covered(weights: Mapping[str, float], found: Iterable[str]) -> float:
    """Return the share of the weights whose term is found, 0 to 1; 0 where there are no terms."""
    total = sum(weights.values())
    return held(weights, found) / total if total else 0.0
