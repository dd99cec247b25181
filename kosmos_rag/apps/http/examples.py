"""An example of each body and each answer, by the name of its schema, for the OpenAPI document."""

from typing import Any

_QUESTION = "How many days of annual leave do employees get?"
_TEXT = "All full-time employees receive 20 days of paid annual leave per year."
_DOCUMENT_ID = "0b5fd2a1-3d0e-5d5e-8b1c-5f0a3f7f6a10"
_VERSION_ID = "4fd0e1c2-6f0d-4b8e-9a55-0c4a5b2f7d31"
_CHUNK_ID = "c1a7a9d4-2b7e-5c3f-9d0a-7e1f5a6b8c92"
_RETRIEVAL_ID = "01936f5e-7c1a-7d2b-8e3f-4a5b6c7d8e9f"
_NOON = "2026-11-02T12:00:00Z"

_PLACE: dict[str, Any] = {
    "title": "Leave",
    "source": "handbook/leave.md",
    "section": ["Leave", "Annual"],
    "location": "Annual | L5",
    "lines": [5, 5],
    "pages": None,
    "span": [19, 89],
    "document_id": _DOCUMENT_ID,
    "version_id": _VERSION_ID,
    "version": 1,
}
_HIT = {
    **_PLACE,
    "rank": 1,
    "collection": "handbook",
    "text": _TEXT,
    "chunk_id": _CHUNK_ID,
    "chunk_index": 0,
    "chunker": "markdown",
    "media_type": "text/markdown",
    "metadata": {"department": "hr"},
    "scores": None,
}
_CITATION = {
    **_PLACE,
    "index": 1,
    "marker": "[1]",
    "quote_sha256": "49c5b50e4a39fc20a35b2f1e9a3f2b8d7c6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a",
}
_EVIDENCE = {
    "text": _TEXT,
    "tokens": 24,
    "start": 19,
    "pages": None,
    "page_breaks": [],
    "chunk_ids": [_CHUNK_ID],
    "citation": _CITATION,
}
_QUOTED = {"text": _TEXT, "kind": "sentence", "score": 0.91, "citation": _CITATION}
_DOCUMENT = {
    "id": _DOCUMENT_ID,
    "source": "handbook/leave.md",
    "collection": "handbook",
    "title": "Leave",
    "media_type": "text/markdown",
    "language": "english",
    "version": 1,
    "content_hash": "b1946ac92492d2347c6235b4d2611184b1946ac92492d2347c6235b4d2611184",
    "bytes": 90,
    "chunks": 1,
    "metadata": {"department": "hr"},
    "updated_at": _NOON,
}
_JOB = {
    "id": 17,
    "collection": "handbook",
    "kind": "document",
    "key": _DOCUMENT_ID,
    "source": "handbook/leave.md",
    "state": "queued",
    "priority": 0,
    "run_at": _NOON,
    "every_s": None,
    "attempt": 0,
    "lost": 0,
    "worker": None,
    "outcome": None,
    "code": None,
    "error": None,
    "created_at": _NOON,
    "started_at": None,
    "finished_at": None,
}
_COLLECTION = {"name": "handbook", "preset": "corporate", "chunks": 12, "created_at": _NOON}
_STATS = {
    "total_documents": 92,
    "total_chunks": 1450,
    "departments": {"everyone": 469, "hr": 167},
    "embedding_dimension": 768,
}

EXAMPLES: dict[str, Any] = {
    "SearchRequest": {"question": _QUESTION, "k": 5, "where": {"metadata.department": "hr"}},
    "ContextRequest": {"question": _QUESTION, "max_tokens": 1000},
    "AnswerRequest": {"question": _QUESTION, "history": [{"question": "Who are you?", "answer": "An assistant."}]},
    "ChatRequest": {"query": _QUESTION, "model": "llama3.1"},
    "CollectionRequest": {"name": "handbook", "preset": "corporate"},
    "FeedbackRequest": {"rating": "down", "question": _QUESTION, "chunk_id": _CHUNK_ID, "comment": "of last year"},
    "GroundingRequest": {"question": "success count of the forest fire program", "tables": 3},
    "SearchView": {
        "retrieval_id": _RETRIEVAL_ID,
        "experiment": None,
        "question": _QUESTION,
        "requested": 5,
        "returned": 1,
        "hits": [_HIT],
        "warnings": [],
        "degraded_stages": [],
        "incomplete_reason": "fewer chunks than that may answer",
        "milliseconds": 18.4,
        "stages": ["embed", "dense", "lexical", "fuse", "fetch"],
        "explain": None,
    },
    "ContextView": {
        "retrieval_id": _RETRIEVAL_ID,
        "experiment": None,
        "question": _QUESTION,
        "text": f"[1] Leave | Annual | L5\n{_TEXT}",
        "tokens": 24,
        "max_tokens": 1000,
        "passages": [_EVIDENCE],
        "omitted": {},
        "warnings": [],
    },
    "AnswerView": {
        "retrieval_id": _RETRIEVAL_ID,
        "experiment": None,
        "question": _QUESTION,
        "search_query": _QUESTION,
        "text": f"{_TEXT} [1]",
        "mode": "extractive",
        "refused": False,
        "verified": True,
        "confidence": 0.93,
        "sentences": [_QUOTED],
        "problems": [],
        "report": None,
        "sources": [_EVIDENCE],
        "warnings": [],
    },
    "FeedbackView": {
        "id": "5b0c1d2e-3f4a-5b6c-8d7e-9f0a1b2c3d4e",
        "at": _NOON,
        "subject": "anna",
        "collection": None,
        "retrieval_id": None,
        "question": _QUESTION,
        "question_sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "rating": "down",
        "chunk_id": _CHUNK_ID,
        "source": "handbook/leave.md",
        "comment": "of last year",
    },
    "GroundingView": {
        "question": "success count of the forest fire program",
        "database": "programs",
        "prompt": "Database programs (postgresql)\nprogram_statistics(program_id integer -> programs.id, …)",
        "tokens": 31,
        "tables": [
            {"database": "programs", "table": "program_statistics", "score": 2.4, "parts": {"words": 0.8, "named": 0.3}}
        ],
        "schema_refs": [
            {
                "name": "ProgramStatistics.success_count",
                "database": "programs",
                "table": "program_statistics",
                "model": "ProgramStatistics",
                "column": "success_count",
                "score": 2.9,
                "parts": {"words": 0.9, "named": 0.5},
            }
        ],
        "join_hints": ["program_statistics.program_id -> programs.id"],
        "entities": {"quoted": [], "values": [], "names": [], "dates": [], "numbers": [], "comparisons": ["count"]},
        "selection": None,
        "left_out": [],
        "docs": [{"id": "schema_model:app.ProgramStatistics", "kind": "schema_model", "scores": None}],
        "warnings": [],
        "milliseconds": 23.5,
    },
    "DocumentView": _DOCUMENT,
    "DocumentPage": {"documents": [_DOCUMENT], "next": None},
    "JobView": _JOB,
    "JobPage": {"jobs": [_JOB], "next": "WzE3XQ"},
    "JobsChanged": {"jobs": [17]},
    "CollectionView": _COLLECTION,
    "CollectionList": {"collections": [_COLLECTION]},
    "StatsView": _STATS,
    "ReloadView": {"status": "reloading", "jobs": [17], "stats": _STATS},
}
