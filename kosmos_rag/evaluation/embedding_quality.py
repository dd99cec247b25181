"""Compare nDCG@10 of an embedding space with that of the live space.

A cutover depends on it.

A cutover depends on it.

Both spaces are searched exactly, so that models are compared and not indexes. Documents are ranked by their best chunk.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Space, SpaceQuality
from kosmos_rag.core.types.questions import Question, read_questions
from kosmos_rag.indexing.recall import exact_search
from kosmos_rag.indexing.transactions import maintenance_transaction
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_DEPTH = 10


def read_answerable(path: Path) -> list[Question]:
    """Read the answerable questions of a question file.

    Raises RequestError if there are none.
    """
    questions = [question for question in read_questions(path).questions if question.answerable]
    if not questions:
        raise RequestError(f"no question of the question file {str(path)!r} names the source of its answer")
    return questions


def compare_spaces(
    database: Database,
    tenant: TenantRef,
    target: Space,
    live: Space,
    embedder_of: Callable[[Space], Embedder],
    questions: Sequence[Question],
) -> SpaceQuality:
    """Compare the models of two spaces of a tenant.

    Args:
        database: Connections.
        tenant: The tenant.
        target: The space to measure.
        live: The space to compare it with.
        embedder_of: Returns the model of a space.
        questions: Answerable questions; without any, nothing is measured.

    Raises ModelError, DatabaseError.
    """
    ndcg: list[float | None] = [None, None]
    if questions:
        with maintenance_transaction(database, tenant) as connection:
            ndcg = [ndcg_at_10(connection, tenant, space, embedder_of(space), questions) for space in (target, live)]
    return SpaceQuality(
        model=target.model,
        live_model=live.model,
        recall_at_10=None,
        recall_target=0.0,
        questions=len(questions),
        ndcg_at_10=ndcg[0],
        live_ndcg_at_10=ndcg[1],
        forced=None,
    )


def ndcg_at_10(
    connection: psycopg.Connection,
    tenant: TenantRef,
    space: Space,
    embedder: Embedder,
    questions: Sequence[Question],
) -> float:
    """Return the mean nDCG@10 of documents by the vectors of one space.

    With one relevant document for each question, nDCG is 1 / log2(1 + rank).

    Args:
        connection: A connection in a transaction of the tenant.
        tenant: The tenant.
        space: The space to search.
        embedder: Its model.
        questions: Answerable questions.

    Source: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002).
    """
    search = exact_search(connection, {"tenant_id": tenant.id, "space_id": space.id})
    return statistics.fmean(
        _gain(_rank_sources(connection, tenant, search(embedder.embed_query(question.text))), question)
        for question in questions
    )


def _rank_sources(connection: psycopg.Connection, tenant: TenantRef, chunk_ids: list[Any]) -> list[str]:
    """Return the sources of ranked chunks, each at its best rank."""
    values = {"tenant_id": tenant.id, "chunk_ids": chunk_ids}
    rows = connection.execute(statement("sources_of_chunks"), values).fetchall()
    return list(dict.fromkeys(source for _, source in rows))


def _gain(sources: Sequence[str], question: Question) -> float:
    for rank, source in enumerate(sources[:_DEPTH], start=1):
        if any(location.matches_source(source) for location in question.locations):
            return 1 / math.log2(1 + rank)
    return 0.0
