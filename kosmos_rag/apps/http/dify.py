"""Dify's external knowledge API: a knowledge base of Dify is a collection."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from kosmos_rag.apps.http.openai.access import open_vector_stores
from kosmos_rag.apps.http.openai.search import merge_hits
from kosmos_rag.apps.http.toolkit.bodies import QUESTION
from kosmos_rag.apps.http.toolkit.concurrency import SEARCH, question_cost
from kosmos_rag.apps.http.toolkit.dependencies import Caller, Reader
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Filter, Passage
from kosmos_rag.core.types.files import parse_file_source

router = APIRouter(prefix="/dify", tags=["dify"])

_VALUES = {"is": "$eq", "is not": "$ne", "before": "$lt", "after": "$gt"}
_NUMBERS = {"=": "$eq", "≠": "$ne", ">": "$gt", "<": "$lt", "≥": "$gte", "≤": "$lte"}
_LISTS = {"in": "$in", "not in": "$nin"}
_TEXTS = {"contains": "$contains", "start with": "$starts_with", "end with": "$ends_with"}
_PRESENCE = {"empty": True, "not empty": False}
_OPERATORS = (*_VALUES, *_NUMBERS, *_LISTS, *_TEXTS, "not contains", *_PRESENCE)


class RetrievalSetting(BaseModel):
    """How many records, and from which score on."""

    top_k: Annotated[int, Field(ge=1, le=100, strict=True)]
    score_threshold: Annotated[float, Field(ge=0, le=1)] = 0.0


class MetadataCondition(BaseModel):
    """A condition on keys of metadata, of which one must hold."""

    name: Annotated[list[str], Field(min_length=1, max_length=20)]
    comparison_operator: str
    value: str | float | list[str] | None = None


class MetadataConditions(BaseModel):
    """Conditions on the metadata."""

    logical_operator: Literal["and", "or"] = "and"
    conditions: Annotated[list[MetadataCondition], Field(max_length=100)]


class RetrievalRequest(BaseModel):
    """A query to a knowledge base."""

    knowledge_id: str = Field(description="Name of the collection.", examples=["handbook"])
    query: Annotated[str, Field(min_length=1, examples=[QUESTION])]
    retrieval_setting: RetrievalSetting
    metadata_condition: MetadataConditions | None = None


class RetrievalRecord(BaseModel):
    """A passage."""

    content: str
    score: float
    title: str
    metadata: dict[str, Any]

    @classmethod
    def from_record(cls, hit: Passage, score: float) -> "RetrievalRecord":
        """Convert a hit."""
        # Dify refuses metadata that are null, and shows `path` and `description`.
        path = parse_file_source(hit.source, hit.document_id)[1]
        metadata = {**hit.metadata, "path": path, "description": hit.location, "document_id": str(hit.document_id)}
        return cls(content=hit.text, score=score, title=hit.title, metadata=metadata)


class RetrievalResponse(BaseModel):
    """The passages, best first."""

    records: list[RetrievalRecord]


@router.post("/retrieval")
async def retrieve(body: RetrievalRequest, caller: Reader) -> RetrievalResponse:
    """Find the best passages of a collection, for Dify."""
    setting = body.retrieval_setting
    hits = await caller.run_at_cost(question_cost(SEARCH, body.query), _search, caller, body)
    merged_hits = merge_hits([hits], limit=setting.top_k, threshold=setting.score_threshold)
    return RetrievalResponse(records=[RetrievalRecord.from_record(hit, score) for hit, score in merged_hits])


def _search(caller: Caller, body: RetrievalRequest) -> tuple[Passage, ...]:
    open_vector_stores(caller).require(body.knowledge_id)
    conditions = [_condition(entry) for entry in body.metadata_condition.conditions] if body.metadata_condition else []
    operator = body.metadata_condition.logical_operator if body.metadata_condition else "and"
    chosen = Filter(where={f"${operator}": conditions}) if conditions else None
    return caller.tenant(body.knowledge_id).search(body.query, body.retrieval_setting.top_k, chosen).hits


def _condition(entry: MetadataCondition) -> dict[str, Any]:
    if entry.comparison_operator == "not contains":
        containing = entry.model_copy(update={"comparison_operator": "contains"})
        return {"$or": [{"$not": {f"metadata.{name}": _comparison(containing)}} for name in entry.name]}
    compared = _comparison(entry)
    return {"$or": [{f"metadata.{name}": compared} for name in entry.name]}


def _comparison(entry: MetadataCondition) -> dict[str, Any]:
    operator, value = entry.comparison_operator, entry.value
    if operator in _PRESENCE:
        return {"$empty": _PRESENCE[operator]}
    if operator in _LISTS:
        return {_LISTS[operator]: value if isinstance(value, list) else str(value).split(",")}
    if operator in _VALUES and isinstance(value, str | float):
        return {_VALUES[operator]: value}
    if operator in _TEXTS and isinstance(value, str):
        return {_TEXTS[operator]: value}
    if operator in _NUMBERS and isinstance(value, str | float):
        try:
            return {_NUMBERS[operator]: float(value)}
        except ValueError:
            pass
    if operator not in _OPERATORS:
        raise RequestError(f"there is no comparison {operator[:40]!r} here; use one of {', '.join(_OPERATORS)}")
    raise RequestError(
        f"the condition {operator!r} on {entry.name[0][:60]!r} has the value {str(value)[:60]!r}; correct it"
    )
