"""The result of schema grounding."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kosmos_rag.core.types import Passage
from kosmos_rag.text2sql.prompt import Selection, selection_as_json
from kosmos_rag.text2sql.records import (
    Ambiguity,
    Entities,
    Grounding,
    LinkedTable,
    QueryExample,
    Recipe,
    SchemaDocument,
    SchemaRef,
    ValueFilter,
)

NO_SCHEMA = "there is no schema here that you may read; an operator adds one with kosmos-rag schema build"
"""The warning of a result without any schema."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroundingResult:
    """The part of the schemas that a question needs."""

    question: str
    docs: tuple[Passage, ...]
    """The retrieved documents, best first, each with its scores."""
    tables: tuple[LinkedTable, ...]
    """Of all databases, best first."""
    schema_refs: tuple[SchemaRef, ...]
    """Each column that the question supports once, best first. Keys that only join are in `join_hints`."""
    selection: Selection | None
    """Tables, joins, recipes and ambiguities of the prompt."""
    entities: Entities
    prompt: str
    tokens: int
    """Of the prompt, counted by the embedding model."""
    left_out: tuple[tuple[str, str], ...]
    """Database and name of tables that did not fit the token budget."""
    warnings: tuple[str, ...]
    timings_ms: Mapping[str, float]

    @property
    def database(self) -> str | None:
        """The likeliest one, of which references, joins, recipes and ambiguities are; None without tables."""
        return self.selection.schema.name if self.selection else None

    @property
    def join_hints(self) -> tuple[str, ...]:
        """Joins of the shortest paths between the selected tables; then those to the next table."""
        return self.selection.join_hints if self.selection else ()

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Recipes for questions like this one, best first."""
        return self.selection.recipes if self.selection else ()

    @property
    def examples(self) -> tuple[QueryExample, ...]:
        """Accepted queries for similar questions, the most similar first."""
        return self.selection.examples if self.selection else ()

    @property
    def ambiguities(self) -> tuple[Ambiguity, ...]:
        """Decisions to take before SQL is written."""
        return self.selection.ambiguities if self.selection else ()

    @property
    def filters(self) -> tuple[ValueFilter, ...]:
        """Conditions on the values and times that the question says."""
        return self.selection.filters if self.selection else ()

    def to_record(self, *, explain: bool = True) -> Grounding:
        """Return the record that interfaces send.

        Args:
            explain: Include the scores of documents and the timings of the stages.
        """
        return Grounding(
            question=self.question,
            database=self.database,
            prompt=self.prompt,
            tokens=self.tokens,
            tables=self.tables,
            schema_refs=self.schema_refs,
            join_hints=self.join_hints,
            recipes=self.recipes,
            examples=self.examples,
            ambiguities=self.ambiguities,
            filters=self.filters,
            entities=self.entities,
            selection=selection_as_json(self.selection) if self.selection else None,
            left_out=self.left_out,
            docs=tuple(_document(doc, explain=explain) for doc in self.docs),
            warnings=self.warnings,
            milliseconds=round(sum(self.timings_ms.get(name, 0.0) for name in ("total", "ground")), 1),
            timings_ms=dict(self.timings_ms) if explain else None,
        )

    def to_dict(self, *, explain: bool = True) -> dict[str, Any]:
        """Return the record as values for JSON; see `to_record`."""
        values: dict[str, Any] = self.to_record(explain=explain).to_dict()
        return values


def _document(doc: Passage, *, explain: bool) -> SchemaDocument:
    scores = {
        "score": doc.score,
        "dense": doc.dense_score,
        "lexical": doc.lexical_score,
        "fused": doc.fused_score,
        "signals": dict(doc.signals),
    }
    return SchemaDocument(id=doc.source, kind=doc.metadata.get("kind"), scores=scores if explain else None)
