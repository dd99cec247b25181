"""Request bodies and pages of lists. Results are the records themselves (`core/types/serialize.py`)."""

import uuid
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kosmos_rag.apps.http.toolkit.bodies import History, Question, RequestBody
from kosmos_rag.core.types import (
    AccessGrant,
    CollectionInfo,
    DocumentInfo,
    Event,
    Filter,
    JobInfo,
    QuerySyntax,
    Rating,
    RatingReason,
    Rectangle,
    Stats,
)
from kosmos_rag.engine.query import MAX_QUESTIONS, Effort


class FilteredRequest(RequestBody):
    """The number of hits and a filter on documents."""

    k: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = Field(
        default=None, description="How many hits; else as configured."
    )
    collection: str | None = Field(default=None, description="Only this collection; else all.", examples=["handbook"])
    sources: list[str] = Field(default=[], description="Only these sources, or folders of sources.")
    where: dict[str, Any] = Field(
        default={}, description="Conditions on fields, docs/filters.md.", examples=[{"metadata.year": {"$gte": 2024}}]
    )
    syntax: QuerySyntax = Field(
        default="auto",
        description="Whether signs of the question are operators, docs/questions.md: `auto` in a question of operators "
        "and terms alone, `operators` in each question, `plain` in none.",
    )
    read_your_writes: bool = Field(
        default=False,
        strict=True,
        description="See what was written before; else a replica of the database may answer, some seconds behind.",
    )
    explain: bool = Field(
        default=False,
        strict=True,
        description="Add the fields marked `x-explain`: scores, timings, plans. Needs the scope admin.",
    )

    @property
    def filter(self) -> Filter | None:
        """The filter of the library."""
        return Filter(sources=tuple(self.sources), where=self.where) if self.sources or self.where else None


class SearchRequest(FilteredRequest):
    """A question or several, and how their hits are returned."""

    question: Question | Annotated[list[Question], Field(min_length=1, max_length=MAX_QUESTIONS)]
    cursor: str | None = Field(
        default=None, description="`*` for the first of several pages, then `next_cursor` of the page before."
    )
    group_by: Literal["document"] | None = Field(
        default=None, description="`document`: a hit for each document, with other passages in `inner_hits`."
    )
    group_size: Annotated[int, Field(ge=1, le=100, strict=True)] | None = Field(
        default=None, description="Passages of a group, the hit included; else 3."
    )
    facets: list[str] = Field(
        default=[], max_length=20, description="Fields whose values are counted.", examples=[["metadata.team"]]
    )
    mmr: Annotated[float, Field(ge=0, le=1, strict=True)] | None = Field(
        default=None, description="Weight of relevance in maximal marginal relevance; else no reordering."
    )
    effort: Effort = Field(
        default="low",
        description="`high`: the hits of up to six searches that the language model plans, fused; `low`: one search.",
    )
    today: date | None = Field(
        default=None, description="Reference date of `last week` in a question, and of validity; else the day in UTC."
    )

    @property
    def options(self) -> dict[str, Any]:
        """The options of `Tenant.search`."""
        return self.model_dump(include={"cursor", "group_by", "group_size", "facets", "mmr", "today", "effort"})


class ContextRequest(FilteredRequest):
    """A question and the token budget of its context."""

    question: Question
    max_tokens: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="Budget in tokens; else as configured."
    )


class AnswerRequest(ContextRequest):
    """A question to answer."""

    history: History = Field(default=[])


class FeedbackRequest(RequestBody):
    """A rating of a result, a question or a passage.

    The result is named by its `retrieval_id`, the passage by its chunk.
    """

    rating: Rating
    retrieval_id: uuid.UUID | None = Field(default=None, description="`retrieval_id` of the search result.")
    question: str | None = Field(default=None, description="The question, where there is no retrieval_id.")
    collection: str | None = Field(default=None, description="The collection that was searched; else all.")
    chunk_id: uuid.UUID | None = Field(default=None, description="The rated passage; else the whole result.")
    comment: str | None = Field(default=None, max_length=2000)
    reason: RatingReason | None = Field(
        default=None, description="Of a rating down; `not_covered`, that the documents do not answer, of any rating."
    )


class CollectionRequest(RequestBody):
    """A collection to create."""

    name: str = Field(examples=["handbook"])
    preset: str = Field(description="One of docs/presets.md.", examples=["corporate"])


class PresetRequest(RequestBody):
    """Another preset of a collection."""

    preset: str = Field(description="One of docs/presets.md.", examples=["corporate-enforced"])


class MetadataRequest(RequestBody):
    """Changes of a document's metadata."""

    metadata: dict[str, Any] = Field(
        min_length=1, description="New values by key; null removes the key.", examples=[{"approved": True}]
    )


class DocumentPage(BaseModel):
    """Documents by source.

    `next` is the cursor of the next page, null on the last one.
    """

    documents: list[DocumentInfo]
    next: str | None


class JobPage(BaseModel):
    """Jobs, newest first.

    `next` is the cursor of the next page, null on the last one.
    """

    jobs: list[JobInfo]
    next: str | None


class EventPage(BaseModel):
    """Events, oldest first.

    `next` is the cursor to continue with, also where no event is new.
    """

    events: list[Event]
    next: str


class AccessPage(BaseModel):
    """Rights to read documents, by source.

    `next` is the cursor of the next page, null on the last one.
    """

    grants: list[AccessGrant]
    next: str | None


class JobsChanged(BaseModel):
    """Ids of the jobs that a call changed."""

    jobs: list[uuid.UUID]


class RectangleList(BaseModel):
    """The places of a span, in the order of the text."""

    rectangles: list[Rectangle]


class CollectionList(BaseModel):
    """All collections, by name."""

    collections: list[CollectionInfo]


class Reload(BaseModel):
    """Jobs that read their sources again, and the current totals."""

    status: Literal["reloading", "nothing to reload"]
    message: str | None = Field(default=None, description="What to do where no source is read again.")
    jobs: list[uuid.UUID]
    stats: Stats
