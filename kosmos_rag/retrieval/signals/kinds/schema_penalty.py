"""Documents of a schema that have nothing in common with the question."""

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Number, Scoring
from kosmos_rag.retrieval.signals.schema_words import any_said, kind, meaning, name_words


class Signal(Scoring):
    """A penalty where words and meaning are both far away; a smaller one where only the table is another's."""

    weight: Number = 1.0
    nothing: Number = Field(default=-3.0, description="For a document of whose names the question says no word.")
    elsewhere: Number = Field(default=-2.0, description="For a column of a table of whose name it says no word.")
    low: Number = Field(default=0.3, description="Cosine below which a document means something else.")

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return the penalty; 0 for what is no document of a schema, and for what means the same."""
        if not kind(passage) or meaning(passage) >= self.low:
            return 0.0
        if not any_said(asked, passage):
            return self.nothing
        table = name_words(str(passage.metadata.get("table", "")))
        return self.elsewhere if table and not table & asked.words else 0.0
