"""Passages that say what the question says, word by word."""

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Scoring


class Signal(Scoring):
    """The whole question, without its closing mark, within the passage."""

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return 1 where the passage holds it; case and white space count for nothing."""
        phrase = " ".join(asked.text.lower().rstrip(".?! ").split())
        return 1.0 if phrase and phrase in " ".join(passage.text.lower().split()) else 0.0
