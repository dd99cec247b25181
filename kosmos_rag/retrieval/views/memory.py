"""The view of the memory of the process.

A block is scored, and the server reads the state and new passages. There is no transaction: the state is read by one
statement, and passages that are not in memory by another one, with the state that they are of. Where they differ, the
next view is asked. The coordinator of Citus sends the reader to a node with a transaction alone, so there is one there.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.rows import dict_row

from kosmos_rag.core.config import Settings
from kosmos_rag.core.telemetry.metrics import CACHE_BYTES, CACHE_LOOKUPS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.types import Space
from kosmos_rag.retrieval.arrange import Vectors
from kosmos_rag.retrieval.blocks.block import Block, Part, ScoredRows, inner_products, score_postings
from kosmos_rag.retrieval.blocks.cache import BlockCache, StateKey, reader_key, state_key
from kosmos_rag.retrieval.blocks.following import follow
from kosmos_rag.retrieval.blocks.loading import load_block
from kosmos_rag.retrieval.close_terms import CloseTermCache, WordMatches, match_words
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, CandidateList, rank_scores, rank_vectors
from kosmos_rag.retrieval.hydrate import PassageRow, parse_passage_rows
from kosmos_rag.retrieval.pseudo_relevance import BEST, rank_similar
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot, bind_texts, build_snapshot
from kosmos_rag.retrieval.views.base import BackgroundTask, ViewRequest, ViewUnavailable
from kosmos_rag.storage.binary import array_literal
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

PLAN = "exact, in memory"
_WAIT_S = 0.1
"""Longest wait for other searches: for a turn, and for one that follows a change."""
_TURNS = 2
"""Searches that compute at once: one holds the lock of the interpreter, and another is in NumPy."""

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class MemorySession:
    """Searches the block of the state.

    It has what readers of the same access control lists see. The candidates are those of exact scans, to the last bit.
    """

    connection: psycopg.Connection
    in_transaction: bool
    """Whether the connection is in a transaction of the reader; else each statement sets the reader."""
    reader: Hashable
    """`reader_key` of the search."""
    latest: Block
    """Block of the reader's last search; the state may have changed since."""
    blocks: BlockCache
    close_terms: CloseTermCache
    timer: StageTimer
    take_turn: Callable[[], AbstractContextManager[None]]
    """Waits for a turn to compute in."""
    last_turn: ExitStack
    """The turn from the state on, until the session ends."""
    _nearest: tuple[Block, NDArray[np.float32], list[ScoredRows]] | None = field(default=None, init=False)
    """Block, vector and chunks nearest to it, which were found while the server read the state."""
    _nearest_s: float = field(default=0.0, init=False)
    _wording: RetrieverQuery = field(init=False)
    _state: StateKey = field(init=False)
    _block: Block | None = field(default=None, init=False)
    _rows: dict[int, tuple[Part, int]] = field(default_factory=dict, init=False)
    """Where the candidates are, by number of the chunk id."""

    def snapshot(self, wording: RetrieverQuery) -> Snapshot:
        """Read the state of the tenant by one statement.

        Words that no chunk contains are looked up by others, once for each state. Raises ViewUnavailable where these
        are of another state, or the tenant was not found.
        """
        bound = bind_texts(wording)
        text = statement("search_state") if self.in_transaction else statement("search_state_of_reader")
        with nullcontext() if self.in_transaction else self.connection.pipeline():
            cursor = self.connection.execute(text, bound.values)
            if self._block is None and wording.vector is not None:
                # The server reads the state meanwhile. It is most often that of this block. The turn ends here: a
                # server that hangs must not keep the searches of others waiting.
                started = time.perf_counter()
                with self.take_turn():
                    nearest = self.latest.nearest(wording.vector, wording.candidates)
                self._nearest = self.latest, wording.vector, nearest
                self._nearest_s = time.perf_counter() - started
        [(state,)] = cursor.fetchall()
        if state["overview"] is None:
            # There is no such tenant, or Citus sent the statement to its node without the reader.
            raise ViewUnavailable
        return build_snapshot(wording, bound, state, self.close_terms, partial(self._match, wording, state))

    def find_space(self) -> Space | None:
        """Raise ViewUnavailable: the live space has a model that is not loaded yet."""
        raise ViewUnavailable

    def candidates(self, wording: RetrieverQuery, snapshot: Snapshot) -> dict[str, CandidateList]:
        """Score the block of the state.

        Raises ViewUnavailable without a block, and for another state than that of an earlier wording.
        """
        state = state_key(wording, snapshot.space_id, snapshot.states)
        if self._block is None:
            self.last_turn.enter_context(self.take_turn())
            self._block = self.blocks.find(self.reader, state) or self._follow(wording, state)
            self._wording, self._state = wording, state
        elif state != self._state:
            raise ViewUnavailable
        self.timer.record("plan", next_s=self._nearest_s)
        self._nearest_s = 0.0
        rows = sum(layer.rows for layer in self._block.layers)
        lists: dict[str, CandidateList] = {}
        if wording.vector is not None:
            block, vector, located = self._nearest or (None, None, [])
            if block is not self._block or vector is not wording.vector:
                located = self._block.nearest(wording.vector, wording.candidates)
            lists[DENSE] = rank_vectors(self._identify(located), wording, PLAN, {"rows": rows})
            self.timer.record(DENSE)
        if wording.lexical:
            located, postings = score_postings(self._block, snapshot.collections, wording.candidates)
            read = {"rows": rows, "postings": postings}
            lists[LEXICAL] = rank_scores(self._identify(located), wording.candidates, snapshot, PLAN, read)
            self.timer.record(LEXICAL)
        return lists

    def compare_with_best(self, snapshot: Snapshot, chunk_ids: Sequence[UUID]) -> CandidateList:
        """Rank candidates by similarity to the first five.

        Their mean is rounded as the server rounds it.
        """
        vectors = self.vectors(snapshot, chunk_ids)
        best = [vectors[chunk_id] for chunk_id in chunk_ids[:BEST] if chunk_id in vectors]
        scored: list[tuple[UUID, float]] = []
        if best:
            mean = np.mean(np.array(best, dtype=np.float64), axis=0).astype(np.float32).astype(np.float16)
            scores = inner_products(np.array(list(vectors.values())), mean.astype(np.float32))
            scored = list(zip(vectors, scores.tolist(), strict=True))
        return rank_similar(scored, len(chunk_ids))

    def passages(self, snapshot: Snapshot, chunk_ids: Sequence[UUID]) -> dict[int, PassageRow]:
        """Return passages that are in memory, and read the others under row-level security.

        Raises ViewUnavailable where these are of another state, or the reader may not read one of them.
        """
        principals = self._wording.principals
        parts = {chunk_id.int: self._rows[chunk_id.int][0].number for chunk_id in chunk_ids}
        rows = self.blocks.passages.find(principals, parts)
        missing = [chunk_id for chunk_id in chunk_ids if chunk_id.int not in rows]
        if not missing:
            return rows
        # The turn ends as in `snapshot`: others compute while the server reads.
        self.last_turn.close()
        # As text: psycopg's adapter of lists asks for the type of each value.
        ids = "{" + ",".join([chunk_id.hex for chunk_id in missing]) + "}"
        values = {**self._wording.scope, "principals": array_literal(principals), "chunk_ids": ids}
        cursor = self.connection.cursor(row_factory=dict_row)
        cursor.execute(statement("passages") if self.in_transaction else statement("passages_of_reader"), values)
        read = cursor.fetchall()
        self.last_turn.enter_context(self.take_turn())
        if not self.in_transaction:
            states = read.pop()["states"]
            if states != snapshot.states:
                raise ViewUnavailable
        if len(read) < len(missing):
            log.error(
                "chunks in memory are not those that the reader may read; the database is searched",
                extra={"action": "block_refused"},
            )
            self.blocks.drop(self._state)
            raise ViewUnavailable
        for row in read:
            row.pop("states", None)
        parsed = parse_passage_rows(read)
        self.blocks.passages.put(principals, parts, parsed)
        return rows | parsed

    def vectors(self, _snapshot: Snapshot, chunk_ids: Sequence[UUID]) -> Vectors:
        """Return the vectors of candidates."""
        vectors = {}
        for chunk_id in chunk_ids:
            part, row = self._rows[chunk_id.int]
            assert part.vectors is not None, "open refuses other searches"
            if row not in part.without_vector:
                vectors[chunk_id] = part.vectors.exact[row].astype(np.float32)
        return vectors

    def _match(
        self, wording: RetrieverQuery, state: Mapping[str, Any], words: Sequence[str]
    ) -> Mapping[str, WordMatches]:
        """Look up words and close terms. Raises ViewUnavailable for another state than the one given."""
        collections = state["overview"]["collections"] or ()
        states = {row["collection"]: row["state"] for row in collections if row["state"] is not None}
        with nullcontext() if self.in_transaction else self._begin(wording):
            # It is received with the first of the words.
            changes = self.connection.execute(statement("last_changes"), wording.scope)
            matches = match_words(self.connection, wording, words)
            current: dict[str, str] = dict(changes.fetchall())
        if current != states:
            raise ViewUnavailable
        return matches

    def _begin(self, wording: RetrieverQuery) -> AbstractContextManager[None]:
        """Open a transaction of the reader."""
        return ConnectionPool.begin_read(self.connection, wording.scope["tenant_id"], wording.principals)

    def _follow(self, wording: RetrieverQuery, state: StateKey) -> Block:
        """Return the block of a state, made of that of the reader's last search.

        Raises ViewUnavailable if it cannot be made.
        """
        last = self.blocks.find_last(self.reader, state)
        # One thread makes it; the others wait a little for it.
        if last is not None and last[1].following.acquire(timeout=_WAIT_S):
            try:
                if self.blocks.find(self.reader, state) is None:
                    self._make_block(wording, *last)
            finally:
                last[1].following.release()
        block = self.blocks.find(self.reader, state)
        if block is None:
            self.blocks.forget(self.reader)
            raise ViewUnavailable
        return block

    def _make_block(self, wording: RetrieverQuery, last_state: StateKey, last: Block) -> None:
        """Replace a block by one that follows it, or drop it."""
        with nullcontext() if self.in_transaction else self._begin(wording):
            followed = follow(self.connection, wording, last)
        if followed is None:
            self.blocks.drop(last_state)
        else:
            self.blocks.put(self.reader, *followed, instead_of=last_state)

    def _identify(self, best: Sequence[ScoredRows]) -> list[tuple[UUID, float]]:
        """Return chunk ids with scores, and remember where they are."""
        identified: list[tuple[UUID, float]] = []
        for part, rows, scores in best:
            chunk_ids = part.chunk_ids(rows)
            self._rows.update(zip([chunk_id.int for chunk_id in chunk_ids], zip(repeat(part), rows), strict=True))
            identified.extend(zip(chunk_ids, scores, strict=True))
        return identified


class Turns:
    """Lets so many threads work at once; others wait in their order.

    Python runs one thread at a time. Where many want to, they spend their time on passing its lock: eight threads
    answered a third fewer searches than two, each at 1.4 times the processor time.
    """

    def __init__(self, count: int) -> None:
        """Create turns.

        Args:
            count: Threads that work at once.
        """
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[threading.Lock] = deque()

    @contextmanager
    def take(self, timeout_s: float) -> Iterator[None]:
        """Work in a turn, or without one after the timeout.

        Those before may wait for a server that hangs.
        """
        turn = threading.Lock()
        with self._lock:
            has_turn = self._free > 0  # then nobody waits: a turn that ends is passed on to who does
            if has_turn:
                self._free -= 1
            else:
                turn.acquire()
                self._waiting.append(turn)
        if not has_turn and not (has_turn := turn.acquire(timeout=timeout_s)):
            with self._lock:
                has_turn = turn not in self._waiting  # passed on at the last moment
                if not has_turn:
                    self._waiting.remove(turn)
        try:
            yield
        finally:
            if has_turn:
                with self._lock:
                    if self._waiting:
                        self._waiting.popleft().release()
                    else:
                        self._free += 1


class MemoryView:
    """The view of the memory of the process."""

    def __init__(self, settings: Settings, telemetry: Telemetry, close_terms: CloseTermCache) -> None:
        """Create an empty cache of blocks, and register its gauges.

        Args:
            settings: Of the process.
            telemetry: Where metrics go.
        """
        self.blocks = BlockCache(settings.indexes.vector_cache_mb * 1024 * 1024)
        self._close_terms = close_terms
        self._turns = Turns(_TURNS)
        for name, outcome in (("hits", "hit"), ("misses", "miss")):
            telemetry.gauge(CACHE_LOOKUPS, partial(getattr, self.blocks, name), "vectors", outcome)
        telemetry.gauge(CACHE_BYTES, lambda: self.blocks.bytes, "vectors")
        telemetry.gauge(CACHE_BYTES, lambda: self.blocks.passages.bytes, "passages")

    def can_answer(self, request: ViewRequest) -> bool:
        """Return whether blocks have what a search needs. Args: see `SearchView`.

        They have no texts to match phrases, required and excluded words with, and vectors only for searches by an
        embedding.
        """
        operators = request.query.parsed.operators
        if operators.phrases or operators.required or operators.excluded:
            return False
        return not request.compares_vectors or request.wordings[0].vector is not None

    @contextmanager
    def open(self, request: ViewRequest, pool: ConnectionPool, timer: StageTimer) -> Iterator[MemorySession]:
        """Open the session of a search.

        Raises ViewUnavailable where the reader has no block. Args: see `SearchView`.
        """
        tenant_id, reader = request.query.tenant.id, reader_key(request.wordings[0])
        latest = self.blocks.find_latest(reader)
        if latest is None:
            raise ViewUnavailable
        in_transaction = not pool.sets_reader_in_statement
        opened = pool.transaction(tenant_id, request.query.principals) if in_transaction else pool.connection(tenant_id)
        with opened as connection, ExitStack() as last_turn:
            yield MemorySession(
                connection=connection,
                in_transaction=in_transaction,
                reader=reader,
                latest=latest,
                blocks=self.blocks,
                close_terms=self._close_terms,
                timer=timer,
                take_turn=partial(self._turns.take, _WAIT_S),
                last_turn=last_turn,
            )

    def observe(self, request: ViewRequest, wording: RetrieverQuery, snapshot: Snapshot) -> BackgroundTask | None:
        """Count a search that a block could have answered.

        Returns the task that loads the block, once it is due. Args: see `SearchView`.
        """
        filtered, most = wording.scope["filtered"], self.blocks.most_rows(wording)
        # How many chunks pass a filter shows when they are loaded.
        fits = most > 0 if filtered else snapshot.chunks <= most
        if snapshot.space_id is None or not fits:
            return None
        reader = reader_key(request.wordings[0])
        if self.blocks.miss(reader, state_key(wording, snapshot.space_id, snapshot.states), filtered=filtered):
            return partial(load_block, query=wording, reader=reader, cache=self.blocks)
        return None
