"""The read side up to ranked passages: expand, embed, ask both legs, fuse, fetch, rerank, and account for all of it.

One retrieval is one read-only transaction: its candidates are looked up and its passages read in one snapshot. Which
embedding space answers is read in it too. The question is embedded before, by the model that the tenant's last question
needed; where the snapshot names a space of the other one, it is embedded again and the retrieval goes on.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg

from kosmos_rag.core.config import Settings
from kosmos_rag.core.protocols import Embedder, LanguageModel, Reranker
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.metrics import CACHE_LOOKUPS, RETRIEVAL_FALLBACKS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import Expansion, Filter, Passage, RunningExperiment, SearchResult
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.retrieval.cache import QuestionVectors, Results, key_of
from kosmos_rag.retrieval.candidates import DENSE, LEXICAL, Leg, without_plan
from kosmos_rag.retrieval.expansion.expander import Expanded, Expander
from kosmos_rag.retrieval.fusion import Fused, reciprocal_rank_fusion, score_fusion
from kosmos_rag.retrieval.hydrate import fetch
from kosmos_rag.retrieval.phrases import PHRASE, Ranked, filled_up
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.pseudo_relevance import FEEDBACK, feedback
from kosmos_rag.retrieval.query import Request, request
from kosmos_rag.retrieval.rerank import Reranked, Reranking
from kosmos_rag.retrieval.result import Found, result_of
from kosmos_rag.retrieval.sampling import Sampler
from kosmos_rag.retrieval.search import Search
from kosmos_rag.retrieval.signals.apply import SignalResult, Signals
from kosmos_rag.retrieval.signals.base import QueryContext
from kosmos_rag.retrieval.snapshot import Snapshot
from kosmos_rag.retrieval.timer import Watch
from kosmos_rag.storage.pool import Database, Role
from kosmos_rag.storage.tenants import TenantRef, live_space


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrieved:
    """A retrieval, and what whoever gives it out has to go by."""

    retrieval: SearchResult
    audit: tuple[Mapping[str, Any], ...]
    """What presets of the collections that were searched set of `rag.audit`, at the moment of the question."""


Choose = Callable[[RunningExperiment | None, str], "Retriever | None"]
"""Told which experiment runs, and the question as it was understood: who answers; None is whoever was asked."""
Failed = Callable[[Exception], None]
"""Told what another one that was to answer failed with."""


class Retriever:
    """Answers questions with passages, for any tenant of one database. Thread-safe."""

    def __init__(
        self,
        database: Database,
        embedders: EmbedderRegistry,
        reranker: Reranker | None,
        language_model: LanguageModel | None,
        settings: Settings,
        telemetry: Telemetry,
    ) -> None:
        retrieval = settings.rag.retrieval
        self._telemetry = telemetry
        self._app = database.app
        self._embedders = embedders
        self._last: dict[UUID, Embedder] = {}
        self._expander = Expander(settings.rag, language_model)
        self._vectors = {
            id(embedder): QuestionVectors(embedder, kept=retrieval.cached_questions) for embedder in embedders.all
        }
        self._results = Results(kept=retrieval.cached_results)
        self._postings = PostingsCache(settings.indexes.postings_cache_mb * 1024 * 1024)
        self._reranking = Reranking(reranker, settings.rag.reranking, telemetry) if reranker else None
        self._sampler: Sampler | None = Sampler(database.app, settings.monitor, telemetry)
        self._tell_of_caches()
        self._go_by(settings, version=None)

    def _tell_of_caches(self) -> None:
        kept: list[tuple[str, Results | PostingsCache | QuestionVectors]] = [
            *(("question_vectors", vectors) for vectors in self._vectors.values()),
            ("results", self._results),
            ("postings", self._postings),
        ]
        for name, cache in kept:
            self._telemetry.gauge(CACHE_LOOKUPS, partial(getattr, cache, "hits"), name, "hit")
            self._telemetry.gauge(CACHE_LOOKUPS, partial(getattr, cache, "misses"), name, "miss")

    def under(self, settings: Settings, version: str) -> "Retriever":
        """Return one with other settings, of that version, which shares connections, models and what is kept.

        It reranks only where this one does too. Raises ConfigError on signals and intents that cannot be.
        """
        other = copy(self)
        other._go_by(settings, version=version)  # noqa: SLF001 — its own kind
        return other

    @property
    def reranks(self) -> bool:
        """Whether it has a reranker, and uses it."""
        return self._reranking is not None

    def beside(self, app: Role) -> "Retriever":
        """Return the same for questions that nobody waits for: it takes no connection and no place in line from others.

        Its connections are of `app`. It keeps no results, and what it does is not told of.
        """
        other = copy(self)
        other._app, other._results, other._telemetry = app, Results(kept=0), Telemetry()  # noqa: SLF001
        other._sampler = None  # noqa: SLF001 — the question was offered when it was asked
        if self._reranking is not None:
            other._reranking = self._reranking.beside()  # noqa: SLF001
        return other

    def _go_by(self, settings: Settings, *, version: str | None) -> None:
        self._settings = settings
        self._version = version
        self._signals = Signals(settings.rag.signals, settings.rag.intents)
        if version is not None and self._reranking is not None:
            enabled = settings.rag.reranking.enabled
            self._reranking = self._reranking.under(settings.rag.reranking) if enabled else None

    def warm_up(self) -> None:
        """Load the models; without the reranker retrieval goes on. Raises ModelUnavailable for the embedding models."""
        self._embedders.warm_up()
        if self._reranking is not None:
            self._reranking.warm_up()

    def close(self) -> None:
        """Write what waits to be written: samples for the guard."""
        if self._sampler is not None:
            self._sampler.close()

    @tracing.start_span("retrieval", {"gen_ai.operation.name": "retrieval"})
    def search(
        self,
        tenant: TenantRef,
        principals: Sequence[str],
        question: str,
        *,
        k: int | None,
        filter: Filter | None,  # noqa: A002 — the word that callers expect
        collection: str | None,
        choose: Choose | None = None,
        failed: Failed | None = None,
    ) -> Retrieved:
        """Return the best passages of a tenant that these principals may read.

        `choose` may have another one of this kind answer, from the moment on that the snapshot says what runs: nothing
        that was done before depends on which. Where that one fails, `failed` is told, and this one answers after all.
        Raises RequestError, EmbeddingSpaceMismatch, ModelUnavailable, DatabaseError, and what `choose` raises.
        """
        asked = self._request(question, k, filter)
        watch = Watch()
        expanded = self._expander.expand(asked.parsed.text)
        if expanded.expansion != Expansion() or expanded.warnings:
            watch.lap("expand")
        if expanded.warnings:
            self._telemetry.record(RETRIEVAL_FALLBACKS, len(expanded.warnings), "expand", "model")

        def searches_of(one: Retriever, embedder: Embedder) -> list[Search]:
            wanted = asked if one is self else one._request(question, k, filter)
            return one._searches(watch, tenant, principals, collection, wanted, expanded.expansion, embedder)

        return self._answered(tenant, principals, searches_of, expanded, watch, choose, failed)

    def _answered(
        self,
        tenant: TenantRef,
        principals: Sequence[str],
        searches_of: Callable[["Retriever", Embedder], Sequence[Search]],
        expanded: Expanded,
        watch: Watch,
        choose: Choose | None = None,
        failed: Failed | None = None,
    ) -> Retrieved:
        believed = self._last.get(tenant.id, self._embedders.default)
        searches = searches_of(self, believed)
        other = None
        try:
            with self._app.transaction(tenant.id, principals) as connection:
                snapshot = searches[0].look(connection)
                embedder = self._embedder(connection, tenant, snapshot.space_id)
                if embedder is not believed and embedder is not None:
                    self._last[tenant.id] = embedder
                    searches = searches_of(self, embedder)
                other = None if choose is None else choose(snapshot.experiment, searches[0].request.question)
                if other is not None:
                    # With its own searches; what the snapshot says is the same for both.
                    searches = searches_of(other, embedder or believed)
                finish = (other or self)._begun(connection, searches, expanded, snapshot, watch)  # noqa: SLF001
            return Retrieved(retrieval=finish(), audit=snapshot.audit)
        except Exception as error:
            if other is None or failed is None:
                raise
            failed(error)
        # In a transaction of its own: a statement that failed has ended the one before.
        return self._answered(tenant, principals, searches_of, expanded, watch)

    def _begun(
        self,
        connection: psycopg.Connection,
        searches: Sequence[Search],
        expanded: Expanded,
        snapshot: Snapshot,
        watch: Watch,
    ) -> Callable[[], SearchResult]:
        """Read all that is read in the transaction, and return what makes the result of it, outside."""
        key = self._key(searches[0], expanded.expansion, snapshot)
        if key is not None and (kept := self._results.find(key)) is not None:
            watch.lap("cache")
            return partial(replace, kept, cached=True, stages=watch.stages, timings_ms=watch.timings_ms())
        found = self._found(connection, searches, snapshot, watch)
        if self._sampler is not None:
            self._sampler.offer(searches[0], snapshot)
        return partial(self._finished, key, searches[0], expanded, found, watch)

    def _finished(
        self, key: Hashable | None, search: Search, expanded: Expanded, found: Found, watch: Watch
    ) -> SearchResult:
        watch.lap("fetch")
        asked = search.request
        reranked = self._reranked(asked.parsed.text, found.passages, watch)
        applied = self._signalled(asked.parsed.text, search.principals, reranked.passages, watch)
        result = result_of(asked, expanded, found, reranked, applied, watch)
        if key is not None:
            self._results.keep(key, result)
        return result

    def _request(self, question: str, k: int | None, filter: Filter | None) -> Request:  # noqa: A002
        settings = self._settings.rag
        kept = settings.reranking.top_k if self._reranking else settings.retrieval.top_k
        return request(
            question, k=kept if k is None else k, filter=filter, max_chars=settings.retrieval.max_question_chars
        )

    def _key(self, search: Search, expansion: Expansion, snapshot: Snapshot) -> Hashable | None:
        """Return what a kept result goes by; None where none is kept. Some signals go by the day."""
        if not self._results.enabled:
            return None
        today = _today() if self._signals.enabled else None
        told = self._tells_all(snapshot)
        return key_of(search, expansion, snapshot, version=self._version, today=today, told=told)

    def _searches(
        self,
        watch: Watch,
        tenant: TenantRef,
        principals: Sequence[str],
        collection: str | None,
        asked: Request,
        expansion: Expansion,
        embedder: Embedder,
    ) -> list[Search]:
        """Return what to ask: the question with its synonyms, then its other wordings, with this model's vectors."""
        rag = self._settings.rag
        vectors = self._vectors[id(embedder)]

        def search(text: str, synonyms: Sequence[str], passage: str | None) -> Search:
            return Search(
                tenant=tenant,
                principals=principals,
                collection=collection,
                request=asked,
                texts={text: 1.0} | dict.fromkeys(synonyms, rag.expansion.synonym_weight),
                vector=vectors.of(text, passage) if rag.retrieval.semantic_weight else None,
                lexical=rag.retrieval.keyword_weight > 0,
                depth=max(rag.retrieval.depth, self._pool(asked)),
                similarity_threshold=rag.retrieval.similarity_threshold,
                use_vector_index=self._settings.indexes.vector != "none",
            )

        searches = [
            search(asked.parsed.text, expansion.synonyms, expansion.passage),
            *(search(wording, (), None) for wording in expansion.wordings),
        ]
        if rag.retrieval.semantic_weight:
            watch.lap("embed")
        return searches

    def _pool(self, asked: Request) -> int:
        """Return how many passages to fetch: those asked for, or as many as are worth to be put in another order."""
        reordered = self._reranking is not None or self._signals.enabled
        return max(asked.k, self._settings.rag.retrieval.top_k) if reordered else asked.k

    def _found(
        self, connection: psycopg.Connection, searches: Sequence[Search], snapshot: Snapshot, watch: Watch
    ) -> Found:
        first = searches[0]
        ranked = self._ranked(connection, searches, snapshot, watch)
        note = None
        if first.request.parsed.phrases and len(ranked.fused) < first.request.k:
            # In a question in plain words quotes mostly stress something: a hit or none would be no answer to it.
            plain = [search.without_phrases() for search in searches]
            seen = plain[0].look(connection)
            if seen.required != snapshot.required:
                others = self._ranked(connection, plain, seen, watch)
                ranked, note = filled_up(ranked, others, first.request.parsed.phrases)
        passages = fetch(connection, first.scope, ranked.fused[: self._pool(first.request)])
        where = "the tenant" if first.collection is None else f"the collection {first.collection}"
        notes = tuple(given for given in (note, _presets_left_out(first, snapshot)) if given)
        accounts = {name: leg.explain for name, leg in ranked.retrievers.items()}
        if not self._tells_all(snapshot):
            accounts = {name: without_plan(account) for name, account in accounts.items()}
        return Found(where=where, chunks=snapshot.chunks, retrievers=accounts, passages=passages, warnings=notes)

    def _tells_all(self, snapshot: Snapshot) -> bool:
        """Whether this reader may know how answers are found: plans and what they read depend on all documents."""
        return snapshot.whole and not snapshot.enforced and self._settings.rag.access.department_from is None

    def _ranked(
        self, connection: psycopg.Connection, searches: Sequence[Search], snapshot: Snapshot, watch: Watch
    ) -> Ranked:
        """Ask the legs of each search, and fuse; `snapshot` is what the first one saw."""
        legs: dict[str, Leg] = {}
        for number, search in enumerate(searches, start=1):
            seen = snapshot if number == 1 else search.look(connection)
            for name, leg in search.run(connection, seen, self._postings, watch).items():
                legs[name if number == 1 else f"{name} {number}"] = leg
        asked = searches[0].request
        whole = asked.parsed.phrases or self._settings.rag.retrieval.feedback
        fused = self._fused(legs, None if whole else self._pool(asked))
        watch.lap("fuse")
        if self._settings.rag.retrieval.feedback and fused:
            ids = [entry.chunk_id for entry in fused]
            legs[FEEDBACK] = feedback(connection, searches[0].scope, snapshot, ids)
            fused = self._fused(legs, None)
            watch.lap("feedback")
        return Ranked(retrievers=legs, fused=fused)

    def _fused(self, legs: Mapping[str, Leg], limit: int | None) -> list[Fused]:
        retrieval = self._settings.rag.retrieval
        of_leg = {
            DENSE: retrieval.semantic_weight,
            LEXICAL: retrieval.keyword_weight,
            FEEDBACK: retrieval.feedback,
        }
        weights = {name: of_leg[name.partition(" ")[0]] for name in legs}
        lists = {name: leg.candidates for name, leg in legs.items()}
        if retrieval.fusion == "score":
            return score_fusion(lists, weights=weights, limit=limit)
        return reciprocal_rank_fusion(lists, weights=weights, k=retrieval.rrf_k, limit=limit)

    def _reranked(self, question: str, passages: list[Passage], watch: Watch) -> Reranked:
        if self._reranking is None:
            return Reranked(passages=passages, note=None, done=True)
        return self._reranking.run(question, passages, watch)

    def _signalled(
        self, question: str, principals: Sequence[str], passages: list[Passage], watch: Watch
    ) -> SignalResult:
        asked = QueryContext(text=question, principals=tuple(principals), today=_today())
        # What holds the phrases in quotes stays before the rest, as it does when it is reranked.
        applied = self._signals.apply(asked, passages, ahead=lambda passage: PHRASE in passage.score_contributions)
        if self._signals.enabled:
            watch.lap("signals")
        return applied

    def _embedder(self, connection: psycopg.Connection, tenant: TenantRef, space_id: UUID | None) -> Embedder | None:
        """Return the model of the space that answers in this snapshot; None where none does.

        A space is looked at once. Raises EmbeddingSpaceMismatch where no model that is configured makes its vectors.
        """
        if space_id is None:
            return None
        if (known := self._embedders.get_cached(space_id)) is not None:
            return known
        stored = live_space(connection, tenant.id)
        assert stored is not None, "the corpus names it within this snapshot"
        return self._embedders.get(stored, tenant.name)


def _today() -> date:
    return datetime.now(UTC).date()


def _presets_left_out(search: Search, snapshot: Snapshot) -> str | None:
    """Return a note where collections have presets that a question over all of them does not go by."""
    named = [corpus.collection for corpus in snapshot.corpora if corpus.preset is not None]
    if search.collection is not None or not named:
        return None
    return f"the presets of {', '.join(named)} apply to questions that name the collection"
