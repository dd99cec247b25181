"""The classic ranking: a count of shared words, and extra points for phrases and for words of SQL."""

from collections.abc import Sequence

_PHRASE = 10
_SQL_KEYWORD = 2
_SQL_KEYWORDS = ("select", "sum", "count", "avg", "group", "where", "order")


class ClassicRanking:
    """Scores a paragraph by one point a word that it shares with the query, as white space separates them.

    Ten more where the whole query stands in it, and two for each SQL keyword that stands in both, be it within a word.
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
                len(words & own)
                + _PHRASE * (lowered in text)
                + _SQL_KEYWORD * sum(keyword in text for keyword in keywords)
            )
            for text, own in self._texts
        ]
