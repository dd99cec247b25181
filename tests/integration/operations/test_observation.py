"""What an engine tells of itself: metrics to who listens, spans, jobs of the same trace, and slow retrievals."""

import logging
from collections.abc import Iterator, Sequence
from typing import NoReturn

import pytest

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.errors import ModelUnavailable, RequestError
from kosmos_rag.core.protocols import Reranker
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.worker.handlers import EngineJobRunner
from tests.integration.variants import opened
from tests.integration.worker.working import open_channel
from tests.unit.core.recording import RecordingTracer

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = GIVEN.split("-")[1]
TEXT = b"Churn is the share of customers who leave within a month."

pytestmark = pytest.mark.emptied_database


class Broken(Reranker):
    """A model that fails."""

    name = "broken"

    def score(self, question: str, passages: Sequence[str]) -> NoReturn:
        raise RuntimeError("no memory")


class Away(HashingEmbedder):
    """A model that cannot be reached."""

    def embed_query(self, question: str) -> NoReturn:
        raise ModelUnavailable("the model cannot be reached")


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    values = {"observability.slow_ms": 1, "observability.top_tenants": 3, "rag.retrieval.result_cache": 10}
    with opened(settings, values, reranker=Broken()) as engine:
        yield engine


@pytest.fixture
def scope(engine: Engine) -> Tenant:
    scope = engine.tenant("acme")
    scope.ingest(SourceDocument(source="glossary", data=TEXT))
    return scope


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> RecordingTracer:
    """An SDK that collects."""
    recording = RecordingTracer()
    monkeypatch.setattr(tracing, "_TRACER", recording)
    return recording


def test_observer__hears_of_retrievals_and_answers(engine: Engine, scope: Tenant) -> None:
    observer = PrometheusObserver(top_tenants=3)
    engine.observe(observer)
    get = observer.registry.get_sample_value
    scope.search("What is churn?", k=5)
    scope.answer("What is churn?")

    def stage(name: str) -> float | None:
        return get("kosmos_retrieval_stage_seconds_count", {"stage": name})

    assert stage("total") == 2
    assert [stage(name) for name in ("embed", "dense", "lexical", "fuse", "fetch", "rerank")] == [2] * 6
    assert stage("context") == 1
    assert get("kosmos_retrieval_incomplete_total") == 2
    assert get("kosmos_retrieval_fallbacks_total", {"stage": "rerank", "reason": "model"}) == 2
    assert get("kosmos_answer_seconds_count", {"stage": "first_token"}) == 1
    assert get("kosmos_answer_seconds_count", {"stage": "total"}) == 1
    assert get("kosmos_tenant_retrievals_total", {"tenant": "acme"}) == 2
    # The search of the answer has one, and the scores of its units have the other.
    assert get("kosmos_cache_lookups_total", {"cache": "question_vectors", "outcome": "hit"}) == 2
    assert get("kosmos_cache_lookups_total", {"cache": "results", "outcome": "miss"}) == 2
    assert get("kosmos_pool_connections", {"role": "kosmos_app", "state": "used"}) == 0


def test_warm__searches_and_records_nothing(engine: Engine, scope: Tenant) -> None:
    observer = PrometheusObserver()
    engine.observe(observer)
    report = scope.indexes.warm()
    assert report.searches >= 1
    assert report.first_ms > 0
    assert report.last_ms > 0
    assert observer.registry.get_sample_value("kosmos_retrieval_stage_seconds_count", {"stage": "total"}) in {None, 0}
    assert engine.tenant("nobody").indexes.warm().searches == 0


def test_observer__hears_of_questions_that_fail(settings: Settings) -> None:
    observer = PrometheusObserver()

    def failed(error: str) -> float | None:
        return observer.registry.get_sample_value("kosmos_retrieval_failures_total", {"error": error})

    with Engine(settings, embedder=Away(), reranker=None) as engine:
        engine.observe(observer)
        assert failed("ModelUnavailable") == 0
        with pytest.raises(ModelUnavailable):
            engine.tenant("acme").answer("What is churn?")
        assert failed("ModelUnavailable") == 1
        with pytest.raises(RequestError):
            engine.tenant("acme").search(" ")
        assert failed("RequestError") == 1


def test_observer__hears_of_ingestion(engine: Engine) -> None:
    observer = PrometheusObserver()
    engine.observe(observer)
    engine.tenant("acme").ingest(SourceDocument(source=name, data=TEXT) for name in "ab")
    get = observer.registry.get_sample_value
    assert get("kosmos_ingestion_embedded_documents_total") == 2
    for stage in ("chunk", "embed", "write"):
        assert (get("kosmos_ingestion_stage_seconds_total", {"stage": stage}) or 0) > 0, stage


def test_spans__of_a_retrieval_are_its_stages(scope: Tenant, tracer: RecordingTracer) -> None:
    with tracing.start_entry_span("request", [GIVEN]):
        retrieval = scope.context("What is churn?").retrieval
    (request,), (retrieve,) = tracer.find_spans("request"), tracer.find_spans("retrieval")
    assert retrieve.parent == request.get_span_context()
    inside = [span for span in tracer.spans if span.parent == retrieve.get_span_context()]
    assert {span.name for span in inside} == {"rerank broken", *(f"kosmos.{stage}" for stage in retrieval.stages)}
    (context,) = tracer.find_spans("kosmos.context")
    assert context.parent == request.get_span_context()
    assert {f"{span.get_span_context().trace_id:032x}" for span in tracer.spans} == {TRACE}


def test_slow_retrieval__is_logged_with_its_plan_and_without_its_question(
    scope: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="kosmos_rag.retrieval"):
        outcome = scope.search("What is churn?")
    (record,) = (record for record in caplog.records if getattr(record, "action", "") == "slow_retrieval")
    result = vars(record)
    assert result["tenant"] == "acme"
    assert result["timings_ms"] == outcome.timings_ms
    assert {name: retriever["plan"] for name, retriever in result["plan"].items()} == {
        name: retriever.plan for name, retriever in outcome.retrievers.items()
    }
    texts = result.pop("texts")
    assert texts == {"question": "What is churn?"}
    assert "churn" not in str(result)


def _payload(scope: Tenant) -> dict[str, object]:
    (job,) = (job for job in scope.jobs.find() if job.kind == "document")
    return dict(job.payload)


def test_job__is_of_the_trace_that_asked_for_it(scope: Tenant) -> None:
    with tracing.continue_trace(GIVEN):
        scope.jobs.enqueue(SourceDocument(source="other", data=TEXT))
    assert _payload(scope)["traceparent"] == GIVEN


def test_job__without_a_trace_names_none(scope: Tenant) -> None:
    scope.jobs.enqueue(SourceDocument(source="other", data=TEXT))
    assert "traceparent" not in _payload(scope)


def test_worker__goes_on_with_the_trace_of_a_job(engine: Engine, scope: Tenant, tracer: RecordingTracer) -> None:
    with tracing.continue_trace(GIVEN):
        scope.jobs.enqueue(SourceDocument(source="other", data=TEXT + b" And more."))
    queue = scope.jobs._queue
    supervisor, channel = open_channel(queue)
    tracer.spans.clear()
    work = EngineJobRunner(engine)
    jobs = queue.claim(8, kinds=["document"], worker="test")
    work.run(jobs, channel)
    work._documents.close()
    (job,), (publish,) = tracer.find_spans("kosmos.job.document"), tracer.find_spans("kosmos.job.publish")
    assert {f"{span.get_span_context().trace_id:032x}" for span in tracer.spans} == {TRACE}
    assert [span.parent for span in tracer.find_spans("kosmos.chunk")] == [job.get_span_context()]
    assert [span.parent for span in tracer.find_spans("kosmos.embed")] == [publish.get_span_context()]
    records = []
    while supervisor.poll(1):
        records.append(supervisor.recv())
    counts = {name: value for message in records for name, value in message.counts.items()}
    assert counts["kosmos_ingestion_embedded_documents", ""] == 1
    assert counts["documents", "new"] == 1
    assert counts["kosmos_ingestion_stage_seconds", "embed"] > 0
