"""Rank paragraphs by the number of words shared with the query.

Phrases and words of SQL get extra points.
"""

from collections.abc import Sequence

_PHRASE_BONUS = 10
_SQL_KEYWORD_BONUS = 2
_SQL_KEYWORDS = ("select", "sum", "count", "avg", "group", "where", "order")


class ClassicRanking:
    """Scores paragraphs by shared words, with bonuses for phrase and SQL.

    One point for each shared word, separated by white space; ten more if the paragraph contains the whole query; two
    for each SQL keyword that both contain, also within a word.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        lowered = [text.lower() for text in texts]
        self._texts = [(text, frozenset(text.split())) for text in lowered]

    def scores(self, query: str) -> list[float]:
        """Return the score of each text, in their order."""
        lowered = query.lower()
        words = frozenset(lowered.split())
        keywords = [keyword for keyword in _SQL_KEYWORDS if keyword in lowered]
        return [
            float(
                len(words & text_words)
                + _PHRASE_BONUS * (lowered in text)
                + _SQL_KEYWORD_BONUS * sum(keyword in text for keyword in keywords)
            )
            for text, text_words in self._texts
        ]
