"""Content words of questions and passages, their stems, and weights by rarity.

For answers: evidence, abstention and citation check. Signals and schema linking have stop words and stemmers of their
own, for the reasons that `retrieval.signals.words` and `text2sql.linking.words` give.
"""

import re
from collections.abc import Iterable, Mapping

from kosmos_rag.core.text.bm25 import inverse_document_frequency

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_UNSPACED_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|[^\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
# Function words, and verbs and nouns of questions that name nothing.
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
    """Return the content words of a text, case-folded, in order.

    Identifiers are split. Text without spaces between words, such as Chinese, is pairs of characters.
    """
    content: list[str] = []
    for word in _WORD.findall(text.casefold()):
        if _UNSPACED.search(word):
            for run in _UNSPACED_RUN.findall(word):
                content += [run[at : at + 2] for at in range(max(1, len(run) - 1))] if _UNSPACED.match(run) else [run]
        elif word not in _STOP_WORDS:
            content.append(word)
    return content


def stems(text: str) -> list[str]:
    """Return the stems of the content words of a text, in order."""
    return [stem(word) for word in words(text)]


def stem(word: str) -> str:
    """Return the stem of an English word.

    `calculated` and `calculation` have the same one.
    """
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM and not word.endswith("ss"):
            word = word[: -len(ending)] + ("y" if ending == "ies" else "")
            break
    if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "aeious":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > _SHORTEST_STEM else word


def inverse_document_frequencies(terms: Iterable[str], passages: Iterable[frozenset[str]]) -> dict[str, float]:
    """Return the idf of each term over these passages, in term order."""
    pool = list(passages)
    counts = {term: sum(term in passage for passage in pool) for term in terms}
    return {term: inverse_document_frequency(len(pool), count) for term, count in counts.items()}


def matched_weight(weights: Mapping[str, float], terms: Iterable[str]) -> float:
    """Return the total weight of those weighted terms that are among `terms`."""
    present = set(terms)
    # In the order of the weights: the order of a set, and with it the rounding of the sum, differs between processes.
    return sum(weight for term, weight in weights.items() if term in present)


def coverage(weights: Mapping[str, float], terms: Iterable[str]) -> float:
    """Return the share of the total weight that `terms` cover.

    The result is 0 without weighted terms.
    """
    total = sum(weights.values())
    return matched_weight(weights, terms) / total if total else 0.0
