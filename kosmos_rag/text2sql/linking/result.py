"""The result of schema grounding."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kosmos_rag.core.types import Passage
from kosmos_rag.text2sql.linking.entities import Entities
from kosmos_rag.text2sql.linking.linking import LinkedTable
from kosmos_rag.text2sql.prompt import Selection, selection_as_json


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaRef:
    """A column that a question may need."""

    database: str
    table: str
    """Full name."""
    model: str
    """Name of its class; the table's name if there is none."""
    column: str
    score: float
    parts: Mapping[str, float]
    """Parts of the score, by the names of `Weights`."""

    @property
    def name(self) -> str:
        """`Model.column`."""
        return f"{self.model}.{self.column}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroundingResult:
    """The part of the schemas that a question needs."""

    question: str
    database: str | None
    """The likeliest one, of which references, joins, recipes and ambiguities are. None without tables."""
    docs: tuple[Passage, ...]
    """The retrieved documents, best first, each with its scores."""
    tables: tuple[LinkedTable, ...]
    """Of all databases, best first."""
    schema_refs: tuple[SchemaRef, ...]
    """Each column once, best first."""
    join_hints: tuple[str, ...]
    """Joins of the shortest paths between the selected tables, each once, the likeliest path first; then those to the
    next table, which the question may need too."""
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

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "question": self.question,
            "database": self.database,
            "tables": [asdict(table) for table in self.tables],
            "schema_refs": [{**asdict(ref), "name": ref.name} for ref in self.schema_refs],
            "join_hints": list(self.join_hints),
            "entities": asdict(self.entities),
            "docs": [
                {
                    "id": doc.source,
                    "kind": doc.metadata.get("kind"),
                    "score": doc.score,
                    "dense": doc.dense_score,
                    "lexical": doc.lexical_score,
                    "fused": doc.fused_score,
                    "signals": dict(doc.signals),
                }
                for doc in self.docs
            ],
            "prompt": self.prompt,
            "tokens": self.tokens,
            "left_out": list(self.left_out),
            "warnings": list(self.warnings),
            "timings_ms": dict(self.timings_ms),
            **({"selection": selection_as_json(self.selection)} if self.selection else {}),
        }
