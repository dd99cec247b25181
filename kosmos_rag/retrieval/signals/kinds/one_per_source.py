"""Breadth: a few passages of each source at most."""

from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from kosmos_rag.core.config.values import Count
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Choosing


class Signal(Choosing):
    """Keeps the best passage of each source, or the best few."""

    limit: Count = Field(default=1, description="Passages of one source.")

    def choose(self, asked: Asked, passages: Sequence[Passage]) -> list[Passage]:  # noqa: ARG002
        """Return those that stand among the first of their source."""
        taken: Counter[str] = Counter()
        kept = []
        for passage in passages:
            taken[passage.source] += 1
            if taken[passage.source] <= self.limit:
                kept.append(passage)
        return kept
