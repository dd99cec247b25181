"""Request and response of schema grounding, and the cache of groundings."""

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
from kosmos_rag.text2sql.prompt import selection_as_json

_CACHE_SIZE = 64
_REFRESH_S = 30.0
"""Seconds for which a result may still name tables that the reader may no longer see."""


class GroundingRequest(RequestBody):
    """A question about a database."""

    question: Annotated[str, Field(min_length=1, examples=["What is the success count for the forest fire program"])]
    collection: str = Field(default="schema", description="Collection of the schemas, from `kosmos-rag schema build`.")
    database: str | None = Field(default=None, description="Only this database; else all.")
    k: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(default=10, description="How many columns.")
    tables: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(default=5, description="How many tables.")
    max_tokens: Annotated[int, Field(ge=1, le=100_000, strict=True)] = Field(
        default=700, description="Budget of the prompt."
    )
    explain: bool = Field(default=False, strict=True, description="Add the scores of documents; needs the scope admin.")


class TableView(BaseModel):
    """A table and the parts of its score."""

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
    """Values, names, dates and numbers in the question."""

    quoted: list[str]
    values: list[str]
    names: list[str]
    dates: list[tuple[str, str | None]]
    numbers: list[str]
    comparisons: list[str]


class SchemaDocumentView(BaseModel):
    """A matching document of a table, a column or a recipe."""

    id: str
    kind: str | None
    scores: dict[str, Any] | None = None


class GroundingView(BaseModel):
    """Tables and columns that a question needs, with a prompt."""

    question: str
    database: str | None
    prompt: str
    tokens: int
    tables: list[TableView]
    schema_refs: list[ColumnView]
    join_hints: list[str]
    entities: EntitiesView
    selection: dict[str, Any] | None = Field(description="Tables, columns, joins, ambiguities and recipes as JSON.")
    left_out: list[tuple[str, str]] = Field(description="Tables over the token budget, with their database.")
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
            selection=selection_as_json(result.selection) if result.selection else None,
            left_out=list(result.left_out),
            docs=[_document(fields, explain=explain) for fields in result.as_json()["docs"]],
            warnings=list(result.warnings),
            milliseconds=round(sum(result.timings_ms[name] for name in ("total", "ground")), 1),
        )


def _document(scores: dict[str, Any], *, explain: bool) -> SchemaDocumentView:
    document_id, kind = scores.pop("id"), scores.pop("kind")
    return SchemaDocumentView(id=document_id, kind=kind, scores=scores if explain else None)


class GroundingCache:
    """LRU cache of `SchemaGrounding` per caller and collection.

    Building one reads all schemas.
    """

    def __init__(self) -> None:
        self._cache: LRUCache[tuple[str, ...], SchemaGrounding] = LRUCache(maxsize=_CACHE_SIZE)
        self._lock = threading.Lock()

    def search(self, tenant: Tenant, identity: Identity, query: GroundingRequest) -> GroundingResult:
        """Ground a question in the schemas that the caller may read.

        Args:
            tenant: the tenant, opened with the caller's principals.
            identity: the caller; part of the cache key.
            query: the question and its limits.

        Raises:
            KosmosError: as `SchemaGrounding.ask`.
        """
        # The subject is in the key because the audit log names it.
        key = (identity.tenant, identity.subject, query.collection, *identity.principals)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = SchemaGrounding(tenant, refresh_s=_REFRESH_S)
            grounding = self._cache[key]
        return grounding.ask(
            query.question, query.k, database=query.database, tables=query.tables, max_tokens=query.max_tokens
        )
