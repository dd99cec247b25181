"""Rank paragraphs by BM25, computed by rank-bm25.

k1 is that of kosmos_rag.core.text.bm25.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.text import bm25

if TYPE_CHECKING:
    from rank_bm25 import BM25Okapi

_B = 0.75
"""Length normalisation, as rank-bm25 has it by default: paragraphs have no titles."""
_PHRASE_BONUS = 10
_TOKEN = re.compile(r"[^\W_]+")


def tokens(text: str) -> list[str]:
    """Return the words of a text, without case and punctuation.

    `customer_type` is two.
    """
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


class Bm25Ranking:
    """Scores paragraphs by BM25, with a bonus for the exact phrase.

    The bonus is 10; a paragraph without a shared word scores 0. Extra points for SQL keywords, as in the classic
    ranking, were measured to change nothing (docs/keyword.md).
    """

    def __init__(self, texts: Sequence[str]) -> None:
        corpus = [tokens(text) for text in texts]
        self._phrases = [_phrase(words) for words in corpus]
        # rank-bm25 divides by the number of words.
        self._index = _index(corpus) if any(corpus) else None

    def scores(self, query: str) -> list[float]:
        """Return the score of each text, in their order."""
        words = tokens(query)
        if self._index is None or not words:
            return [0.0] * len(self._phrases)
        query_phrase = _phrase(words)
        scores: list[float] = self._index.get_scores(words).tolist()
        return [
            score + _PHRASE_BONUS * (query_phrase in text) for score, text in zip(scores, self._phrases, strict=True)
        ]


def _phrase(words: Sequence[str]) -> str:
    """Join words with padding, for search of whole words."""
    return f" {' '.join(words)} "


def _index(corpus: Sequence[Sequence[str]]) -> "BM25Okapi":
    require_extra("keyword", "ranking paragraphs by BM25", "rank_bm25", alternative="choose the ranking classic")
    from rank_bm25 import BM25Okapi

    index = BM25Okapi(corpus, k1=bm25.K1, b=_B)
    # What rank-bm25 weighs words by falls below 0 for a word of most paragraphs: in a short text nothing would match.
    document_counts = Counter(chain.from_iterable(index.doc_freqs))
    index.idf = {word: bm25.inverse_document_frequency(len(corpus), count) for word, count in document_counts.items()}
    return index
