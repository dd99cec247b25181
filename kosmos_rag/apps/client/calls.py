"""What can be asked of the service: for each call its request, and what the answer is read as."""

import json
import uuid
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from kosmos_rag.apps.client import decoding
from kosmos_rag.apps.client.transport import Call, Grounding, Page, Request, Stats
from kosmos_rag.core.types import (
    Answer,
    CollectionInfo,
    Context,
    DocumentInfo,
    Feedback,
    Filter,
    JobInfo,
    JobState,
    Rating,
    SearchResult,
    SourceDocument,
    Turn,
)


def _body(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _asked(question: str, k: int | None, wanted: Filter | None, **more: Any) -> dict[str, Any]:
    conditions = {"sources": list(wanted.sources), "where": dict(wanted.where)} if wanted else {}
    return _body(question=question, k=k, **conditions, **more)


def _turns(history: Sequence[Turn]) -> list[dict[str, str]]:
    return [{"question": turn.question, "answer": turn.answer} for turn in history]


def search(
    question: str,
    k: int | None = None,
    filter: Filter | None = None,  # noqa: A002 — the word that callers expect
    *,
    collection: str | None = None,
    explain: bool = False,
) -> Call[SearchResult]:
    """Find the best passages for a question; scores are told where `explain` asks for them, to the scope admin."""
    body = _asked(question, k, filter, collection=collection, explain=explain)
    return Call(method="POST", path="/v1/search", body=body, read=decoding.retrieval)


def context(
    question: str,
    k: int | None = None,
    filter: Filter | None = None,  # noqa: A002
    *,
    max_tokens: int | None = None,
    collection: str | None = None,
) -> Call[Context]:
    """Gather numbered, cited evidence for a question within a budget of tokens."""
    body = _asked(question, k, filter, max_tokens=max_tokens, collection=collection)
    return Call(method="POST", path="/v1/context", body=body, read=decoding.context)


def answer(
    question: str,
    k: int | None = None,
    filter: Filter | None = None,  # noqa: A002
    *,
    max_tokens: int | None = None,
    history: Sequence[Turn] = (),
    collection: str | None = None,
) -> Call[Answer]:
    """Answer a question from the evidence, or refuse."""
    body = _asked(question, k, filter, max_tokens=max_tokens, collection=collection, history=_turns(history))
    return Call(method="POST", path="/v1/answer", body=body, read=decoding.answer)


def stream_answer(
    question: str,
    k: int | None = None,
    filter: Filter | None = None,  # noqa: A002
    *,
    max_tokens: int | None = None,
    history: Sequence[Turn] = (),
    collection: str | None = None,
) -> Request:
    """Answer a question by and by: `AnswerSources`, then `AnswerPiece`s as they come, `AnswerDone` last."""
    whole = answer(question, k, filter, max_tokens=max_tokens, history=history, collection=collection)
    return Request(method=whole.method, path=whole.path, body=whole.body, headers={"accept": "text/event-stream"})


def upload(document: SourceDocument, *, collection: str | None = None, key: str | None = None) -> Call[JobInfo]:
    """Send a document to be ingested, and return its job; what is sent again under the same `key` has the same job."""
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
        read=decoding.job,
    )


def documents(
    *, collection: str | None = None, limit: int = 100, cursor: str | None = None
) -> Call[Page[DocumentInfo]]:
    """List the documents that you may read, by source; `cursor` is `next` of the page before."""
    params = {"collection": collection, "limit": limit, "cursor": cursor}
    read = partial(decoding.page, items="documents", read=decoding.document)
    return Call(method="GET", path="/v1/documents", params=params, read=read)


def document(document_id: uuid.UUID) -> Call[DocumentInfo]:
    """Tell of a document."""
    return Call(method="GET", path=f"/v1/documents/{document_id}", read=decoding.document)


def delete_document(document_id: uuid.UUID) -> Call[None]:
    """Remove a document that you may read, with every row of it."""
    return Call(method="DELETE", path=f"/v1/documents/{document_id}", read=_nothing)


def jobs(*, states: Sequence[JobState] = (), limit: int = 50, cursor: str | None = None) -> Call[Page[JobInfo]]:
    """List the jobs of the tenant, the newest first; `cursor` is `next` of the page before."""
    params = {"state": [str(state) for state in states], "limit": limit, "cursor": cursor}
    return Call(
        method="GET", path="/v1/jobs", params=params, read=partial(decoding.page, items="jobs", read=decoding.job)
    )


def job(job_id: int) -> Call[JobInfo]:
    """Tell of a job."""
    return Call(method="GET", path=f"/v1/jobs/{job_id}", read=decoding.job)


def cancel_job(job_id: int) -> Call[bool]:
    """Call a job off. Returns whether it had not ended."""
    return Call(method="POST", path=f"/v1/jobs/{job_id}/cancel", read=_changed)


def retry_job(job_id: int) -> Call[bool]:
    """Put a dead or cancelled job back into the queue. Returns whether it was one."""
    return Call(method="POST", path=f"/v1/jobs/{job_id}/retry", read=_changed)


def collections() -> Call[list[CollectionInfo]]:
    """List the collections that have a preset, or documents that you may read."""

    def read(told: decoding.Told) -> list[CollectionInfo]:
        return [decoding.collection(one) for one in told["collections"]]

    return Call(method="GET", path="/v1/collections", read=read)


def collection(name: str) -> Call[CollectionInfo]:
    """Tell of a collection."""
    return Call(method="GET", path=f"/v1/collections/{quote(name, safe='')}", read=decoding.collection)


def create_collection(name: str, *, preset: str) -> Call[CollectionInfo]:
    """Make a collection go by a preset that comes with the library."""
    body = {"name": name, "preset": preset}
    return Call(method="POST", path="/v1/collections", body=body, read=decoding.collection)


def delete_collection(name: str) -> Call[None]:
    """Remove a collection, its preset and all of its documents, whoever may read them."""
    return Call(method="DELETE", path=f"/v1/collections/{quote(name, safe='')}", read=_nothing)


def feedback(
    rating: Rating | str,
    *,
    retrieval_id: uuid.UUID | None = None,
    question: str | None = None,
    chunk_id: uuid.UUID | None = None,
    comment: str | None = None,
    collection: str | None = None,
) -> Call[Feedback]:
    """Say what you think of a retrieval (`SearchResult.id`), a question, or one passage, in place of what you said."""
    body = _body(
        rating=str(rating),
        retrieval_id=None if retrieval_id is None else str(retrieval_id),
        question=question,
        chunk_id=None if chunk_id is None else str(chunk_id),
        comment=comment,
        collection=collection,
    )
    return Call(method="POST", path="/v1/feedback", body=body, read=decoding.feedback)


def ground_schema(
    question: str,
    k: int = 10,
    *,
    database: str | None = None,
    tables: int = 5,
    max_tokens: int = 700,
    collection: str = "schema",
    explain: bool = False,
) -> Call[Grounding]:
    """Find the tables, columns and joins that a question needs, with the block of a prompt that says them."""
    body = _body(
        question=question,
        k=k,
        database=database,
        tables=tables,
        max_tokens=max_tokens,
        collection=collection,
        explain=explain,
    )
    return Call(method="POST", path="/v1/schema/grounding", body=body, read=decoding.grounding)


def stats() -> Call[Stats]:
    """Count what there is for you."""
    return Call(method="GET", path="/api/rag/stats", read=decoding.stats)


def reload() -> Call[list[int]]:
    """Have workers look now at every source that they look at again and again. Returns the ids of their jobs."""
    return Call(method="POST", path="/api/rag/reload", read=itemgetter("jobs"))


def _nothing(told: None) -> None:
    del told


def _changed(told: decoding.Told) -> bool:
    return bool(told["jobs"])
