"""Run the retrievers for each wording of a query.

They score vectors and postings that are in memory, or send their statements in one round trip.
"""

from collections.abc import Sequence
from datetime import datetime

import psycopg

from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.retrieval.block_cache import LEAST_CHUNKS, BlockCache
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
    timer: StageTimer,
    blocks: BlockCache | None = None,
) -> dict[str, CandidateList]:
    """Return the candidates of each retriever for each wording.

    The names are `dense`, `lexical`, `dense 2`, and so on.

    Args:
        connection: In a pipelined transaction, that of the snapshot.
        wordings: The query, and other wordings of it.
        snapshot: State of the tenant, with the terms of the first wording.
        postings: Cache of packed postings.
        timer: Timer of the search.
        blocks: Cache of vectors and postings; None searches the database alone.
    """
    lists: dict[str, CandidateList] = {}
    for number, query in enumerate(wordings, start=1):
        # Terms differ from wording to wording; the rest of the snapshot is the same.
        state = snapshot if number == 1 else load_snapshot(connection, query)
        block = blocks.find(query, state) if blocks is not None and state.chunks >= LEAST_CHUNKS else None
        in_memory = block is not None and not (query.lexical and block.postings is None)
        filtered = None if in_memory else materialise_small_filter(connection, query, state)
        dense = None
        if query.vector is not None:
            plan = plan_dense(query, state, filtered, None if block is None else block.vectors)
            dense = DenseSearch(connection=connection, query=query, snapshot=state, plan=plan)
        timer.record("plan")
        clocks: list[psycopg.Cursor[tuple[datetime]]] = []
        if dense is not None and block is None:
            # Both retrievers share a round trip: the server's clock around the dense statement separates their times.
            if query.lexical:
                clocks.append(connection.execute(statement("server_clock")))
            dense.send()
            if query.lexical:
                clocks.append(connection.execute(statement("server_clock")))
        candidates: dict[str, CandidateList] = {}
        block_postings = None if block is None else block.postings
        lexical = LexicalSearch(connection, query, state, filtered, postings, block_postings) if query.lexical else None
        # Dense first, as explanations list them. Rows of the database are received after those of the words.
        if dense is not None and block is not None:
            candidates[DENSE] = dense.receive()
            timer.record(DENSE)
        if lexical is not None:
            if clocks:
                begin, end = (clock.fetchall()[0][0] for clock in clocks)
                # The clock of a server may be set between the two readings.
                timer.record(DENSE, max(0.0, (end - begin).total_seconds()))
            candidates[LEXICAL] = lexical.receive()
            timer.record(LEXICAL)
        if dense is not None and block is None:
            candidates = {DENSE: dense.receive(), **candidates}
            timer.record(DENSE)
        lists |= {name if number == 1 else f"{name} {number}": entry for name, entry in candidates.items()}
    return lists
