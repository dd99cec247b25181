"""Keywords of SQL that question and passage share."""

import re

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Scoring

_WORD = re.compile(r"\w+")


class Signal(Scoring):
    """The number of keywords that stand in both."""

    keywords: tuple[str, ...] = Field(
        default=("select", "sum", "count", "avg", "group", "where", "order"), description="In lower case."
    )

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return their number: the weight counts for each."""
        in_question = {word for word in _WORD.findall(asked.text.lower()) if word in self.keywords}
        return float(len(in_question.intersection(_WORD.findall(passage.text.lower())))) if in_question else 0.0
