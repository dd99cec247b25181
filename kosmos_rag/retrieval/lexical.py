"""The lexical leg: BM25, exact, by packed segments and by a scan of the chunks that no segment holds yet.

Both parts score nearly first, and exactly what could belong in the result. A chunk of a segment may be deleted, or not
for this reader, since the segment was packed: the best are looked up under row-level security, best first, until
enough of them are found.
"""

import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.retrieval.candidates import Leg, leg
from kosmos_rag.retrieval.dense import Reach
from kosmos_rag.retrieval.postings import CHUNKS, MARGIN, Posting, PostingsCache, PostingsRequest, SegmentScores
from kosmos_rag.retrieval.snapshot import Corpus, Snapshot
from kosmos_rag.retrieval.unindexed import TailScan
from kosmos_rag.storage.binary import array
from kosmos_rag.storage.sql import statement

_GROWTH = 4


class LexicalLeg:
    """One question's lexical leg. Sent at once, then received: in between, other statements travel with it."""

    def __init__(
        self,
        connection: psycopg.Connection,
        scope: Mapping[str, Any],
        snapshot: Snapshot,
        depth: int,
        reach: Reach | None,
        cache: PostingsCache,
    ) -> None:
        self._connection = connection
        self._scope = scope
        self._depth = depth
        self._terms = snapshot.terms
        self._chunks = snapshot.chunks
        corpora = [corpus for corpus in snapshot.corpora if corpus.weights]
        self._tail_rows = sum(corpus.tail for corpus in corpora)
        self._tails = [TailScan(connection, scope, corpus, depth) for corpus in corpora if corpus.tail]
        self._requests = [
            (corpus, PostingsRequest(connection, scope["tenant_id"], segment.id, corpus.weights, cache))
            for corpus in corpora
            for segment in corpus.segments
        ]

        self._reach: psycopg.Cursor[Any] | None = None
        if reach is not None and self._requests:
            values = {**scope, "document_ids": reach.document_ids}
            self._reach = connection.execute(statement("sequences_of_documents"), values)

    def receive(self) -> Leg:
        """Wait for what was sent, and rank."""
        segments = [_scored(corpus, request.fetch()) for corpus, request in self._requests]
        if self._reach is not None:
            in_reach = self._reach.fetchall()
            for segment in segments:
                segment.keep([serial for collection, serial in in_reach if collection == segment.collection])
        found, candidates = self._walk(segments)
        for tail in self._tails:
            found |= tail.best(list(found.values()))
        return leg(
            found.items(),
            depth=self._depth,
            plan=self._plan(len(segments)),
            read={
                "rows": self._tail_rows,
                "segments": len(segments),
                "postings": sum(segment.read for segment in segments),
                "candidates": candidates,
            },
            reason=self._reason(len(found)),
        )

    def _plan(self, segments: int) -> str:
        if not segments:
            return "exact scan"
        return "segments, exact scan of the rest" if self._tails else "segments"

    def _reason(self, found: int) -> str | None:
        if not self._chunks:
            return "there are no chunks"
        if not self._terms:
            return "the question has no term to look up: stop words and signs only"
        if found < self._depth:
            return f"{found} chunks in reach hold one of the {len(self._terms)} terms"
        return None

    def _walk(self, segments: list[SegmentScores]) -> tuple[dict[uuid.UUID, float], int]:
        """Return the best chunks of the segments that this reader may see, and how many were looked up."""
        found: dict[uuid.UUID, float] = {}
        looked_up, wanted = 0, self._depth + self._depth // 4
        while any(segment.terms for segment in segments):
            which, offsets = _best(segments, wanted)
            new = [offsets[looked_up:][which[looked_up:] == number] for number in range(len(segments))]
            lookups = [self._look_up(segment, some) for segment, some in zip(segments, new, strict=True) if len(some)]
            for scores, cursor in lookups:
                found |= {chunk_id: scores[serial] for serial, chunk_id in cursor.fetchall()}
            looked_up = len(offsets)
            if len(found) >= self._depth or looked_up < wanted:
                break
            wanted = looked_up * _GROWTH
        return found, looked_up

    def _look_up(
        self, segment: SegmentScores, offsets: NDArray[np.intp]
    ) -> tuple[dict[int, float], psycopg.Cursor[Any]]:
        """Ask which of these chunks are still there, and to be seen by this reader; returns exact scores by serial."""
        serials = segment.chunks.offsets[offsets]
        scores = dict(zip(serials.tolist(), segment.exact(offsets).tolist(), strict=True))
        wanted = array(self._connection, "int4", serials)
        values = {**self._scope, "collection": segment.collection, "sequences": wanted}
        return scores, self._connection.cursor(binary=True).execute(statement("visible_chunks"), values)


def _scored(corpus: Corpus, postings: Mapping[int, Posting]) -> SegmentScores:
    terms = ((weight, postings[lexeme_id]) for lexeme_id, weight in corpus.weights.items())
    return SegmentScores.of(corpus.collection, postings[CHUNKS], corpus.average, terms)


def _best(segments: list[SegmentScores], count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return segment number and offset of the best chunks, best first: `count`, and all that may tie with the last."""
    offsets = [segment.best(count) for segment in segments]
    which = np.repeat(np.arange(len(segments)), [len(entry) for entry in offsets])
    scores = np.concatenate([segment.scores[entry] for segment, entry in zip(segments, offsets, strict=True)])
    flat = np.concatenate(offsets)
    order = np.lexsort((flat, which, -scores))
    if len(order) > count:
        last = scores[order[count - 1]]
        order = order[: count + int(np.count_nonzero(scores[order[count:]] >= last * (1 - MARGIN)))]
    return which[order], flat[order]
