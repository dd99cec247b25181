"""How many of the question's words a passage holds."""

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Scoring
from kosmos_rag.retrieval.signals.words import words


class Signal(Scoring):
    """|words of the question ∩ words of the passage| / |words of the question|."""

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return the share; 0 for a question of words that say nothing."""
        wanted = asked.words
        return len(wanted & words(passage.text)) / len(wanted) if wanted else 0.0
