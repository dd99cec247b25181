"""The read side up to ranked passages: embed, ask both legs, fuse, fetch, rerank, and account for all of it.

One retrieval is one read-only transaction: its candidates are looked up and its passages read in one snapshot.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

import psycopg

from kosmos_rag.config import Settings
from kosmos_rag.embedding.space import require_same, space_of
from kosmos_rag.errors import ModelError
from kosmos_rag.ports import Embedder, Reranker
from kosmos_rag.ranking.deadline import Deadline
from kosmos_rag.ranking.fusion import reciprocal_rank_fusion
from kosmos_rag.records import Filter, Passage, Retrieval, Space
from kosmos_rag.retrieval.legs import DENSE, LEXICAL, Leg
from kosmos_rag.retrieval.passages import fetch
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.request import request
from kosmos_rag.retrieval.search import Search
from kosmos_rag.retrieval.watch import Watch
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenancy import Tenant, live_space


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What the database answered to one question."""

    where: str
    """What was searched: the tenant, or one collection of it."""
    chunks: int
    """How many that has, readable or not."""
    legs: dict[str, Leg]
    passages: list[Passage]


class Retriever:
    """Answers questions with passages, for any tenant of one database. Thread-safe."""

    def __init__(self, database: Database, embedder: Embedder, reranker: Reranker | None, settings: Settings) -> None:
        self._database = database
        self._embedder = embedder
        self._reranker = reranker
        self._settings = settings
        self._verified: set[UUID] = set()
        self._postings = PostingsCache(settings.indexes.postings_cache_mb * 1024 * 1024)
        # A second place lets one question be reranked while another's model call is past its deadline.
        self._deadline = Deadline(concurrency=2)

    def warm_up(self) -> None:
        """Load the models. A reranker that cannot be loaded is found out now, and retrieval goes on without it."""
        _ = self._space
        if self._reranker is not None:
            with contextlib.suppress(ModelError):
                self._reranker.score("warm", ["up"])

    def retrieve(
        self,
        tenant: Tenant,
        principals: Sequence[str],
        question: str,
        *,
        k: int | None,
        filter: Filter | None,  # noqa: A002 — the word that callers expect
        collection: str | None,
    ) -> Retrieval:
        """Return the best passages of a tenant that these principals may read.

        Raises RequestError, SpaceMismatch, ModelUnavailable, DatabaseError.
        """
        settings = self._settings.rag
        kept = settings.reranking.top_k if self._reranker else settings.retrieval.top_k
        asked = request(
            question,
            k=kept if k is None else k,
            filter=filter,
            max_chars=settings.retrieval.max_question_chars,
        )
        watch = Watch()
        vector = None
        if settings.retrieval.semantic_weight:
            vector = self._embedder.embed_query(asked.parsed.text)
            watch.lap("embed")
        pool = max(asked.k, settings.retrieval.top_k) if self._reranker else asked.k
        search = Search(
            tenant=tenant,
            principals=principals,
            collection=collection,
            request=asked,
            vector=vector,
            lexical=settings.retrieval.keyword_weight > 0,
            depth=max(settings.retrieval.depth, pool),
            similarity_threshold=settings.retrieval.similarity_threshold,
            use_vector_index=self._settings.indexes.vector != "none",
        )
        found = self._search(search, pool, watch)
        hits, notes = self._reranked(asked.question, found.passages, watch)
        returned = tuple(
            hit if hit.rank == rank else replace(hit, rank=rank) for rank, hit in enumerate(hits[: asked.k], start=1)
        )
        return Retrieval(
            question=asked.question,
            requested=asked.k,
            hits=returned,
            stages=watch.stages,
            timings_ms=watch.timings_ms(),
            legs={name: leg.account for name, leg in found.legs.items()},
            notes=notes,
            shortfall=_shortfall(found, len(hits)) if len(returned) < asked.k else None,
        )

    def _search(self, search: Search, pool: int, watch: Watch) -> _Found:
        retrieval = self._settings.rag.retrieval
        with self._database.app.transaction(search.tenant.id, search.principals) as connection:
            snapshot = search.look(connection)
            self._verify(connection, search.tenant, snapshot.space_id)
            legs = search.run(connection, snapshot, self._postings, watch)
            weights = {DENSE: retrieval.semantic_weight, LEXICAL: retrieval.keyword_weight}
            proposed = {name: leg.candidates for name, leg in legs.items()}
            fused = reciprocal_rank_fusion(proposed, weights=weights, k=retrieval.rrf_k)
            watch.lap("fuse")
            passages = fetch(connection, search.scope, fused[:pool])
        watch.lap("fetch")
        where = "the tenant" if search.collection is None else f"the collection {search.collection}"
        return _Found(where=where, chunks=snapshot.chunks, legs=legs, passages=passages)

    def _verify(self, connection: psycopg.Connection, tenant: Tenant, space_id: UUID | None) -> None:
        """Raise SpaceMismatch unless the tenant's live space is this model's. Looked at once a space."""
        if space_id is None or space_id in self._verified:
            return
        stored = live_space(connection, tenant.id)
        assert stored is not None, "the corpus names it within this snapshot"
        require_same(stored, replace(self._space, id=stored.id), tenant.name)
        self._verified.add(space_id)

    @cached_property
    def _space(self) -> Space:
        return space_of(UUID(int=0), self._embedder, normalized=self._settings.rag.embedding.normalize)

    def _reranked(self, question: str, passages: list[Passage], watch: Watch) -> tuple[list[Passage], tuple[str, ...]]:
        """Reorder by the reranker and drop what it finds irrelevant; in fused order, with a note, where it cannot."""
        reranker, settings = self._reranker, self._settings.rag.reranking
        if reranker is None or not passages:
            return passages, ()
        texts = [passage.text for passage in passages]
        outcome = self._deadline.run(lambda: reranker.score(question, texts), timeout_ms=settings.deadline_ms)
        watch.lap("rerank")
        if outcome.value is None:
            return passages, (f"not reranked, in fused order: {outcome.reason}",)
        scored = [
            replace(passage, score=score, rerank_score=score)
            for passage, score in zip(passages, outcome.value, strict=True)
        ]
        # Sorting is stable: equal scores keep their fused order.
        ordered = sorted(scored, key=lambda passage: -passage.score)
        kept = [passage for passage in ordered if passage.score >= settings.threshold]
        dropped = len(ordered) - len(kept)
        note = (f"{dropped} of {len(ordered)} reranked below the threshold {settings.threshold}",) if dropped else ()
        return kept, note


def _shortfall(found: _Found, hits: int) -> str:
    if found.chunks == 0:
        return f"{found.where} has no documents"
    if hits < len(found.passages):
        return f"{len(found.passages)} passages found, {hits} of them relevant enough for the reranking threshold"
    reasons = "; ".join(f"{name}: {leg.account.reason}" for name, leg in found.legs.items() if leg.account.reason)
    return f"only {hits} passages are in reach of this question, its reader and its filter ({reasons})"
