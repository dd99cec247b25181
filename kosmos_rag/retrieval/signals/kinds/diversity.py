"""Passages that say the same further apart."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from kosmos_rag.core.config.values import Share
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Choosing
from kosmos_rag.retrieval.signals.words import words


class Signal(Choosing):
    """Maximal marginal relevance: each next passage is the best by score less likeness to those before it.

    Likeness is that of Jaccard between their words. Source: Carbonell and Goldstein, "The Use of MMR" (SIGIR 1998).
    """

    penalty: Share = Field(default=0.3, description="What a passage loses that repeats an earlier one word for word.")

    def choose(self, asked: Asked, passages: Sequence[Passage]) -> list[Passage]:  # noqa: ARG002
        """Return all of them, in their new order and with what each lost taken from its score."""
        left = dict.fromkeys(range(len(passages)), 0.0)
        chosen = []
        while left:
            best = max(left, key=lambda at: passages[at].score - self.penalty * left[at])
            likeness = left.pop(best)
            chosen.append(replace(passages[best], score=passages[best].score - self.penalty * likeness))
            for at in left:
                left[at] = max(left[at], _likeness(passages[best].text, passages[at].text))
        return chosen


def _likeness(one: str, other: str) -> float:
    a, b = words(one), words(other)
    return len(a & b) / len(a | b) if a or b else 0.0
