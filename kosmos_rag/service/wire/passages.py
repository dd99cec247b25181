"""Passages that were found, and the account of how."""

import dataclasses
import uuid
from typing import Any, Self

from pydantic import BaseModel, Field

from kosmos_rag.records import Passage, Retrieval, Served, page_range

LOGGED = Field(description="Its record in the log, for feedback on it; null where no log is kept.")
TRIED = Field(description="Which configuration of an experiment answered; null where none runs that may change that.")


class HitView(BaseModel):
    """A passage that was found. Scores are told on request only, to who may see them: they say what others hold."""

    rank: int
    title: str
    source: str
    collection: str
    section: list[str]
    lines: tuple[int, int]
    pages: tuple[int, int] | None
    place: str
    text: str
    span: tuple[int, int]
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    chunk_id: uuid.UUID
    ordinal: int
    splitter: str
    media_type: str
    metadata: dict[str, Any]
    scores: dict[str, Any] | None = None

    @classmethod
    def of(cls, hit: Passage, *, explain: bool) -> Self:
        """Tell of a passage."""
        return cls(
            rank=hit.rank,
            title=hit.title,
            source=hit.source,
            collection=hit.collection,
            section=list(hit.section),
            lines=(hit.line_start, hit.line_end),
            pages=page_range(hit),
            place=hit.place,
            text=hit.text,
            span=(hit.start, hit.end),
            document_id=hit.document_id,
            version_id=hit.version_id,
            version=hit.version,
            chunk_id=hit.chunk_id,
            ordinal=hit.ordinal,
            splitter=hit.splitter,
            media_type=hit.media_type,
            metadata=dict(hit.metadata),
            scores=_scores(hit) if explain else None,
        )


def _scores(hit: Passage) -> dict[str, Any]:
    names = ("score", "dense_rank", "dense_score", "lexical_rank", "lexical_score", "fused_rank", "fused_score")
    return {
        **{name: getattr(hit, name) for name in names},
        "rerank_score": hit.rerank_score,
        "shares": dict(hit.shares),
        "signals": dict(hit.signals),
    }


class SearchView(BaseModel):
    """The answer to a search."""

    retrieval_id: uuid.UUID | None = LOGGED
    experiment: Served | None = TRIED
    question: str
    requested: int
    returned: int
    hits: list[HitView]
    notes: list[str]
    skipped: list[str]
    shortfall: str | None
    milliseconds: float
    stages: list[str]
    account: dict[str, Any] | None = None

    @classmethod
    def of(cls, found: Retrieval, *, explain: bool) -> Self:
        """Tell of a retrieval."""
        return cls(
            retrieval_id=found.id,
            experiment=found.experiment,
            question=found.question,
            requested=found.requested,
            returned=found.returned,
            hits=[HitView.of(hit, explain=explain) for hit in found.hits],
            notes=list(found.notes),
            skipped=list(found.skipped),
            shortfall=found.shortfall,
            milliseconds=round(found.timings_ms["total"], 1),
            stages=list(found.stages),
            account=_account(found) if explain else None,
        )


def _account(found: Retrieval) -> dict[str, Any]:
    return {
        "timings_ms": dict(found.timings_ms),
        "legs": {name: dataclasses.asdict(leg) for name, leg in found.legs.items()},
        "expansion": dataclasses.asdict(found.expansion),
        "intent": found.intent,
        "cached": found.cached,
    }
