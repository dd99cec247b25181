"""Run the retrievers of one wording: dense and lexical statements share one round trip."""

from datetime import datetime

import psycopg

from kosmos_rag.retrieval.dense import DenseSearch, materialise_small_filter, plan_dense
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, CandidateList
from kosmos_rag.retrieval.lexical import LexicalSearch
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot
from kosmos_rag.retrieval.timer import StageTimer
from kosmos_rag.storage.sql import statement


def run_retrievers(
    connection: psycopg.Connection,
    query: RetrieverQuery,
    snapshot: Snapshot,
    postings: PostingsCache,
    timer: StageTimer,
) -> dict[str, CandidateList]:
    """Return the candidates of each retriever that runs, by its name.

    Args:
        connection: In a pipelined transaction, that of the snapshot.
        query: One wording of the query.
        snapshot: State of the tenant.
        postings: Cache of packed postings.
        timer: Timer of the search.
    """
    scope = {**query.scope, "required": snapshot.required}
    filtered = materialise_small_filter(connection, scope, snapshot, query.principals)
    dense = None
    if query.vector is not None:
        plan = plan_dense(query, snapshot, filtered)
        dense = DenseSearch(connection=connection, query=query, snapshot=snapshot, plan=plan)
    timer.record("plan")
    clocks: list[psycopg.Cursor[tuple[datetime]]] = []
    if dense is not None:
        # Both retrievers share a round trip: the server's clock around the dense statement tells their times apart.
        if query.lexical:
            clocks.append(connection.execute(statement("server_clock")))
        dense.send()
        if query.lexical:
            clocks.append(connection.execute(statement("server_clock")))
    candidates: dict[str, CandidateList] = {}
    if query.lexical:
        lexical = LexicalSearch(connection, query, snapshot, filtered, postings)
        if clocks:
            begin, end = (clock.fetchall()[0][0] for clock in clocks)
            # The clock of a server may be set between the two readings.
            timer.record(DENSE, max(0.0, (end - begin).total_seconds()))
        candidates[LEXICAL] = lexical.receive()
        timer.record(LEXICAL)
    if dense is not None:
        # Dense first, as explanations list them.
        candidates = {DENSE: dense.receive(), **candidates}
        timer.record(DENSE)
    return candidates
