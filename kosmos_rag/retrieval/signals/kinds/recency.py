"""New documents before old ones."""

from datetime import date

from pydantic import Field

from kosmos_rag.core.config.values import Count
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Scoring


class Signal(Scoring):
    """1 for a document of today, halved with each half-life: 2 ** -(age / half-life)."""

    key: str = Field(default="date", description="Key of the metadata that holds a date, 2026-03-31.")
    half_life_days: Count = Field(default=180, description="Days after which a document is worth half.")

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return 0 for a document without a date; one of the future is as one of today."""
        try:
            written = date.fromisoformat(str(passage.metadata.get(self.key))[:10])
        except ValueError:
            return 0.0
        return float(2 ** -(max(0, (asked.today - written).days) / self.half_life_days))
