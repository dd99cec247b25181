"""The search pipeline: from a query to ranked passages, stage by stage.

The first view that can answer reads all that the search needs, of one state of the tenant. The live embedding space is
part of that state, but the query is embedded before it is read, with the model of the tenant's last query. If the state
names another space, the query is embedded again.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

import numpy as np
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseError, RequestError, StatementFailed
from kosmos_rag.core.freshness import VALIDITY_KEYS
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.telemetry import genai, tracing
from kosmos_rag.core.telemetry.metrics import RETRIEVAL_FALLBACKS
from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.text.counts import count
from kosmos_rag.core.types import Expansion, Passage, SearchResult
from kosmos_rag.retrieval.arrange import Vectors, arrange
from kosmos_rag.retrieval.cache import result_key
from kosmos_rag.retrieval.conditions.stated import (
    NO_CONDITIONS,
    Cues,
    find_conditions,
    find_cues,
)
from kosmos_rag.retrieval.departments import DepartmentRule
from kosmos_rag.retrieval.expansion.expander import NOT_EXPANDED, ExpandedQuery
from kosmos_rag.retrieval.filters import require_approved
from kosmos_rag.retrieval.freshness import ASKS_CURRENT, prefer_current
from kosmos_rag.retrieval.fusion import (
    DENSE,
    LEXICAL,
    PHRASE,
    CandidateList,
    Ranking,
    adapt_weights,
    backfill_phrase_results,
    find_known_items,
    fuse,
    reciprocal_ranks,
    standardised_scores,
    words_decide,
)
from kosmos_rag.retrieval.hydrate import PassageRow, hydrate
from kosmos_rag.retrieval.outcome import FetchedPassages, IndexedSearch, Reading, SearchOutcome
from kosmos_rag.retrieval.pseudo_relevance import PRF
from kosmos_rag.retrieval.query import Query, QueryRequest, RetrieverQuery, parse_query
from kosmos_rag.retrieval.rerank import RerankResult
from kosmos_rag.retrieval.resources import SearchResources
from kosmos_rag.retrieval.signals.apply import SignalResult, Signals, build_signal_rules
from kosmos_rag.retrieval.signals.base import QueryContext
from kosmos_rag.retrieval.snapshot import Routing, Snapshot
from kosmos_rag.retrieval.views.base import SearchView, ViewRequest, ViewSession, ViewUnavailable
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.tenants import TenantRef

log = logging.getLogger(__name__)


class RoutingChanged(Exception):
    """The stored settings changed since the pipeline was chosen.

    Carries the current ones.
    """

    def __init__(self, routing: Routing) -> None:
        super().__init__("the routing of the query changed")
        self.routing = routing


class SearchPipeline:
    """Searches with one configuration, for any tenant of a database. Thread-safe."""

    def __init__(self, resources: SearchResources, settings: Settings, settings_hash: str | None = None) -> None:
        """Build the pipeline of a configuration.

        Args:
            resources: Shared by all pipelines of the process.
            settings: The configuration.
            settings_hash: Separates cached results of a preset or experiment; None for the settings of the process.

        Raises ConfigError on invalid signals and intents.
        """
        self._resources = resources
        self._settings = settings
        self._settings_hash = settings_hash
        rules = build_signal_rules(settings)
        # Intents without signals still name the kind of a query.
        self._signals = rules if rules.enabled or settings.rag.intents else None
        self._reorders = rules.enabled
        self._rerank_stage = resources.rerank
        if settings_hash is not None and resources.rerank is not None:
            enabled = settings.rag.reranking.enabled
            self._rerank_stage = resources.rerank.with_settings(settings.rag.reranking) if enabled else None
        retrieval, reranks = settings.rag.retrieval, self._rerank_stage is not None
        # Hits of a query that names no number, and passages to load at least, because later stages reorder them.
        self._top_k = retrieval.default_k or (settings.rag.reranking.top_k if reranks else retrieval.top_k)
        self._min_loaded = retrieval.top_k if reranks or rules.enabled else 0
        self._department_rule = DepartmentRule.from_settings(settings.rag)

    def with_settings(self, settings: Settings, settings_hash: str) -> "SearchPipeline":
        """Return a pipeline of another configuration with the same resources.

        Without a reranker it has none either.
        """
        return SearchPipeline(self._resources, settings, settings_hash)

    def for_background(self, pool: ConnectionPool) -> "SearchPipeline":
        """Return the pipeline for background queries, with connections from this pool."""
        return SearchPipeline(self._resources.for_background(pool), self._settings, self._settings_hash)

    @property
    def reranks(self) -> bool:
        """Whether there is a rerank stage."""
        return self._rerank_stage is not None

    def warm_up(self) -> None:
        """Load the models, and open a connection to the database.

        Raises ModelUnavailable for embedding models; without the reranker search degrades. An error of the database is
        left to the checks of readiness and to the first query.
        """
        self._resources.embedders.warm_up()
        if self._rerank_stage is not None:
            self._rerank_stage.warm_up()
        # Of no tenant. The server reads its catalogue and plans the statements, which took most of a first query.
        nobody = AuditContext(
            tenant=TenantRef(id=UUID(int=0), name="warm-up"), principals=(), subject=None, collection=None
        )
        query = parse_query(QueryRequest(text="warm"), nobody, max_chars=len("warm"))
        resources, timer = self._resources, StageTimer()
        [wording] = self._embed(query, self._top_k, Expansion(), resources.embedders.default, timer)
        request = ViewRequest(query=query, wordings=[wording], compares_vectors=False)
        with suppress(DatabaseError), resources.views[-1].open(request, resources.pool, timer) as session:
            session.snapshot(wording)

    @tracing.start_span("retrieval", genai.RETRIEVAL_SPAN, kind=SpanKind.CLIENT)
    def search(self, query: Query, routing: Routing | None = None) -> SearchOutcome:
        """Return the best passages that the reader may see.

        Args:
            query: The query, parsed.
            routing: Stored settings that this pipeline was chosen by, compared with the snapshot; None: do not compare.

        Raises RoutingChanged if they differ, EmbeddingSpaceMismatch, ModelUnavailable, DatabaseError.
        """
        resources, timer = self._resources, StageTimer()
        requested = self._top_k if query.k is None else query.k
        expands = resources.expander is not None and query.retrievers.vector is None
        expanded = self._expand(query, timer) if expands else NOT_EXPANDED
        space_id, embedder = resources.last_embedders.get(query.tenant.id) or (None, resources.embedders.default)
        wordings = self._embed(query, requested, expanded.expansion, embedder, timer)
        compares_vectors = bool(self._settings.rag.retrieval.prf_weight) or (
            query.options is not None and query.options.options.mmr is not None
        )
        request = ViewRequest(query=query, wordings=wordings, compares_vectors=compares_vectors)
        pool = resources.pool
        if not query.read_your_writes:
            pool = pool.pick_reader(query.tenant.id, query.subject, query.principals)
        views = [view for view in resources.views if view.can_answer(request)]
        reading, passed = None, list[SearchView]()
        # While Citus moves a tenant, one transaction may read two nodes. Then the last view is asked once more.
        for view in (*views, views[-1]):
            with suppress(ViewUnavailable), view.open(request, pool, timer) as session:
                snapshot = session.snapshot(wordings[0])
                if routing is not None and snapshot.routing != routing:
                    raise RoutingChanged(snapshot.routing)
                # A search by words alone needs no model, so none is compared with the space.
                if wordings[0].vector is not None and snapshot.space_id not in (None, space_id):
                    live = self._live_embedder(session, query.tenant, snapshot.space_id)
                    if live is not embedder:
                        embedder, wordings = live, self._embed(query, requested, expanded.expansion, live, timer)
                reading = self._look_up(query, requested, expanded.expansion, wordings, snapshot)
                if reading.cached is None:
                    reading.fetched = self._fetch(session, reading, requested, timer)
                break
            passed.append(view)
        else:
            raise StatementFailed("the tenant changed its node during the search; try again")
        assert reading is not None, "set before the loop is left"
        return self._complete(reading, requested, expanded, embedder, timer, request, passed)

    def _look_up(
        self,
        query: Query,
        requested: int,
        expansion: Expansion,
        wordings: Sequence[RetrieverQuery],
        snapshot: Snapshot,
    ) -> Reading:
        """Look up the cached result of a search of this state.

        Where the settings require it, the search is restricted to approved documents.
        """
        default = self._settings.rag.retrieval.require_approved
        presets = {
            stats.collection: None if stats.overlay is None else stats.overlay.require_approved
            for stats in snapshot.collections
        }
        if requiring := [name for name, preset in presets.items() if (default if preset is None else preset)]:
            scope = require_approved(query.scope, requiring)
            query, wordings = replace(query, scope=scope), [replace(wording, scope=scope) for wording in wordings]
        # Plans depend on all documents, hidden ones too.
        sees_all = snapshot.chunks == snapshot.total_chunks_unfiltered
        may_explain = sees_all and not snapshot.enforced and self._settings.rag.access.department_from is None
        reading = Reading(query=query, wordings=wordings, snapshot=snapshot, may_explain=may_explain)
        if self._resources.results.enabled:
            reading.key = result_key(
                query,
                requested,
                expansion,
                snapshot,
                settings_hash=self._settings_hash,
                # Signals may depend on the age of documents.
                today=query.today,
                explain=may_explain,
            )
            reading.cached = self._resources.results.get(reading.key)
        return reading

    def _expand(self, query: Query, timer: StageTimer) -> ExpandedQuery:
        assert self._resources.expander is not None, "compared by the caller"
        expanded = self._resources.expander.expand(query.parsed.text)
        if expanded.expansion != Expansion() or expanded.warnings:
            timer.record("expand")
        if expanded.warnings:
            self._resources.telemetry.record(RETRIEVAL_FALLBACKS, len(expanded.warnings), "expand", "model")
        return expanded

    def _embed(
        self, query: Query, requested: int, expansion: Expansion, embedder: Embedder, timer: StageTimer
    ) -> list[RetrieverQuery]:
        """Return the wordings to search for, with embeddings of this model.

        The query with its synonyms is first.
        """
        rag, options = self._settings.rag, query.retrievers
        embeddings = self._resources.embeddings[id(embedder)]
        text = query.parsed.text
        semantic = rag.retrieval.semantic_weight if options.semantic_weight is None else options.semantic_weight
        keyword = rag.retrieval.keyword_weight if options.keyword_weight is None else options.keyword_weight
        vector = None
        if options.vector is not None:
            if len(options.vector) != embedder.dimensions:
                raise RequestError(
                    f"the vector has {len(options.vector)} dimensions, and those of {query.tenant.name} are made by "
                    f"{embedder.name}, which has {embedder.dimensions}; embed the question with that model"
                )
            vector = np.array(options.vector, dtype=np.float32)
        elif semantic:
            vector = embeddings.get(text, expansion.passage)
        texts = {text: 1.0} | dict.fromkeys(expansion.synonyms, rag.expansion.synonym_weight)
        first = RetrieverQuery(
            scope=query.scope,
            principals=query.principals,
            parsed=query.parsed,
            texts=texts,
            vector=vector,
            lexical=keyword > 0 and bool(text),
            fuzzy=rag.retrieval.fuzzy,
            candidates=max(rag.retrieval.candidates, requested, self._min_loaded),
            similarity_threshold=rag.retrieval.similarity_threshold,
            use_vector_index=self._settings.indexes.vector != "none",
        )
        others = [
            replace(first, texts={wording: 1.0}, vector=None if first.vector is None else embeddings.get(wording, None))
            for wording in expansion.wordings
        ]
        if semantic:
            timer.record("embed")
        return [first, *others]

    def _live_embedder(self, session: ViewSession, tenant: TenantRef, space_id: UUID | None) -> Embedder:
        """Return the model of the live space.

        It is remembered for the tenant's next query. Raises EmbeddingSpaceMismatch if no configured model embeds into
        the space.
        """
        assert space_id is not None, "compared by the caller"
        embedder = self._resources.embedders.get_cached(space_id)
        if embedder is None:
            stored = session.find_space()
            assert stored is not None, "the snapshot names it"
            embedder = self._resources.embedders.get(stored, tenant.name)
        self._resources.last_embedders[tenant.id] = (space_id, embedder)
        return embedder

    def _fetch(self, session: ViewSession, reading: Reading, requested: int, timer: StageTimer) -> FetchedPassages:
        """Run the retrievers, fuse their candidates, and load the best passages.

        Args:
            reading: Query, wordings and snapshot.
            requested: Hits to return.
        """
        query, wordings, snapshot = reading.query, reading.wordings, reading.snapshot
        retrieval, text, options = self._settings.rag.retrieval, query.parsed.text, query.options
        cues = find_cues(text, query.today) if retrieval.prefer_stated else Cues(question=text)
        states_fields = bool(cues.fields or cues.times)
        limit = max(requested, self._min_loaded)
        reach = max(limit, retrieval.top_k)
        lists = session.candidates(wordings[0], snapshot)
        if len(wordings) > 1:
            lists |= _search_others(session, wordings[1:])
        # A text with copies takes more candidates than one.
        fused = None if options is not None or states_fields else 2 * reach
        ranking, warnings = self._fuse(session, query, snapshot, lists, fused, timer), [*snapshot.warnings]
        if query.parsed.operators.phrases and len(ranking.fused) < requested:
            ranking, warning = self._relax_phrases(session, reading, ranking, fused, timer)
            warnings += [warning] if warning else []
        departments = {
            stats.collection: self._department_rule
            if stats.overlay is None
            else DepartmentRule.from_settings(self._settings.rag, stats.overlay)
            for stats in snapshot.collections
        }
        # Where later steps reorder, what is below the first hits may come up.
        if states_fields or ASKS_CURRENT.search(text):
            limit = reach
        passages = hydrate(
            partial(session.passages, snapshot),
            ranking.fused,
            limit if options is None else len(ranking.fused),
            reach if cues.title_starts else 0,
            partial(_reach, cues, reach, len(ranking.fused)),
            {name: rule for name, rule in departments.items() if rule.in_use},
            today=query.today,
            fold=retrieval.fold_copies,
        )
        conditions = find_conditions(cues, passages) if states_fields or cues.title_starts else NO_CONDITIONS
        if conditions.tests:
            passages = conditions.order(passages)
        vectors: Vectors = {}
        if options is not None and options.options.mmr is not None:
            vectors = session.vectors(snapshot, [passage.chunk_id for passage in passages])
        presets = [stats.collection for stats in snapshot.collections if stats.preset is not None]
        if presets and query.collection is None:
            warnings.append(f"the presets of {', '.join(presets)} apply to questions that name the collection")
        return FetchedPassages(
            retrievers={name: candidates.explain for name, candidates in ranking.retrievers.items()},
            passages=passages[:reach],
            rest=[] if options is None else passages[reach:],
            vectors=vectors,
            warnings=tuple(warnings),
            conditions=conditions,
        )

    def _relax_phrases(
        self, session: ViewSession, reading: Reading, ranking: Ranking, limit: int | None, timer: StageTimer
    ) -> tuple[Ranking, str | None]:
        """Append the candidates that have the words of the quoted phrases alone.

        In plain questions quotes mostly stress a term: one hit or none would not answer them.

        Args:
            reading: Query, wordings and snapshot.
            ranking: The chunks that contain the phrases.
            limit: Number of fused candidates; None for all.

        Returns the ranking, and a warning where something was appended.
        """
        query, operators = reading.query, reading.query.parsed.operators
        without = replace(query.parsed, operators=replace(operators, phrases=()))
        first, *others = [replace(wording, parsed=without) for wording in reading.wordings]
        snapshot = session.snapshot(first)
        if snapshot.required == reading.snapshot.required:
            return ranking, None
        lists = session.candidates(first, snapshot) | _search_others(session, others)
        relaxed = self._fuse(session, query, snapshot, lists, limit, timer)
        return backfill_phrase_results(ranking, relaxed, operators.phrases)

    def _fuse(
        self,
        session: ViewSession,
        query: Query,
        snapshot: Snapshot,
        lists: dict[str, CandidateList],
        limit: int | None,
        timer: StageTimer,
    ) -> Ranking:
        """Fuse the lists of the retrievers.

        With pseudo-relevance feedback, fuse them again with its list.
        """
        retrieval, options = self._settings.rag.retrieval, query.retrievers
        by_ranks = retrieval.fusion == "rrf"
        contribute = partial(reciprocal_ranks, k=retrieval.rrf_k) if by_ranks else standardised_scores
        by_retriever = {
            DENSE: retrieval.semantic_weight if options.semantic_weight is None else options.semantic_weight,
            LEXICAL: retrieval.keyword_weight if options.keyword_weight is None else options.keyword_weight,
        }
        weights = {name: by_retriever[name.partition(" ")[0]] for name in lists}
        decided, known_items = False, None
        if retrieval.weighting == "collection":
            known_items = find_known_items([stats.known_items for stats in snapshot.collections], query.parsed.text)
        if retrieval.weighting != "fixed":
            decided = words_decide(lists, query.parsed.text)
            weights = adapt_weights(lists, weights, by_words=decided, known_items=known_items)
        items = None if decided else known_items
        lists = {
            name: CandidateList(
                candidates=entry.candidates,
                explain=replace(entry.explain, weight=round(weights[name], 4), by_words=decided, known_items=items),
            )
            for name, entry in lists.items()
        }
        candidates = {name: entry.candidates for name, entry in lists.items()}
        every = bool(query.parsed.operators.phrases or retrieval.prf_weight)
        fused = fuse(candidates, weights, contribute, limit=None if every else limit)
        timer.record("fuse")
        if not retrieval.prf_weight or not fused:
            return Ranking(retrievers=lists, fused=fused)
        prf = session.compare_with_best(snapshot, [entry.chunk_id for entry in fused])
        weights[PRF] = retrieval.prf_weight
        fused = fuse({**candidates, PRF: prf.candidates}, weights, contribute)
        timer.record("prf")
        return Ranking(retrievers={**lists, PRF: prf}, fused=fused)

    def _complete(
        self,
        reading: Reading,
        requested: int,
        expanded: ExpandedQuery,
        embedder: Embedder,
        timer: StageTimer,
        request: ViewRequest,
        passed: Sequence[SearchView],
    ) -> SearchOutcome:
        """Build the outcome of what was read, and cache its result.

        Args:
            requested: Hits to return.
            expanded: What the query was expanded to.
            embedder: Model of the query.
            request: What was asked of the views.
            passed: Views that did not answer.
        """
        query, wording, snapshot, task = reading.query, reading.wordings[0], reading.snapshot, None
        if reading.fetched is None:
            assert reading.cached is not None, "one of both"
            timer.record("cache")
            stages, timings = tuple(timer.durations_ms), timer.timings_ms()
            result = replace(reading.cached, cached=True, stages=stages, timings_ms=timings)
        else:
            timer.record("fetch")
            result = self._build_result(query, snapshot, requested, expanded, reading.fetched, timer)
            if reading.key is not None:
                self._resources.results.put(reading.key, result)
            for view in passed:
                task = view.observe(request, wording, snapshot) or task
        span = trace.get_current_span()
        if span.is_recording():
            genai.record_retrieval(span, query.collection, embedder.name, result)
        samples = reading.fetched is not None and snapshot.vector_index is not None
        indexed_search = _indexed_search(wording, snapshot) if samples else None
        return SearchOutcome(result=result, may_explain=reading.may_explain, indexed_search=indexed_search, task=task)

    def _build_result(
        self,
        query: Query,
        snapshot: Snapshot,
        requested: int,
        expanded: ExpandedQuery,
        fetched: FetchedPassages,
        timer: StageTimer,
    ) -> SearchResult:
        """Rerank the passages, apply the signals, and build the result."""
        # A question that is only a vector has no text to score passages for.
        text = query.parsed.text
        reranked = RerankResult(passages=fetched.passages, warning=None, is_complete=True)
        if self._rerank_stage is not None and text:
            reranked = self._rerank_stage.run(text, fetched.passages, timer)
        applied = SignalResult(passages=reranked.passages, intent=None, warnings=())
        if self._signals is not None:
            applied = self._apply_signals(self._signals, query, reranked.passages, timer)
        has_validity = any(not VALIDITY_KEYS.isdisjoint(passage.metadata) for passage in applied.passages)
        if self._settings.rag.retrieval.prefer_current and (has_validity or ASKS_CURRENT.search(text)):
            applied = replace(applied, passages=prefer_current(applied.passages, text, query.today))
        if fetched.conditions.tests:
            applied = replace(applied, passages=fetched.conditions.order(applied.passages))
        hits = tuple(
            hit if hit.rank == rank else replace(hit, rank=rank)
            for rank, hit in enumerate(applied.passages[:requested], start=1)
        )
        degraded = (*(["expand"] if expanded.warnings else []), *(["rerank"] if not reranked.is_complete else []))
        rerank_warnings = [reranked.warning] if reranked.warning else []
        result = SearchResult(
            question=query.text,
            expansion=expanded.expansion,
            requested=requested,
            hits=hits,
            stages=tuple(timer.durations_ms),
            timings_ms=timer.timings_ms(),
            retrievers=fetched.retrievers,
            warnings=(*expanded.warnings, *fetched.warnings, *rerank_warnings, *applied.warnings),
            degraded_stages=degraded,
            cached=False,
            incomplete_reason=None
            if len(hits) >= requested
            else _incomplete_reason(query, snapshot, fetched, reranked, applied),
            intent=applied.intent,
            operators=query.parsed.operators,
            conditions=fetched.conditions.stated,
        )
        if query.options is None:
            return result
        # Where a stage left passages out, those that it did not see are no better.
        rest = fetched.rest if len(applied.passages) == len(fetched.passages) else []
        return arrange(query.options, result, [*applied.passages, *rest], requested, fetched.vectors)

    def _apply_signals(
        self, signals: Signals, query: Query, passages: Sequence[Passage], timer: StageTimer
    ) -> SignalResult:
        applied = signals.apply(
            QueryContext(text=query.parsed.text, principals=query.principals, today=query.today),
            passages,
            # Passages with the quoted phrases stay first, as in the rerank stage.
            ahead=lambda passage: PHRASE in passage.score_contributions,
        )
        if self._reorders:
            timer.record("signals")
        return applied


def _reach(cues: Cues, reordered: int, candidates: int, rows: Sequence[PassageRow]) -> int:
    """Return how many passages to load because of the first.

    The question may name another date or department than that of one of them: those are in no text, so that their
    documents may be far below. Or the validity of one may be limited, or the question names its title, so that others
    come up.
    """
    if (cues.times or cues.fields) and any(cues.concern(row["metadata"], row["department"]) for row in rows):
        return candidates
    if any(not VALIDITY_KEYS.isdisjoint(row["metadata"]) for row in rows):
        return reordered
    if cues.title_starts and any(cues.find_title(row["title"], row["source"]) for row in rows[:reordered]):
        return reordered
    return 0


def _search_others(session: ViewSession, wordings: Sequence[RetrieverQuery]) -> dict[str, CandidateList]:
    """Return the candidates of other wordings.

    The names are `dense 2`, `lexical 2`, `dense 3`, and so on.
    """
    lists: dict[str, CandidateList] = {}
    for number, wording in enumerate(wordings, start=2):
        # Terms differ from wording to wording; the rest of the snapshot is the same.
        candidates = session.candidates(wording, session.snapshot(wording))
        lists |= {f"{name} {number}": entry for name, entry in candidates.items()}
    return lists


def _incomplete_reason(
    query: Query, snapshot: Snapshot, fetched: FetchedPassages, reranked: RerankResult, applied: SignalResult
) -> str:
    if snapshot.chunks == 0:
        return f"{'the tenant' if query.collection is None else f'the collection {query.collection}'} has no documents"
    loaded, relevant, selected = len(fetched.passages), len(reranked.passages), len(applied.passages)
    if selected < relevant:
        return f"{count(loaded, 'passage')} found, {selected} of them left by signals: {'; '.join(applied.warnings)}"
    if relevant < loaded:
        return f"{count(loaded, 'passage')} found, {relevant} of them relevant enough for the reranking threshold"
    return f"no {'other ' if relevant else ''}passage that the reader may read matches the question and the filter"


def _indexed_search(wording: RetrieverQuery, snapshot: Snapshot) -> IndexedSearch | None:
    if snapshot.space_id is None or wording.vector is None:
        return None
    if wording.scope["filtered"] or snapshot.required:
        return None
    return IndexedSearch(space_id=snapshot.space_id, vector=wording.vector)
