"""Terms that a passage must hold where the question does."""

import re
from collections.abc import Sequence

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Choosing


class Signal(Choosing):
    """Leaves out passages without a required term, as long as at least one passage holds it."""

    terms: tuple[str, ...] = Field(min_length=1, description="Beginnings of words: `churn` stands for churned too.")

    def choose(self, asked: Asked, passages: Sequence[Passage]) -> list[Passage]:
        """Return those that hold every term of the question, in their text or in their headings."""
        kept = list(passages)
        for term in self.terms:
            pattern = re.compile(rf"\b{re.escape(term)}", re.IGNORECASE)
            if pattern.search(asked.text):
                holding = [passage for passage in kept if pattern.search(" ".join((*passage.section, passage.text)))]
                kept = holding or kept
        return kept
