"""How much of a passage's heading the question says."""

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Scoring
from kosmos_rag.retrieval.signals.words import words


class Signal(Scoring):
    """The share of the words of the innermost heading that stand in the question."""

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return the share; 0 for a passage without a heading."""
        heading = words(passage.section[-1]) if passage.section else frozenset()
        return len(heading & asked.words) / len(heading) if heading else 0.0
