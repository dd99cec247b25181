"""The result of schema grounding, and its one JSON shape."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kosmos_rag.core.types import Passage
from kosmos_rag.text2sql.ambiguity import Ambiguity
from kosmos_rag.text2sql.filters import ValueFilter
from kosmos_rag.text2sql.linking.entities import Entities
from kosmos_rag.text2sql.linking.linking import LinkedTable
from kosmos_rag.text2sql.linking.time_ranges import TimeRange
from kosmos_rag.text2sql.prompt import Selection, selection_as_json
from kosmos_rag.text2sql.query_examples import QueryExample
from kosmos_rag.text2sql.recipes import Recipe

NO_SCHEMA = "there is no schema here that you may read; an operator adds one with kosmos-rag schema build"
"""The warning of a result without any schema."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaRef:
    """A column that a question asks for or filters by."""

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
    """Each column that the question supports once, best first. Keys that only join are in `join_hints`."""
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

    def to_dict(self, *, explain: bool = True) -> dict[str, Any]:
        """Return the result as values for JSON.

        The library, the command line, HTTP, MCP and the client have this one shape.

        Args:
            explain: Include the scores of documents and the timings of the stages.
        """
        entities = asdict(self.entities)
        entities["dates"] = [[text, None if day is None else day.isoformat()] for text, day in self.entities.dates]
        entities["time_ranges"] = [_time_range(item) for item in self.entities.time_ranges]
        return {
            "question": self.question,
            "database": self.database,
            "tables": [asdict(table) for table in self.tables],
            "schema_refs": [{"name": ref.name, **asdict(ref)} for ref in self.schema_refs],
            "join_hints": list(self.join_hints),
            "recipes": [_recipe(recipe) for recipe in self.recipes],
            "examples": [example.to_dict() for example in self.examples],
            "ambiguities": [{**asdict(item), "about": list(item.about)} for item in self.ambiguities],
            "filters": [item.to_dict() for item in self.filters],
            "entities": entities,
            "prompt": self.prompt,
            "tokens": self.tokens,
            "left_out": [list(pair) for pair in self.left_out],
            "docs": [_document(doc, explain=explain) for doc in self.docs],
            "warnings": list(self.warnings),
            "milliseconds": round(sum(self.timings_ms.get(name, 0.0) for name in ("total", "ground")), 1),
            **({"timings_ms": dict(self.timings_ms)} if explain else {}),
            "selection": selection_as_json(self.selection) if self.selection else None,
        }


def _time_range(item: TimeRange) -> dict[str, Any]:
    start, end = (None if day is None else day.isoformat() for day in (item.start, item.end))
    return {"text": item.text, "start": start, "end": end}


def _recipe(recipe: Recipe) -> dict[str, Any]:
    columns = [f"{table}.{column}" for table, column in recipe.columns]
    names = ("slug", "title", "text", "pattern", "curated", "note", "sql")
    return {
        **{name: getattr(recipe, name) for name in names},
        "tables": list(recipe.tables),
        "columns": columns,
        "join_hints": list(recipe.join_hints),
        "not_for": list(recipe.not_for),
    }


def _document(doc: Passage, *, explain: bool) -> dict[str, Any]:
    document = {"id": doc.source, "kind": doc.metadata.get("kind")}
    if not explain:
        return document
    scores = {
        "score": doc.score,
        "dense": doc.dense_score,
        "lexical": doc.lexical_score,
        "fused": doc.fused_score,
        "signals": dict(doc.signals),
    }
    return {**document, "scores": scores}
