"""The language of a document or chunk, by its function words.

Articles, pronouns and prepositions are a quarter to a half of the words of prose. Code, names of options and tables
have hardly any of another language, so a chunk of them keeps the language of its document, and a document of them the
configured one (decision 51).
"""

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from kosmos_rag.core.text.analysis import is_unspaced

FUNCTION_WORDS = {
    language: frozenset(words.split())
    for line in (Path(__file__).parent / "function_words.txt").read_text(encoding="utf-8").splitlines()
    for language, _, words in [line.partition(":")]
}
"""The most frequent function words of text search configurations of PostgreSQL that have the name of a language."""
LANGUAGES = frozenset(FUNCTION_WORDS)
"""Text search configurations that are distinguished."""
_ALL_WORDS = frozenset[str]().union(*FUNCTION_WORDS.values())

UNSPACED = "unspaced"
"""Instead of a language: scripts without spaces, whose texts are analysed alike."""

_WORD = re.compile(r"[^\W\d_]+")
_MAX_CHARS = 50_000
"""Of a text, from its beginning: more words change no result."""
_MIN_SHARE = 0.2
"""Share of a language's function words among the words of a text."""
_MIN_DISTINCT = 3
"""Distinct function words: a repeated name may be one. A text with fewer keeps the given language."""
_MARGIN = 3
"""Least ratio of the words that a language has and another one has not to those that only the other one has, if any."""


def choose_text_language(text: str, language: str, available: Collection[str]) -> str:
    """Return the text search configuration of a document or chunk.

    It is the given one, unless the text is clearly in another language. A configuration that is not of `LANGUAGES`,
    such as `simple`, is never replaced.

    Args:
        text: A document, of which the beginning counts, or a chunk.
        language: Text search configuration that is configured, or that of the chunk's document.
        available: Text search configurations of the server.
    """
    words = _WORD.findall(text[:_MAX_CHARS].lower()) if language in LANGUAGES else []
    if not words:
        return language
    counts = Counter(filter(_ALL_WORDS.__contains__, words))
    present = {name: counts.keys() & function_words for name, function_words in FUNCTION_WORDS.items()}
    frequencies = {name: sum(counts[word] for word in words_of_text) for name, words_of_text in present.items()}
    best = max(frequencies, key=lambda name: (frequencies[name], name == language))
    if (
        best == language
        or best not in available
        or frequencies[best] < _MIN_SHARE * len(words)
        or len(present[best]) < _MIN_DISTINCT
    ):
        return language
    is_clear = all(
        sum(counts[word] for word in present[best] - other)
        >= _MARGIN * max(1, sum(counts[word] for word in other - present[best]))
        for name, other in present.items()
        if name != best
    )
    return best if is_clear else language


def guess_language(question: str, languages: Collection[str]) -> str | None:
    """Return the language of a question; None where its function words do not show it.

    Args:
        question: The question, which may be too short for `choose_text_language`.
        languages: Text search configurations, and UNSPACED.
    """
    if is_unspaced(question):
        return UNSPACED if UNSPACED in languages else None
    words = set(_WORD.findall(question.lower()))
    counts = {name: len(words & FUNCTION_WORDS[name]) for name in languages if name in FUNCTION_WORDS}
    best = max(counts, key=lambda name: counts[name], default=None)
    if best is None or not counts[best] or sum(count == counts[best] for count in counts.values()) > 1:
        return None
    return best
