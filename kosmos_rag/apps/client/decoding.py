"""The service's JSON as the library's records. What the service keeps to itself is NaN, None or empty in them."""

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from kosmos_rag.apps.client.transport import Grounding, Page, Stats
from kosmos_rag.core.types import (
    Answer,
    AnswerSentence,
    AnswerSources,
    Arm,
    CheckedSentence,
    Citation,
    CitationReport,
    CollectionInfo,
    Context,
    ContextPassage,
    DocumentInfo,
    Expansion,
    ExperimentAssignment,
    Feedback,
    JobInfo,
    JobState,
    Passage,
    Rating,
    RetrieverStats,
    SearchResult,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")
Told = Mapping[str, Any]

_NO_SCORES: Told = {
    "score": math.nan,
    "dense_rank": None,
    "dense_score": None,
    "lexical_rank": None,
    "lexical_score": None,
    "fused_rank": 0,
    "fused_score": math.nan,
    "rerank_score": None,
    "score_contributions": {},
    "signals": {},
}


def retrieval(told: Told) -> SearchResult:
    """Read the answer to a search; legs and stages are known where it was asked to explain."""
    account = told["explain"] or {}
    expansion = account.get("expansion", {})
    return _retrieval(
        told,
        hits=tuple(passage(hit) for hit in told["hits"]),
        requested=told["requested"],
        stages=tuple(told["stages"]),
        degraded_stages=tuple(told["degraded_stages"]),
        incomplete_reason=told["incomplete_reason"],
        timings_ms=account.get("timings_ms", {"total": told["milliseconds"]}),
        retrievers={name: _record(RetrieverStats, leg) for name, leg in account.get("retrievers", {}).items()},
        expansion=Expansion(
            synonyms=tuple(expansion.get("synonyms", ())),
            wordings=tuple(expansion.get("wordings", ())),
            passage=expansion.get("passage"),
        ),
        intent=account.get("intent"),
        cached=account.get("cached", False),
    )


def _retrieval(told: Told, **known: Any) -> SearchResult:
    unknown: Told = {
        "hits": (),
        "requested": 0,
        "stages": (),
        "degraded_stages": (),
        "incomplete_reason": None,
        "timings_ms": {},
        "retrievers": {},
        "expansion": Expansion(),
        "cached": False,
    }
    return SearchResult(
        **{**unknown, **known},
        question=told["question"],
        warnings=tuple(told["warnings"]),
        id=_uuid(told["retrieval_id"]),
        experiment=_served(told.get("experiment")),
    )


def _served(told: Told | None) -> ExperimentAssignment | None:
    return None if told is None else ExperimentAssignment(experiment=told["experiment"], arm=Arm(told["arm"]))


def passage(told: Told) -> Passage:
    """Read a hit."""
    scores = told["scores"] or {}
    known: dict[str, Any] = {name: scores.get(name, unknown) for name, unknown in _NO_SCORES.items()}
    return Passage(
        **known,
        **_place(told),
        rank=told["rank"],
        chunk_id=uuid.UUID(told["chunk_id"]),
        media_type=told["media_type"],
        metadata=told["metadata"],
        chunk_index=told["chunk_index"],
        text=told["text"],
        chunker=told["chunker"],
        collection=told["collection"],
    )


def citation(told: Told) -> Citation:
    """Read a citation."""
    return Citation(**_place(told), index=told["index"], marker=told["marker"], quote_sha256=told["quote_sha256"])


def _place(told: Told) -> dict[str, Any]:
    """Return what hits and citations have in common: of which document, and where in it."""
    first_page, last_page = told["pages"] or (None, None)
    return {
        "document_id": uuid.UUID(told["document_id"]),
        "version_id": uuid.UUID(told["version_id"]),
        "version": told["version"],
        "source": told["source"],
        "title": told["title"],
        "section": tuple(told["section"]),
        "start": told["span"][0],
        "end": told["span"][1],
        "line_start": told["lines"][0],
        "line_end": told["lines"][1],
        "page_start": first_page,
        "page_end": last_page,
    }


def context(told: Told) -> Context:
    """Read numbered evidence; of its retrieval, what the reader should know."""
    return Context(
        question=told["question"],
        text=told["text"],
        passages=tuple(_evidence(one) for one in told["passages"]),
        tokens=told["tokens"],
        max_tokens=told["max_tokens"],
        omitted=told["omitted"],
        retrieval=_retrieval(told),
    )


def _evidence(told: Told) -> ContextPassage:
    first_page, last_page = told["pages"] or (None, None)
    return ContextPassage(
        citation=citation(told["citation"]),
        text=told["text"],
        start=told["start"],
        page_start=first_page,
        page_end=last_page,
        page_breaks=tuple(told["page_breaks"]),
        score=math.nan,
        tokens=told["tokens"],
        chunk_ids=tuple(uuid.UUID(chunk_id) for chunk_id in told["chunk_ids"]),
    )


def sources(told: Told) -> AnswerSources:
    """Read the first event of an answer."""
    return AnswerSources(
        question=told["question"], context=_looked_at(told), refused=told["refused"], warnings=tuple(told["warnings"])
    )


def answer(told: Told) -> Answer:
    """Read an answer."""
    report = told["report"]
    return Answer(
        question=told["question"],
        text=told["text"],
        mode=told["mode"],
        refused=told["refused"],
        verified=told["verified"],
        confidence=told["confidence"],
        features={},
        sentences=tuple(_sentence(one) for one in told["sentences"]),
        report=None if report is None else CitationReport(sentences=tuple(_checked(one) for one in report)),
        context=_looked_at(told),
        warnings=tuple(told["warnings"]),
    )


def _looked_at(told: Told) -> Context:
    """Read the passages of an answer; the text that a prompt would have of them is not told."""
    passages = tuple(_evidence(one) for one in told["sources"])
    tokens = sum(one.tokens for one in passages)
    searched = {**told, "question": told["search_query"]}
    return Context(
        question=told["search_query"],
        text="",
        passages=passages,
        tokens=tokens,
        max_tokens=tokens,
        omitted={},
        retrieval=_retrieval(searched),
    )


def _sentence(told: Told) -> AnswerSentence:
    return AnswerSentence(
        text=told["text"], kind=told["kind"], score=told["score"], citation=citation(told["citation"])
    )


def _checked(told: Told) -> CheckedSentence:
    return CheckedSentence(
        text=told["text"],
        markers=tuple(told["markers"]),
        verdict=told["verdict"],
        reason=told["reason"],
        overlap=told["overlap"],
        similarity=told["similarity"],
        quotes=tuple(_sentence(one) for one in told["quotes"]),
    )


def document(told: Told) -> DocumentInfo:
    """Read a document."""
    return _record(DocumentInfo, told, id=uuid.UUID(told["id"]), updated_at=datetime.fromisoformat(told["updated_at"]))


def job(told: Told) -> JobInfo:
    """Read a job; of its payload, the source of a document is told and nothing else."""
    source = told["source"]
    times = {name: _time(told[name]) for name in ("run_at", "created_at", "started_at", "finished_at")}
    payload = {} if source is None else {"document": {"source": source}}
    return _record(JobInfo, told, **times, state=JobState(told["state"]), payload=payload)


def collection(told: Told) -> CollectionInfo:
    """Read a collection."""
    return _record(CollectionInfo, told, created_at=_time(told["created_at"]))


def feedback(told: Told) -> Feedback:
    """Read a rating as it is kept."""
    ids = {name: _uuid(told[name]) for name in ("id", "retrieval_id", "chunk_id")}
    return _record(Feedback, told, **ids, at=_time(told["at"]), rating=Rating(told["rating"]))


def grounding(told: Told) -> Grounding:
    """Read the part of the schemas that a question needs."""
    several = {name: tuple(told[name]) for name in ("tables", "schema_refs", "join_hints", "docs", "warnings")}
    left_out = tuple((database, table) for database, table in told["left_out"])
    return _record(Grounding, told, **several, left_out=left_out)


def stats(told: Told) -> Stats:
    """Read the totals."""
    return _record(Stats, told)


def page(told: Told, items: str, read: Callable[[Told], T]) -> Page[T]:
    """Read a page whose items have this name."""
    return Page(items=tuple(read(one) for one in told[items]), next=told["next"])


def _record(kind: type[D], told: Told, **read: Any) -> D:
    """Return a record of what is told by the names of its fields: a newer service may tell more."""
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in told.items() if name in names} | read)


def _uuid(text: str | None) -> uuid.UUID | None:
    return None if text is None else uuid.UUID(text)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
