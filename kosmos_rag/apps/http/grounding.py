"""Schema grounding over the wire, and the groundings that are kept between requests."""

import threading
from dataclasses import asdict
from typing import Annotated, Any, Self

from cachetools import LRUCache
from pydantic import BaseModel, Field

from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.http.schemas import RequestBody
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.linking.result import GroundingResult
from kosmos_rag.text2sql.prompt import as_json

_KEPT = 64
_REFRESH_S = 30.0
"""So long may an answer still name tables whose documents the reader has lost."""


class GroundingRequest(RequestBody):
    """A question about a database."""

    question: Annotated[str, Field(min_length=1, examples=["What is the success count for the forest fire program"])]
    collection: str = Field(default="schema", description="Where the schemas are, by `kosmos-rag schema build`.")
    database: str | None = Field(default=None, description="Only this database; else all.")
    k: Annotated[int, Field(ge=1, le=1000)] = Field(default=10, description="Columns to name.")
    tables: Annotated[int, Field(ge=1, le=1000)] = Field(default=5, description="Tables to find.")
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = Field(default=700, description="Budget of the prompt.")
    explain: bool = Field(default=False, description="Tell the scores of documents; needs the scope admin.")


class TableView(BaseModel):
    """A table, with what its score is made of."""

    database: str
    table: str
    score: float
    parts: dict[str, float]


class ColumnView(BaseModel):
    """A column that the question may need."""

    name: str
    database: str
    table: str
    model: str
    column: str
    score: float
    parts: dict[str, float]


class EntitiesView(BaseModel):
    """What the question names beside tables and columns."""

    quoted: list[str]
    values: list[str]
    names: list[str]
    dates: list[tuple[str, str | None]]
    numbers: list[str]
    comparisons: list[str]


class SchemaDocumentView(BaseModel):
    """A document of a table, a column or a recipe that was found."""

    id: str
    kind: str | None
    scores: dict[str, Any] | None = None


class GroundingView(BaseModel):
    """The part of the schemas that a question needs, and the block of a prompt that says it."""

    question: str
    database: str | None
    prompt: str
    tokens: int
    tables: list[TableView]
    schema_refs: list[ColumnView]
    join_hints: list[str]
    entities: EntitiesView
    selection: dict[str, Any] | None = Field(description="Tables, columns, joins, ambiguities and recipes, as values.")
    left_out: list[tuple[str, str]] = Field(description="Tables that the budget had no room for, with their database.")
    docs: list[SchemaDocumentView]
    warnings: list[str]
    milliseconds: float

    @classmethod
    def from_record(cls, result: GroundingResult, *, explain: bool) -> Self:
        """Serialise a result; the scores of documents only with `explain`."""
        entities = asdict(result.entities)
        entities["dates"] = [(text, None if day is None else day.isoformat()) for text, day in result.entities.dates]
        return cls(
            question=result.question,
            database=result.database,
            prompt=result.prompt,
            tokens=result.tokens,
            tables=[TableView(**asdict(table)) for table in result.tables],
            schema_refs=[ColumnView(name=ref.name, **asdict(ref)) for ref in result.schema_refs],
            join_hints=list(result.join_hints),
            entities=EntitiesView(**entities),
            selection=as_json(result.selection) if result.selection else None,
            left_out=list(result.left_out),
            docs=[_document(told, explain=explain) for told in result.as_json()["docs"]],
            warnings=list(result.warnings),
            milliseconds=round(sum(result.timings_ms[name] for name in ("total", "ground")), 1),
        )


def _document(told: dict[str, Any], *, explain: bool) -> SchemaDocumentView:
    document_id, kind = told.pop("id"), told.pop("kind")
    return SchemaDocumentView(id=document_id, kind=kind, scores=told if explain else None)


class Groundings:
    """One grounding for each caller and collection, kept while others do not crowd it out: it has read the schemas."""

    def __init__(self) -> None:
        self._kept: LRUCache[tuple[str, ...], SchemaGrounding] = LRUCache(maxsize=_KEPT)
        self._lock = threading.Lock()

    def search(self, tenant: Tenant, who: Identity, query: GroundingRequest) -> GroundingResult:
        """Ground a question in what a scope of this caller's may read. Raises what `SchemaGrounding.ask` raises."""
        # With the subject: what is asked through it is in the log under that name.
        key = (who.tenant, who.subject, query.collection, *who.principals)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = SchemaGrounding(tenant, refresh_s=_REFRESH_S)
            grounding = self._kept[key]
        return grounding.ask(
            query.question, query.k, database=query.database, tables=query.tables, max_tokens=query.max_tokens
        )
