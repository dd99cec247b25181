"""Columns whose own name and whose model's name the question both says."""

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Number, Scoring
from kosmos_rag.retrieval.signals.schema_words import COLUMN, kind, name_words, said


class Signal(Scoring):
    """1 for a column whose words all stand in the question, with a word of the model that the column's name lacks."""

    weight: Number = 6.0

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return 1 or 0."""
        if kind(passage) != COLUMN or not said(asked, passage, "column"):
            return 0.0
        own = name_words(str(passage.metadata["column"]))
        return float(bool((name_words(str(passage.metadata.get("model", ""))) - own) & asked.words))
