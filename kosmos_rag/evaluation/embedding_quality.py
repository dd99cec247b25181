"""How good a space is before questions are answered from it: its index against a scan, its model against the live one.

A question of a question file names the source of its answer. Both spaces are searched exactly, so that models are
compared and not indexes, and documents are ranked by their best chunk.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Space, SpaceQuality
from kosmos_rag.core.types.questions import Question, read_questions
from kosmos_rag.indexing import recall as tuning
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

MAX_LOSS = 0.02
"""How much less nDCG@10 than the live space a new one may have."""
_DEPTH = 10


def read_judged(path: Path) -> list[Question]:
    """Read a question file: those questions that a document answers. Raises RequestError where there is none."""
    questions = [question for question in read_questions(path).questions if question.answerable]
    if not questions:
        raise RequestError(f"no question of the question file {str(path)!r} names the source of its answer")
    return questions


def ndcg_at_10(
    connection: psycopg.Connection,
    tenant: TenantRef,
    space: Space,
    embedder: Embedder,
    questions: Sequence[Question],
) -> float:
    """Return the mean nDCG@10 of documents by the vectors of one space.

    With one relevant document a question that is 1 / log2(1 + rank) of it. Source: Järvelin and Kekäläinen, "Cumulated
    gain-based evaluation of IR techniques" (2002).
    """
    search = tuning.exact(connection, {"tenant_id": tenant.id, "space_id": space.id})
    return statistics.fmean(
        _gain(_documents(connection, tenant, search(embedder.embed_query(asked.text))), asked) for asked in questions
    )


def _documents(connection: psycopg.Connection, tenant: TenantRef, chunk_ids: list[Any]) -> list[str]:
    """Return the sources of chunks, each once, in their order."""
    values = {"tenant_id": tenant.id, "chunk_ids": chunk_ids}
    rows = connection.execute(statement("sources_of_chunks"), values).fetchall()
    return list(dict.fromkeys(source for _, source in rows))


def _gain(documents: Sequence[str], asked: Question) -> float:
    for rank, source in enumerate(documents[:_DEPTH], start=1):
        if any(place.is_in(source) for place in asked.places):
            return 1 / math.log2(1 + rank)
    return 0.0


def refusal(quality: SpaceQuality) -> str | None:
    """Return why questions should not be answered from a space; None where nothing speaks against it."""
    if quality.recall_at_10 is not None and quality.recall_at_10 < quality.recall_target:
        return f"its index finds {quality.recall_at_10:.3f} of the ten nearest, the target is {quality.recall_target}"
    if quality.ndcg_at_10 is None or quality.live_ndcg_at_10 is None:
        return None
    if quality.ndcg_at_10 < quality.live_ndcg_at_10 - MAX_LOSS:
        return (
            f"nDCG@10 is {quality.ndcg_at_10:.3f} over {quality.questions} questions, "
            f"that of {quality.live_model!r} {quality.live_ndcg_at_10:.3f}"
        )
    return None
