"""Content words of questions and passages, their stems, and weights by rarity.

For answers: evidence, abstention and citation check. Signals and schema linking have stop words and stemmers of their
own, for the reasons that `retrieval.signals.words` and `text2sql.linking.words` give.
"""

import re
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import snowballstemmer

from kosmos_rag.core.text.bm25 import inverse_document_frequency
from kosmos_rag.core.text.languages import FUNCTION_WORDS, LANGUAGES, choose_text_language

ENGLISH = "english"

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_UNSPACED_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|[^\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_STOP_WORDS = {
    language: frozenset(words.split())
    for line in (Path(__file__).parent / "stop_words.txt").read_text(encoding="utf-8").splitlines()
    for language, _, words in [line.partition(":")]
}
"""Function words, and verbs and nouns of questions that name nothing, by text search configuration."""
_ALGORITHMS = frozenset(snowballstemmer.algorithms())
_CACHED_STEMS = 2**16
_stemming = threading.Lock()


def find_language(texts: Iterable[str]) -> str:
    """Return the language of most of the texts' characters, English where it is not clear."""
    texts = list(texts)
    languages = Counter[str]()
    for text in texts:
        languages[choose_text_language(text, ENGLISH, LANGUAGES)] += len(text)
    language = max(languages, key=lambda name: languages[name], default=ENGLISH)
    # Texts that are too short or have tables are not clear alone.
    return choose_text_language("\n".join(texts), ENGLISH, LANGUAGES) if language == ENGLISH else language


def find_stop_words(question_words: Collection[str]) -> frozenset[str]:
    """Return the stop words of the language that has most of a question's words."""
    return max(_STOP_WORDS.values(), key=lambda stop_words: len(stop_words.intersection(question_words)))


def words(text: str, language: str = ENGLISH) -> list[str]:
    """Return the content words of a text, case-folded, in order.

    Identifiers are split. Text without spaces between words, such as Chinese, is pairs of characters.

    Args:
        text: A question or a unit.
        language: Text search configuration, whose stop words are left out.
    """
    stop_words = _STOP_WORDS.get(language) or FUNCTION_WORDS.get(language, frozenset())
    content: list[str] = []
    for word in _WORD.findall(text.casefold()):
        if _UNSPACED.search(word):
            for run in _UNSPACED_RUN.findall(word):
                content += [run[at : at + 2] for at in range(max(1, len(run) - 1))] if _UNSPACED.match(run) else [run]
        elif word not in stop_words:
            content.append(word)
    return content


def stems(text: str, language: str = ENGLISH) -> list[str]:
    """Return the stems of the content words of a text, in order."""
    return [stem(word, language) for word in words(text, language)]


@lru_cache(maxsize=_CACHED_STEMS)
def stem(word: str, language: str = ENGLISH) -> str:
    """Return the stem of a word by Snowball, as the keyword index of PostgreSQL has it.

    `calculated` and `calculation` have the same one. A word of a language without a stemmer is its own.
    """
    if language not in _ALGORITHMS:
        return word
    # A stemmer keeps the word that it is working on.
    with _stemming:
        return str(_build_stemmer(language).stemWord(word))


@lru_cache
def _build_stemmer(language: str) -> Any:
    return snowballstemmer.stemmer(language)


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
