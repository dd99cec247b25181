"""Names of columns, models and tables that the question says."""

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Number, Scoring
from kosmos_rag.retrieval.signals.schema_words import said


class Signal(Scoring):
    """A bonus for each name whose words all stand in the question."""

    weight: Number = 1.0
    column: Number = Field(default=3.0, description="For the name of the column.")
    model: Number = Field(default=2.0, description="For the name of the class.")
    table: Number = Field(default=1.5, description="For the name of the table.")

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return the sum; 0 for a document that is not of a schema."""
        worth = {"column": self.column, "model": self.model, "table": self.table}
        return sum(value for key, value in worth.items() if said(asked, passage, key))
