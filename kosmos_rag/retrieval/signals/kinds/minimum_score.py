"""A score below which a passage is left out."""

from collections.abc import Sequence

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Choosing, Number


class Signal(Choosing):
    """Leaves out what scores less, with all that other signals have added."""

    minimum: Number = Field(description="As a share of the best score before signals, which is 1.")

    def choose(self, asked: Asked, passages: Sequence[Passage]) -> list[Passage]:  # noqa: ARG002
        """Return those that reach it."""
        return [passage for passage in passages if passage.score >= self.minimum]
