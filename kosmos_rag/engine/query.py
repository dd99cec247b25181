"""Handle a query: route it, search, record and deliver the result.

Searches, contexts and answers are handled alike.
"""

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from cachetools import LRUCache

from kosmos_rag.answering.context import assemble
from kosmos_rag.answering.history import Conversation, recent_turns, repeat_turns
from kosmos_rag.answering.question_parts import split_question
from kosmos_rag.answering.select import SpanReader
from kosmos_rag.answering.stream import AnswerStream
from kosmos_rag.core.config import AuditSettings, Settings
from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.errors import ConfigError, KosmosError, ModelError, NodeUnavailable, RequestError
from kosmos_rag.core.protocols import Embedder, LanguageModel
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import (
    Answer,
    AnswerSources,
    Context,
    RetrieverStats,
    RunningExperiment,
    SearchResult,
    Turn,
)
from kosmos_rag.engine.background import BackgroundQueue
from kosmos_rag.engine.collections import CollectionPipelines, PipelineCache
from kosmos_rag.engine.conversation import TurnReader
from kosmos_rag.engine.planning import PlannedSearches
from kosmos_rag.engine.query_hooks import (
    Assignment,
    Charge,
    DeliveredResult,
    ExperimentRouter,
    IndexedQuery,
    QueryHooks,
    RoutedQuery,
    charge_nobody,
)
from kosmos_rag.retrieval.outcome import SearchOutcome
from kosmos_rag.retrieval.pipeline import RoutingChanged
from kosmos_rag.retrieval.query import Query, QueryRequest, clean_question, parse_query
from kosmos_rag.retrieval.several import fuse_results
from kosmos_rag.retrieval.snapshot import Routing, read_routing
from kosmos_rag.storage.audit.log import AuditContext, create_event_id, record_event
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.readable_documents import ReadableDocuments

Effort: TypeAlias = Literal["low", "high"]
EFFORTS: tuple[str, ...] = get_args(Effort)
MAX_QUESTIONS = 10
"""Questions of one search: they are searched one after another."""
_ROUTES = 10_000
"""Tenants and collections whose route is cached."""


WATCHED = AuditSettings(enabled=True, questions=True)
"""Audit settings of a reader whose accesses are all recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The pipelines of a collection's queries, and their audit settings."""

    routing: Routing
    """The stored settings that it was made from."""
    pipelines: CollectionPipelines
    audit: AuditSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class HandledSearch:
    """A search that is done and not delivered yet."""

    reader: AuditContext
    route: Route
    query: Query
    assignment: Assignment | None
    outcome: SearchOutcome
    result: SearchResult
    """The outcome as the reader may see it, with its id in the audit log."""

    @property
    def settings_hash(self) -> str:
        """Hash of the settings that answered."""
        serving = None if self.assignment is None else self.assignment.serving
        return self.route.pipelines.settings_hash if serving is None else serving.settings_hash


class QueryHandler:
    """Handles the queries of an engine. Thread-safe.

    Each query goes the same way: `_route` (preset of the collection, audit policy, experiment; cached), the pipeline of
    that route (the control's if a treatment fails), redaction, and `_deliver`. The order of a delivery is a contract:
    the audit log is written, then telemetry is recorded, then recall sample and experiment are handed to the background
    queue, then the observers see the result and the caller gets the payload. If the audit log cannot be written, it
    gets nothing.

    A cached route is never stale: the snapshot of the search contains the stored settings, and a pipeline that was
    chosen by others raises RoutingChanged before it answers.
    """

    def __init__(
        self,
        *,
        pool: ConnectionPool,
        background_pool: ConnectionPool,
        settings: Settings,
        pipelines: PipelineCache,
        hooks: QueryHooks,
        background: BackgroundQueue,
        telemetry: Telemetry,
        embedder: Embedder,
        language_model: LanguageModel | None,
    ) -> None:
        """Create the handler of an engine.

        Args:
            pool: Connections of readers.
            background_pool: Connections of background work.
            pipelines: Pipelines by preset.
            hooks: What a wing adds.
            background: Runs what nobody waits for.
            telemetry: Where metrics go.
            embedder: Its tokenizer counts the tokens of a context; the model is loaded by the first context.
            language_model: Plans the searches of questions with high effort.
        """
        self._pool = pool
        self._background_pool = background_pool
        self._settings = settings
        self._pipelines = pipelines
        self.charge: Charge = charge_nobody if hooks.meter is None else hooks.meter.charge
        """Charges what a block uses to a reader."""
        self._router = hooks.router
        self._sampler = hooks.sampler
        self._observers = hooks.observers
        self._background = background
        self._telemetry = telemetry
        self._embedder = embedder
        self._language_model = language_model
        self._lock = threading.Lock()
        self._routes: LRUCache[tuple[uuid.UUID, str | None], Route] = LRUCache(_ROUTES)

    def search(self, reader: AuditContext, request: QueryRequest) -> SearchResult:
        """Return the best passages. Args: see `Tenant.search`."""
        with self.charge(reader, usage.Quantity.QUESTIONS):
            handled = self._search(reader, request)
            self._deliver(handled, handled.result)
            if self._observers:
                self._observe(handled, handled.result)
        return handled.result

    def search_several(self, reader: AuditContext, texts: Iterable[Any], request: QueryRequest) -> SearchResult:
        """Return the best passages of several questions, fused.

        The audit log gets one event with all questions and the passages that are returned.

        Args:
            texts: The questions; whatever gives no texts is refused.
            request: Options of each question; its text is not used.
        """
        if isinstance(texts, bytes) or not isinstance(texts, Iterable):
            raise RequestError(f"the question is {texts!r}; give a text, or a list of texts")
        questions = list(texts)  # an iterator gives them once
        for text in questions:
            _require_text(text)
        distinct = list(dict.fromkeys(questions))
        if not 1 <= len(distinct) <= MAX_QUESTIONS:
            raise RequestError(f"{len(distinct)} questions are asked; ask 1 to {MAX_QUESTIONS} at once")
        with self.charge(reader, usage.Quantity.QUESTIONS):
            result = self._deliver_fused([self._search(reader, replace(request, text=text)) for text in distinct])
            usage.record(usage.Quantity.QUESTIONS, len(distinct) - 1)
        return result

    def search_planned(self, reader: AuditContext, request: QueryRequest) -> SearchResult:
        """Return the best passages of a question and of planned searches for it."""
        planned = PlannedSearches[HandledSearch](self._language_model, self._settings)
        with self.charge(reader, usage.Quantity.QUESTIONS):
            searches = list(planned.run(request.text, lambda text: self._search(reader, replace(request, text=text))))
            return self._deliver_fused(searches, planned.warnings)

    def _deliver_fused(self, searches: Sequence[HandledSearch], warnings: Sequence[str] = ()) -> SearchResult:
        rrf_k = searches[-1].route.pipelines.settings.rag.retrieval.rrf_k
        fused = fuse_results([handled.result for handled in searches], rrf_k=rrf_k)
        result = replace(fused, warnings=(*fused.warnings, *warnings))
        self._deliver(searches[-1], result, *searches[:-1])
        return result

    def context(self, reader: AuditContext, request: QueryRequest, max_tokens: int | None) -> Context:
        """Return evidence within a token budget. Args: see `Tenant.context`."""
        with self.charge(reader, usage.Quantity.QUESTIONS):
            handled = self._search(reader, request)
            context = self._assemble(handled, max_tokens)
            self._deliver(handled, context)
            if self._observers:
                self._observe(handled, context)
        return context

    def answer(
        self, reader: AuditContext, request: QueryRequest, max_tokens: int | None, history: Sequence[Turn]
    ) -> Answer:
        """Return a complete answer. Args: see `Tenant.answer`."""
        with self.charge(reader, usage.Quantity.QUESTIONS):
            searches, stream = self._answer(reader, request, max_tokens, history)
            had_evidence = not stream.sources.refused
            answer = stream.answer()
            self._deliver(searches[-1], answer, *searches[:-1])
            if self._observers:
                self._observe(searches[-1], answer, had_evidence=had_evidence)
        return answer

    def stream(
        self, reader: AuditContext, request: QueryRequest, max_tokens: int | None, history: Sequence[Turn]
    ) -> AnswerStream:
        """Return an answer as a stream; its sources are delivered first.

        Its first text is charged, not the sources: the model may fail after them. Args: see `Tenant.answer`.
        """
        with self.charge(reader, usage.Quantity.QUESTIONS):
            searches, stream = self._answer(reader, request, max_tokens, history)
            event_id = self._deliver(searches[-1], stream.sources, *searches[:-1])
        stream.on_complete(partial(self._complete, searches[-1], event_id, stream.sources))
        return stream.on_begin(_record_answered)

    def _search(self, reader: AuditContext, request: QueryRequest) -> HandledSearch:
        """Search by the current route. Raises what `Tenant.search` raises."""
        try:
            route: Route | None = None
            while True:
                try:
                    route = route or self._route(reader, request)
                    max_chars = route.pipelines.settings.rag.retrieval.max_question_chars
                    query = parse_query(request, reader, max_chars=max_chars)
                    experiment, assignment = route.routing.experiment, None
                    if experiment is None or self._router is None:
                        outcome = route.pipelines.search.search(query, route.routing)
                    else:
                        assignment, outcome = self._search_experiment(self._router, route, query, experiment)
                    return self._disclose(reader, route, query, assignment, outcome)
                except RoutingChanged as changed:
                    route = self._cache_route(reader, changed.routing)
                except NodeUnavailable:
                    # A replica is lost, or has cancelled the search.
                    if request.read_your_writes or self._pool.replicas is None:
                        raise
                    request = replace(request, read_your_writes=True)
                except (RequestError, ConfigError, ModelError):
                    # Before the snapshot a cached route is unchecked: under the current one there may be no error.
                    if route is None or (current := self._read_routing(reader, request)) == route.routing:
                        raise
                    route = self._cache_route(reader, current)
        except KosmosError as error:
            self._telemetry.record_failure(error)
            raise

    def _disclose(
        self,
        reader: AuditContext,
        route: Route,
        query: Query,
        assignment: Assignment | None,
        outcome: SearchOutcome,
    ) -> HandledSearch:
        """Return the search with what the reader may see of its result."""
        if reader.is_watched:
            route = replace(route, audit=WATCHED)
        result = outcome.result
        # Plans and their figures depend on all documents, hidden ones too.
        if not outcome.may_explain:
            result = replace(result, retrievers={name: _redact(stats) for name, stats in result.retrievers.items()})
        if assignment is not None:
            result = assignment.annotate(result)
        if route.audit.enabled:
            result = replace(result, id=create_event_id(datetime.now(UTC)))
        return HandledSearch(
            reader=reader, route=route, query=query, assignment=assignment, outcome=outcome, result=result
        )

    def _search_experiment(
        self, router: ExperimentRouter, route: Route, query: Query, experiment: RunningExperiment
    ) -> tuple[Assignment | None, SearchOutcome]:
        """Search with the treatment, if the query is assigned to it.

        If it fails, search with the control, in a transaction of its own.
        """
        settings, control = route.pipelines.settings, route.pipelines.search
        routed = RoutedQuery(query=query, routing=route.routing, experiment=experiment, settings=settings)
        assignment = router.assign(routed)
        if assignment is not None and assignment.serving is not None:
            try:
                return assignment, assignment.serving.search(routed)
            except RoutingChanged:
                raise
            except Exception as error:  # noqa: BLE001 — an experiment never fails a query
                assignment = router.fail(assignment, error)
        return assignment, control.search(query, route.routing)

    def _answer(
        self, reader: AuditContext, request: QueryRequest, max_tokens: int | None, history: Sequence[Turn]
    ) -> tuple[Sequence[HandledSearch], AnswerStream]:
        """Return the search of each part of the question, and the answer from all of them."""
        _require_text(request.text)
        for turn in history:
            if not isinstance(turn, Turn):
                raise RequestError(f"the history has {turn!r}; give turns, [answer.turn]")
        question, warnings = request.text, tuple[str, ...]()
        if history:
            # The history is condensed before the snapshot: its settings are read again.
            try:
                route = self._cache_route(reader, self._read_routing(reader, request))
            except KosmosError as error:
                self._telemetry.record_failure(error)
                raise
            condensed = route.pipelines.answerer.search_query(request.text, history)
            question, warnings = condensed.question, condensed.warnings
        question = clean_question(question)
        searches = [self._search(reader, replace(request, text=part)) for part in split_question(question)]
        handled = searches[-1]
        if len(searches) > 1:
            rrf_k = handled.route.pipelines.settings.rag.retrieval.rrf_k
            fused = fuse_results([search.result for search in searches], rrf_k=rrf_k)
            handled = replace(handled, result=replace(fused, question=question))
        conversation = self._read_conversation(handled, request, history)
        context = self._assemble(handled, max_tokens, conversation)
        stream = handled.route.pipelines.answerer.stream(request.text, context, warnings, conversation)
        return searches, stream.on_timing(self._telemetry.record_answer)

    def _read_conversation(
        self, handled: HandledSearch, request: QueryRequest, history: Sequence[Turn]
    ) -> Conversation:
        """Return what the prompt repeats of earlier turns.

        It repeats nothing if the caller sent none of their passages.
        """
        rag, reader = handled.route.pipelines.settings.rag, handled.reader
        turns = recent_turns(history, rag.answer.history_turns) if rag.answer.history_turns else ()
        repeats = rag.answer.mode == "generative" and rag.answer.history_tokens
        if not repeats or not any(turn.passages for turn in turns):
            return Conversation()
        turn_reader = TurnReader(
            pool=self._pool,
            query=handled.query,
            requires_approved=partial(self._requires_approved, reader, request),
            read_spans=self._span_reader(reader),
            tokenizer=self._embedder.tokenizer,
            settings=rag.context,
        )
        return repeat_turns(turns, turn_reader.read(turns), rag.answer.history_tokens)

    def _requires_approved(self, reader: AuditContext, request: QueryRequest, collection: str) -> bool:
        scope = replace(reader, collection=collection)
        route = self._cache_route(scope, self._read_routing(scope, request))
        return route.pipelines.settings.rag.retrieval.require_approved

    def _span_reader(self, reader: AuditContext) -> SpanReader:
        return ReadableDocuments(self._pool, reader.tenant.id, reader.principals).read_spans

    def _assemble(
        self, handled: HandledSearch, max_tokens: int | None, conversation: Conversation | None = None
    ) -> Context:
        with self._telemetry.time_context():
            return assemble(
                handled.result,
                tokenizer=self._embedder.tokenizer,
                settings=handled.route.pipelines.settings.rag.context,
                read_spans=self._span_reader(handled.reader),
                max_tokens=max_tokens,
                conversation=conversation or Conversation(),
            )

    def _deliver(
        self,
        handled: HandledSearch,
        payload: SearchResult | Context | Answer | AnswerSources,
        *others: HandledSearch,
    ) -> uuid.UUID | None:
        """Write the audit log, record telemetry, enqueue background work: in this order.

        Returns the id of the event in the audit log; None where no log is kept. Raises DatabaseError if it cannot be
        written. The later steps never wait and never raise.

        Args:
            handled: The search; of several, the last one, which has the latest audit policy.
            payload: What the reader gets.
            others: Searches of other questions whose hits are in the payload too.
        """
        event_id = self._record(handled, payload) if handled.route.audit.enabled else None
        if isinstance(payload, Answer):
            _record_answered()
        elif not isinstance(payload, AnswerSources):
            usage.record(usage.Quantity.QUESTIONS, 1)
        for search in (*others, handled):
            query, result, assignment = search.query, search.result, search.assignment
            self._telemetry.record_search(query.tenant.name, query.collection, result)
            if self._sampler is not None and search.outcome.indexed_search is not None:
                sample = self._sampler.select(IndexedQuery(query=query, search=search.outcome.indexed_search))
                if sample is not None and not self._background.submit(sample):
                    self._sampler.count_dropped()
            if search.outcome.task is not None:
                self._background.submit(partial(search.outcome.task, self._background_pool))
            if self._router is not None and assignment is not None and self._router.needs_record(assignment, result):
                task = partial(self._router.record, assignment, result)
                if not self._background.submit(task):
                    self._router.count_dropped()
        return event_id

    def _record(
        self, handled: HandledSearch, payload: SearchResult | Context | Answer | AnswerSources, **follows: uuid.UUID
    ) -> uuid.UUID:
        return record_event(self._pool, handled.reader, payload, handled.route.audit, handled.settings_hash, **follows)

    def _complete(
        self, handled: HandledSearch, event_id: uuid.UUID | None, sources: AnswerSources, answer: Answer
    ) -> None:
        """Log a refusal by the model after the sources, and hand the answer to the observers."""
        if event_id is not None and answer.refused and not sources.refused:
            self._record(handled, answer, follows=event_id)
        self._observe(handled, answer, had_evidence=not sources.refused)

    def _observe(
        self,
        handled: HandledSearch,
        result: SearchResult | Context | Answer,
        *,
        had_evidence: bool = False,
    ) -> None:
        """Hand a delivered result to the observers. Never waits and never raises."""
        delivered = DeliveredResult(
            reader=handled.reader,
            result=result,
            filter=handled.query.filter,
            keeps_questions=handled.route.audit.questions,
            had_evidence=had_evidence,
            citation_format=handled.route.pipelines.settings.rag.context.citation_format,
        )
        for observer in self._observers:
            task = observer.observe(delivered)
            if task is not None and not self._background.submit(task):
                observer.count_dropped()

    def _route(self, reader: AuditContext, request: QueryRequest) -> Route:
        """Return the cached route, or read it. Raises ConfigError, DatabaseError."""
        with self._lock:
            route = self._routes.get((reader.tenant.id, reader.collection))
        if route is not None:
            return route
        return self._cache_route(reader, self._read_routing(reader, request))

    def _read_routing(self, reader: AuditContext, request: QueryRequest) -> Routing:
        """Read the routing from the server that the search will read."""
        pool = self._pool
        if not request.read_your_writes:
            pool = pool.pick_reader(reader.tenant.id, reader.subject, reader.principals)
        return read_routing(pool, reader.tenant, reader.collection)

    def _cache_route(self, reader: AuditContext, routing: Routing) -> Route:
        preset = None if routing.preset is None else Preset(name=routing.preset[0], content=routing.preset[1])
        route = Route(
            routing=routing,
            pipelines=self._pipelines.get_pipelines(preset),
            audit=audit_policy(self._settings, routing.audit),
        )
        with self._lock:
            self._routes[reader.tenant.id, reader.collection] = route
        return route


def audit_policy(settings: Settings, presets: Iterable[Mapping[str, Any]]) -> AuditSettings:
    """Return the strictest audit settings of the process and of presets.

    A hit may come from any collection. A preset may enable the log and keep texts out of it, and undo neither.

    Args:
        presets: `rag.audit` of the presets, `Routing.audit`.
    """
    process = settings.rag.audit
    rules = [process, *(AuditSettings(**(process.model_dump() | dict(preset))) for preset in presets)]
    return AuditSettings(enabled=any(rule.enabled for rule in rules), questions=all(rule.questions for rule in rules))


def _redact(stats: RetrieverStats) -> RetrieverStats:
    return replace(stats, plan="hidden", read={}, known_items=None)


def _record_answered() -> None:
    usage.record(usage.Quantity.QUESTIONS, 1)
    usage.record(usage.Quantity.ANSWERS, 1)


def _require_text(question: object) -> None:
    if not isinstance(question, str):
        raise RequestError(f"the question is {question!r}; give a text")
