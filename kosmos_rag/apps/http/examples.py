"""Examples of request and response bodies for the OpenAPI document.

They are keyed by the name of their schema.

Examples of results are made of records, so that they have the shape that the service sends.
"""

import uuid
from datetime import UTC, datetime
from typing import Any

from kosmos_rag.apps.http.toolkit.bodies import QUESTION
from kosmos_rag.apps.http.toolkit.pagination import encode_cursor
from kosmos_rag.core.types import (
    AccessGrant,
    Answer,
    AnswerSentence,
    AnswerSources,
    Citation,
    CollectionInfo,
    Context,
    ContextPassage,
    DocumentInfo,
    Event,
    Expansion,
    Feedback,
    JobInfo,
    JobState,
    Passage,
    Rating,
    RatingReason,
    SearchResult,
    Stats,
    hash_text,
)
from kosmos_rag.core.types.serialize import to_dict

_TEXT = "All full-time employees receive 20 days of paid annual leave per year."
_DOCUMENT_ID = uuid.UUID("0b5fd2a1-3d0e-5d5e-8b1c-5f0a3f7f6a10")
_JOB_ID = uuid.UUID("019a42f5-8d40-7b1e-9c37-2d6a5f8e0b41")
_CHUNK_ID = uuid.UUID("c1a7a9d4-2b7e-5c3f-9d0a-7e1f5a6b8c92")
_NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
_METADATA = {"department": "hr"}
_LOCATION: dict[str, Any] = {
    "document_id": _DOCUMENT_ID,
    "version_id": uuid.UUID("4fd0e1c2-6f0d-4b8e-9a55-0c4a5b2f7d31"),
    "version": 1,
    "source": "handbook/leave.md",
    "title": "Leave",
    "section": ("Leave", "Annual"),
    "start": 19,
    "end": 19 + len(_TEXT),
    "line_start": 5,
    "line_end": 5,
    "page_start": None,
    "page_end": None,
}
_PASSAGE = Passage(
    **_LOCATION,
    rank=1,
    score=0.0323,
    chunk_id=_CHUNK_ID,
    media_type="text/markdown",
    metadata=_METADATA,
    chunk_index=0,
    text=_TEXT,
    chunker="markdown",
    collection="handbook",
    department="hr",
    dense_rank=1,
    dense_score=0.82,
    lexical_rank=1,
    lexical_score=7.4,
    fused_rank=1,
    fused_score=0.0323,
    score_contributions={"dense": 0.0161, "lexical": 0.0161},
    rerank_score=None,
)
_RESULT = SearchResult(
    question=QUESTION,
    expansion=Expansion(),
    requested=5,
    hits=(_PASSAGE,),
    stages=("embed", "dense", "lexical", "fuse", "fetch"),
    timings_ms={"total": 18.4},
    retrievers={},
    warnings=(),
    degraded_stages=(),
    cached=False,
    incomplete_reason="the collection has 1 chunk",
    id=uuid.UUID("01936f5e-7c1a-7d2b-8e3f-4a5b6c7d8e9f"),
)
_CITATION = Citation(**_LOCATION, index=1, marker="[1]", quote_sha256=hash_text(_TEXT))
_CONTEXT = Context(
    question=QUESTION,
    text=f"[1] Leave | Annual | L5\n{_TEXT}",
    passages=(
        ContextPassage(
            citation=_CITATION,
            text=_TEXT,
            start=19,
            page_start=None,
            page_end=None,
            score=0.0323,
            tokens=24,
            chunk_ids=(_CHUNK_ID,),
        ),
    ),
    tokens=24,
    max_tokens=1000,
    omitted={},
    retrieval=_RESULT,
)
_ANSWER = Answer(
    question=QUESTION,
    text=f"{_TEXT} [1]",
    mode="extractive",
    refused=False,
    verified=True,
    confidence=0.93,
    sentences=(AnswerSentence(text=_TEXT, kind="sentence", score=0.91, citation=_CITATION),),
    report=None,
    context=_CONTEXT,
    units=(),
    refusal_reason=None,
)
_DOCUMENT = DocumentInfo(
    id=_DOCUMENT_ID,
    source="handbook/leave.md",
    collection="handbook",
    title="Leave",
    media_type="text/markdown",
    language="english",
    version=1,
    content_hash=hash_text(_TEXT),
    bytes=90,
    chunks=1,
    metadata=_METADATA,
    updated_at=_NOON,
)
_JOB = JobInfo(
    id=_JOB_ID,
    collection="handbook",
    kind="document",
    key=str(_DOCUMENT_ID),
    payload={"document": {"source": "handbook/leave.md"}},
    state=JobState.QUEUED,
    priority=0,
    run_at=_NOON,
    every_s=None,
    attempt=0,
    lost=0,
    worker=None,
    outcome=None,
    code=None,
    error=None,
    created_at=_NOON,
    started_at=None,
    finished_at=None,
)
_FEEDBACK = Feedback(
    id=uuid.UUID("5b0c1d2e-3f4a-5b6c-8d7e-9f0a1b2c3d4e"),
    at=_NOON,
    subject="anna",
    collection=None,
    retrieval_id=None,
    question=QUESTION,
    question_sha256=hash_text(QUESTION),
    rating=Rating.DOWN,
    chunk_id=_CHUNK_ID,
    source="handbook/leave.md",
    comment="of last year",
    reason=RatingReason.OUTDATED,
)
_GRANT = AccessGrant(
    document_id=_DOCUMENT.id,
    source="handbook/leave.md",
    collection="default",
    title="Leave",
    principal="department:hr",
    origin="feed",
    feed="wiki",
    keys=("intranet",),
    searchable=True,
)
_EVENT = Event(
    sequence=17,
    type="document.published",
    at=_NOON,
    collection="handbook",
    data={"document_id": str(_DOCUMENT.id), "source": "handbook/leave.md", "version": 2},
)
_STATS = Stats(total_documents=61, total_chunks=636, departments={"general": 469, "hr": 167}, embedding_dimension=768)
_RECORDS = (
    _GRANT,
    _RESULT,
    _CONTEXT,
    AnswerSources(question=QUESTION, context=_CONTEXT, refused=False, warnings=()),
    _ANSWER,
    _DOCUMENT,
    _JOB,
    _EVENT,
    CollectionInfo(name="handbook", preset="corporate", chunks=12, created_at=_NOON),
    _FEEDBACK,
    _STATS,
)

EXAMPLES: dict[str, Any] = {
    "SearchRequest": {"question": QUESTION, "k": 5, "where": {"metadata.department": "hr"}},
    "ContextRequest": {"question": QUESTION, "max_tokens": 1000},
    "AnswerRequest": {"question": QUESTION, "history": [{"question": "Who are you?", "answer": "An assistant."}]},
    "ChatRequest": {"query": QUESTION, "model": "llama3.1"},
    "CollectionRequest": {"name": "handbook", "preset": "corporate"},
    "PresetRequest": {"preset": "corporate-enforced"},
    "MetadataRequest": {"metadata": {"approved": True, "draft": None}},
    "FeedbackRequest": {
        "rating": "down",
        "question": QUESTION,
        "chunk_id": str(_CHUNK_ID),
        "comment": "of last year",
        "reason": "outdated",
    },
}
EXAMPLES |= {type(record).__name__: to_dict(record, explain=False) for record in _RECORDS}
EXAMPLES |= {
    "DocumentPage": {"documents": [EXAMPLES["DocumentInfo"]], "next": None},
    "JobPage": {"jobs": [EXAMPLES["JobInfo"]], "next": encode_cursor(str(_JOB_ID))},
    "EventPage": {"events": [EXAMPLES["Event"]], "next": encode_cursor("17")},
    "AccessPage": {"grants": [EXAMPLES["AccessGrant"]], "next": None},
    "JobsChanged": {"jobs": [str(_JOB_ID)]},
    "CollectionList": {"collections": [EXAMPLES["CollectionInfo"]]},
    "Rectangle": (rectangle := {"page": 2, "left": 0.12, "top": 0.31, "right": 0.88, "bottom": 0.33}),
    "RectangleList": {"rectangles": [rectangle]},
    "Reload": {"status": "reloading", "message": None, "jobs": [str(_JOB_ID)], "stats": EXAMPLES["Stats"]},
}
