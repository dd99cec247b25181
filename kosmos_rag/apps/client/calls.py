"""The calls of the service: requests, and parsers of their responses."""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from kosmos_rag.apps.client.transport import Call, Page, Request, omit_none
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import (
    AccessGrant,
    Answer,
    CollectionInfo,
    Context,
    DocumentInfo,
    DocumentSort,
    Event,
    Feedback,
    Filter,
    JobInfo,
    JobState,
    QuerySyntax,
    Rating,
    RatingReason,
    Rectangle,
    SearchResult,
    SourceDocument,
    Stats,
    Turn,
)
from kosmos_rag.core.types.serialize import from_dict, to_dict

T = TypeVar("T")


def _query(question: str | Sequence[str], k: int | None, filter: Filter | None, **options: Any) -> dict[str, Any]:  # noqa: A002
    conditions = {"sources": list(filter.sources), "where": dict(filter.where)} if filter else {}
    value = question if isinstance(question, str) else list(question)
    return omit_none(question=value, k=k, **conditions, **options)


def search(
    question: str | Sequence[str],
    k: int | None = None,
    filter: Filter | None = None,  # noqa: A002 — the word that callers expect
    *,
    cursor: str | None = None,
    group_by: Literal["document"] | None = None,
    group_size: int | None = None,
    facets: Sequence[str] = (),
    mmr: float | None = None,
    today: date | None = None,
    effort: Literal["low", "high"] = "low",
    collection: str | None = None,
    syntax: QuerySyntax = "auto",
    read_your_writes: bool = False,
    explain: bool = False,
) -> Call[SearchResult]:
    """Find the best passages for a question, or for several.

    Args:
        question: The question, or a list of 1 to 10 questions whose hits are fused.
        k: Number of passages; None for the configured number.
        filter: Search only documents that match.
        cursor: `*` for the first of several pages, `next_cursor` of a result for the next one; None for no pages.
        group_by: `document` for a hit for each document, with its other passages in `inner_hits`.
        group_size: Passages of a group, the hit included; None for 3.
        facets: Fields whose values are counted, docs/search.md.
        mmr: Weight of relevance, 0 to 1, in maximal marginal relevance; None for no reordering.
        today: Reference date of `last week` in a question, and of validity; None for the day in UTC.
        effort: `high` for the fused hits of up to six searches that the language model plans.
        collection: Search only this collection; None for all.
        syntax: Whether signs are operators: `auto`, `operators` or `plain`.
        read_your_writes: See what was written before; else a replica may answer, some seconds behind.
        explain: Add scores and plans; needs the scope admin.
    """
    options = {"cursor": cursor, "group_by": group_by, "group_size": group_size, "facets": list(facets), "mmr": mmr}
    body = _query(
        question,
        k,
        filter,
        collection=collection,
        syntax=syntax,
        read_your_writes=read_your_writes,
        explain=explain,
        today=None if today is None else today.isoformat(),
        effort=effort,
        **options,
    )
    return Call(method="POST", path="/v1/search", body=body, read=partial(from_dict, SearchResult))


def context(
    question: str,
    k: int | None = None,
    filter: Filter | None = None,  # noqa: A002
    *,
    max_tokens: int | None = None,
    collection: str | None = None,
    syntax: QuerySyntax = "auto",
    read_your_writes: bool = False,
    explain: bool = False,
) -> Call[Context]:
    """Collect numbered, cited evidence for a question within a budget of tokens.

    Args:
        k: Number of passages to search; None for the configured number.
        filter: Search only documents that match.
        max_tokens: Budget in tokens; None for the configured one.
        collection: Search only this collection; None for all.
        syntax: Whether signs are operators: `auto`, `operators` or `plain`.
        read_your_writes: See what was written before; else a replica may answer, some seconds behind.
        explain: Add scores and plans; needs the scope admin.
    """
    body = _query(
        question,
        k,
        filter,
        max_tokens=max_tokens,
        collection=collection,
        syntax=syntax,
        read_your_writes=read_your_writes,
        explain=explain,
    )
    return Call(method="POST", path="/v1/context", body=body, read=partial(from_dict, Context))


def answer(
    question: str,
    k: int | None = None,
    filter: Filter | None = None,  # noqa: A002
    *,
    max_tokens: int | None = None,
    history: Sequence[Turn] = (),
    collection: str | None = None,
    syntax: QuerySyntax = "auto",
    read_your_writes: bool = False,
    explain: bool = False,
) -> Call[Answer]:
    """Answer a question from the evidence, or refuse.

    Args:
        k: Number of passages to search; None for the configured number.
        filter: Search only documents that match.
        max_tokens: Budget of the evidence in tokens; None for the configured one.
        history: The conversation so far, the latest turn last.
        collection: Search only this collection; None for all.
        syntax: Whether signs are operators: `auto`, `operators` or `plain`.
        read_your_writes: See what was written before; else a replica may answer, some seconds behind.
        explain: Add scores and plans; needs the scope admin.
    """
    turns = [to_dict(turn) for turn in history]
    body = _query(
        question,
        k,
        filter,
        max_tokens=max_tokens,
        collection=collection,
        history=turns,
        syntax=syntax,
        read_your_writes=read_your_writes,
        explain=explain,
    )
    return Call(method="POST", path="/v1/answer", body=body, read=partial(from_dict, Answer))


def stream_answer(
    question: str,
    k: int | None = None,
    filter: Filter | None = None,  # noqa: A002
    *,
    max_tokens: int | None = None,
    history: Sequence[Turn] = (),
    collection: str | None = None,
    syntax: QuerySyntax = "auto",
    read_your_writes: bool = False,
) -> Request:
    """Stream an answer: `AnswerSources`, then `AnswerPiece`s, `AnswerDone` last. Args: see `answer`."""
    call = answer(
        question,
        k,
        filter,
        max_tokens=max_tokens,
        history=history,
        collection=collection,
        syntax=syntax,
        read_your_writes=read_your_writes,
    )
    return Request(method=call.method, path=call.path, body=call.body, headers={"accept": "text/event-stream"})


def upload(document: SourceDocument, *, collection: str | None = None, key: str | None = None) -> Call[JobInfo]:
    """Upload a document and return its job.

    Args:
        collection: The collection; None for the default one.
        key: The idempotency key: an upload with the same key returns the same job. None for a new one.

    Raises RequestError where nobody may read it: a request without readers is for everyone.
    """
    if not document.acl:
        raise RequestError(f"acl of {document.source!r} is empty; give at least one name, ('finance',)")
    params = {
        "source": document.source,
        "collection": collection,
        "title": document.title,
        "language": document.language,
        "reader": list(document.acl),
        "metadata": json.dumps(dict(document.metadata)),
    }
    return Call(
        method="POST",
        path="/v1/documents",
        params=params,
        content=document.data,
        headers={"content-type": "application/octet-stream", "idempotency-key": key or uuid.uuid4().hex},
        read=partial(from_dict, JobInfo),
    )


def documents(
    *, collection: str | None = None, sort: DocumentSort = "source", limit: int = 100, cursor: str | None = None
) -> Call[Page[DocumentInfo]]:
    """List the documents that you may read.

    Args:
        collection: Only this collection; None for all.
        sort: By source, or by a number with the largest first.
        limit: Page size.
        cursor: `next` of the previous page; None for the first one.
    """
    params = {"collection": collection, "sort": sort, "limit": limit, "cursor": cursor}
    read = partial(_read_page, items="documents", kind=DocumentInfo)
    return Call(method="GET", path="/v1/documents", params=params, read=read)


def document(document_id: uuid.UUID) -> Call[DocumentInfo]:
    """Return a document."""
    return Call(method="GET", path=f"/v1/documents/{document_id}", read=partial(from_dict, DocumentInfo))


def rectangles(document_id: uuid.UUID, start: int, end: int, *, version: int | None = None) -> Call[list[Rectangle]]:
    """Return the places of a span on the pages of a PDF.

    A line or a table each.

    Args:
        start: First character of the span, as a citation has it.
        end: The character after its last one.
        version: The version that the span is of; None for the current one.
    """
    path, params = f"/v1/documents/{document_id}/rectangles", {"start": start, "end": end, "version": version}
    return Call(method="GET", path=path, params=params, read=partial(_read_all, items="rectangles", kind=Rectangle))


def update_metadata(document_id: uuid.UUID, changes: Mapping[str, Any]) -> Call[DocumentInfo]:
    """Change metadata of a document without embedding it again.

    Args:
        changes: New values by key; None removes the key.
    """
    path, body = f"/v1/documents/{document_id}", {"metadata": dict(changes)}
    return Call(method="PATCH", path=path, body=body, read=partial(from_dict, DocumentInfo))


def delete_document(document_id: uuid.UUID) -> Call[None]:
    """Delete a document that you may read, with all its rows."""
    return Call(method="DELETE", path=f"/v1/documents/{document_id}", read=_read_nothing)


def jobs(
    *, states: Sequence[JobState] = (), collection: str | None = None, limit: int = 50, cursor: str | None = None
) -> Call[Page[JobInfo]]:
    """List the jobs of the tenant, the newest first.

    Args:
        states: Only jobs in these states; empty for all.
        collection: Only jobs of this collection; None for the default one of the key, or all.
        limit: Page size.
        cursor: `next` of the previous page; None for the first one.
    """
    params = {"state": [str(state) for state in states], "collection": collection, "limit": limit, "cursor": cursor}
    return Call(method="GET", path="/v1/jobs", params=params, read=partial(_read_page, items="jobs", kind=JobInfo))


def job(job_id: uuid.UUID) -> Call[JobInfo]:
    """Return a job."""
    return Call(method="GET", path=f"/v1/jobs/{job_id}", read=partial(from_dict, JobInfo))


def cancel_job(job_id: uuid.UUID) -> Call[bool]:
    """Cancel a job. Returns whether it was unfinished."""
    return Call(method="POST", path=f"/v1/jobs/{job_id}/cancel", read=_read_changed)


def retry_job(job_id: uuid.UUID) -> Call[bool]:
    """Queue a dead or cancelled job again. Returns whether it was one."""
    return Call(method="POST", path=f"/v1/jobs/{job_id}/retry", read=_read_changed)


def events(*, limit: int = 100, cursor: str | None = None) -> Call[Page[Event]]:
    """List what happened to documents and sources, the oldest first.

    Args:
        limit: Page size.
        cursor: `next` of the previous page, which always has one; None for the oldest event.
    """
    params = {"limit": limit, "cursor": cursor}
    return Call(method="GET", path="/v1/events", params=params, read=partial(_read_page, items="events", kind=Event))


def document_access(document_id: uuid.UUID) -> Call[list[AccessGrant]]:
    """Return who may read a document, and why."""
    params = {"document_id": str(document_id)}
    return Call(
        method="GET", path="/v1/access", params=params, read=partial(_read_all, items="grants", kind=AccessGrant)
    )


def reader_access(principals: Sequence[str], *, limit: int = 100, cursor: str | None = None) -> Call[Page[AccessGrant]]:
    """Return what a reader may read, with a row for each principal that lets the reader.

    Args:
        principals: What the reader holds, without `everyone`.
        limit: Documents of a page.
        cursor: `next` of the previous page; None for the first one.
    """
    params = {"principal": list(principals), "limit": limit, "cursor": cursor}
    return Call(
        method="GET", path="/v1/access", params=params, read=partial(_read_page, items="grants", kind=AccessGrant)
    )


def collections() -> Call[list[CollectionInfo]]:
    """List the collections with a preset or readable documents."""

    def read(payload: Mapping[str, Any]) -> list[CollectionInfo]:
        return [from_dict(CollectionInfo, values) for values in payload["collections"]]

    return Call(method="GET", path="/v1/collections", read=read)


def collection(name: str) -> Call[CollectionInfo]:
    """Return a collection."""
    return Call(method="GET", path=f"/v1/collections/{quote(name, safe='')}", read=partial(from_dict, CollectionInfo))


def create_collection(name: str, *, preset: str) -> Call[CollectionInfo]:
    """Create a collection with a preset that comes with the library."""
    body = {"name": name, "preset": preset}
    return Call(method="POST", path="/v1/collections", body=body, read=partial(from_dict, CollectionInfo))


def set_preset(name: str, *, preset: str) -> Call[CollectionInfo]:
    """Replace the preset of a collection with a shipped one."""
    path = f"/v1/collections/{quote(name, safe='')}/preset"
    return Call(method="PUT", path=path, body={"preset": preset}, read=partial(from_dict, CollectionInfo))


def delete_collection(name: str) -> Call[None]:
    """Delete a collection with its preset and all its documents.

    This includes documents that you may not read.
    """
    return Call(method="DELETE", path=f"/v1/collections/{quote(name, safe='')}", read=_read_nothing)


def feedback(
    rating: Rating | str,
    *,
    retrieval_id: uuid.UUID | None = None,
    question: str | None = None,
    chunk_id: uuid.UUID | None = None,
    comment: str | None = None,
    reason: RatingReason | str | None = None,
    collection: str | None = None,
) -> Call[Feedback]:
    """Rate a result, a question or one passage.

    A new rating replaces your previous one.

    Args:
        rating: `up`, `down` or `click`.
        retrieval_id: `SearchResult.id` of the result.
        question: The question, where there is no `retrieval_id`.
        chunk_id: The rated passage; None for the whole result.
        comment: A note for those who read the ratings.
        reason: Reason of a rating down; `not_covered`, that the documents do not answer, of any rating.
        collection: The collection that was searched; None for all.
    """
    body = omit_none(
        rating=str(rating),
        retrieval_id=None if retrieval_id is None else str(retrieval_id),
        question=question,
        chunk_id=None if chunk_id is None else str(chunk_id),
        comment=comment,
        reason=None if reason is None else str(reason),
        collection=collection,
    )
    return Call(method="POST", path="/v1/feedback", body=body, read=partial(from_dict, Feedback))


def stats() -> Call[Stats]:
    """Count the documents and chunks that you may read."""
    return Call(method="GET", path="/v1/stats", read=partial(from_dict, Stats))


def reload() -> Call[list[uuid.UUID]]:
    """Queue the recurring sources now, and return their job ids."""
    return Call(method="POST", path="/v1/reload", read=_read_ids)


def _read_page(payload: Mapping[str, Any], *, items: str, kind: type[T]) -> Page[T]:
    return Page(items=tuple(from_dict(kind, values) for values in payload[items]), next=payload["next"])


def _read_all(payload: Mapping[str, Any], *, items: str, kind: type[T]) -> list[T]:
    return [from_dict(kind, values) for values in payload[items]]


def _read_ids(payload: Mapping[str, Any]) -> list[uuid.UUID]:
    return [uuid.UUID(job_id) for job_id in payload["jobs"]]


def _read_nothing(payload: None) -> None:
    del payload


def _read_changed(payload: Mapping[str, Any]) -> bool:
    return bool(payload["jobs"])
