"""Run the retrievers for each wording of a query.

They score vectors and postings that are in memory, or send their statements in one round trip.
"""

from collections.abc import Sequence
from datetime import datetime

import psycopg

from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.retrieval.blocks.block import Block
from kosmos_rag.retrieval.blocks.search import search_block
from kosmos_rag.retrieval.close_terms import CloseTermCache
from kosmos_rag.retrieval.dense import DenseSearch, materialise_small_filter, plan_dense
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, CandidateList
from kosmos_rag.retrieval.lexical import LexicalSearch
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot, load_snapshot
from kosmos_rag.storage.sql import statement


def run_retrievers(
    connection: psycopg.Connection,
    wordings: Sequence[RetrieverQuery],
    snapshot: Snapshot,
    postings: PostingsCache,
    close_terms: CloseTermCache | None,
    timer: StageTimer,
    block: Block | None = None,
) -> dict[str, CandidateList]:
    """Return the candidates of each retriever for each wording.

    The names are `dense`, `lexical`, `dense 2`, and so on.

    Args:
        connection: In a pipelined transaction, that of the snapshot.
        wordings: The query, and other wordings of it.
        snapshot: State of the tenant, with the terms of the first wording.
        postings: Cache of packed postings.
        close_terms: Cache of close terms; None to look up none.
        timer: Timer of the search.
        block: Vectors and postings in memory; None to search the database.
    """
    lists: dict[str, CandidateList] = {}
    for number, query in enumerate(wordings, start=1):
        # Terms differ from wording to wording; the rest of the snapshot is the same.
        state = snapshot if number == 1 else load_snapshot(connection, query, close_terms)
        candidates: dict[str, CandidateList] = {}
        if block is not None:
            timer.record("plan")
            candidates = search_block(query, state, block, timer)
        dense_due = query.vector is not None and DENSE not in candidates
        lexical_due = query.lexical and LEXICAL not in candidates
        filtered = None
        # With everything in memory or unindexed there is nothing to plan.
        if (dense_due or lexical_due) and (query.scope["filtered"] or state.vector_index is not None):
            filtered = materialise_small_filter(connection, query, state)
        timer.record("plan")
        dense = None
        clocks: list[psycopg.Cursor[tuple[datetime]]] = []
        if dense_due:
            plan = plan_dense(query, state, filtered)
            dense = DenseSearch(connection=connection, query=query, snapshot=state, plan=plan)
            # Both retrievers share a round trip: the server's clock around the dense statement separates their times.
            if lexical_due:
                clocks.append(connection.execute(statement("server_clock")))
            dense.send()
            if lexical_due:
                clocks.append(connection.execute(statement("server_clock")))
        lexical = LexicalSearch(connection, query, state, filtered, postings) if lexical_due else None
        if lexical is not None:
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
        lists |= {name if number == 1 else f"{name} {number}": entry for name, entry in candidates.items()}
    return lists
