"""Samples for Prometheus of what is told."""

from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics

from kosmos_rag.apps.http.toolkit.metrics import HTTP_REQUESTS
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.metrics import (
    CACHE_LOOKUPS,
    ENGINE,
    POOL_WAITING,
    RETRIEVAL_INCOMPLETE,
    RETRIEVAL_STAGE_SECONDS,
    TENANT_RETRIEVAL_SECONDS,
    TENANT_RETRIEVALS,
)
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver
from kosmos_rag.worker.metrics import WORKER

TRACE = "0af7651916cd43dd8448eb211c80319c"


def _series(observer: PrometheusObserver) -> int:
    return sum(not line.startswith("#") for line in generate_latest(observer.registry).decode().splitlines())


def test_observer__adds_counters_and_fills_histograms() -> None:
    observer = PrometheusObserver()
    observer.record(RETRIEVAL_INCOMPLETE)
    observer.record(RETRIEVAL_INCOMPLETE, 2)
    observer.record(RETRIEVAL_STAGE_SECONDS, 0.004, "dense")
    get = observer.registry.get_sample_value
    assert get("kosmos_retrieval_incomplete_total") == 3
    assert get("kosmos_retrieval_stage_seconds_bucket", {"stage": "dense", "le": "0.005"}) == 1
    assert get("kosmos_retrieval_stage_seconds_bucket", {"stage": "dense", "le": "0.0025"}) == 0


def test_observer__shows_zero_before_the_first_and_leaves_what_is_not_its_own() -> None:
    observer = PrometheusObserver(ENGINE)
    observer.record(HTTP_REQUESTS, 1, "GET", "/", "200")
    assert observer.registry.get_sample_value("kosmos_retrieval_incomplete_total") == 0
    assert "kosmos_http" not in generate_latest(observer.registry).decode()


def test_observer__reads_what_is_watched_and_adds_equal_labels() -> None:
    telemetry, observer, waiting = Telemetry(), PrometheusObserver(), [1.0]
    telemetry.gauge(POOL_WAITING, lambda: waiting[0], "kosmos_app")
    telemetry.attach(observer)
    telemetry.gauge(POOL_WAITING, lambda: 5, "kosmos_app")
    telemetry.gauge(CACHE_LOOKUPS, lambda: 7, "results", "hit")
    waiting[0] = 2.0
    get = observer.registry.get_sample_value
    assert get("kosmos_pool_waiting", {"role": "kosmos_app"}) == 7
    assert get("kosmos_cache_lookups_total", {"cache": "results", "outcome": "hit"}) == 7


def test_observer__gives_samples_the_trace_that_they_belong_to() -> None:
    observer = PrometheusObserver()
    with tracing.continue_trace(f"00-{TRACE}-b7ad6b7169203331-01"):
        observer.record(RETRIEVAL_STAGE_SECONDS, 0.2, "total")
    (line,) = (line for line in open_metrics(observer.registry).decode().splitlines() if TRACE in line)
    assert line.startswith('kosmos_retrieval_stage_seconds_bucket{le="0.2",stage="total"} 1.0 # {trace_id="')


def test_observer__without_a_trace_has_no_exemplar() -> None:
    observer = PrometheusObserver()
    observer.record(RETRIEVAL_STAGE_SECONDS, 0.2, "total")
    assert "trace_id" not in open_metrics(observer.registry).decode()


def test_the_rest_of_the_tenants__never_falls() -> None:
    """To Prometheus a counter that falls has begun again, and its whole value is a rise."""
    observer = PrometheusObserver(top_tenants=2)
    get, rest = observer.registry.get_sample_value, 0.0
    for turn in range(1, 30):
        for number in range(6):
            observer.record(TENANT_RETRIEVALS, float(turn * (number + turn) % 7), f"tenant-{number}")
        now = get("kosmos_tenant_retrievals_total", {"tenant": "other"})
        assert now is not None
        assert now >= rest
        rest = now
    assert rest > 0


def test_counters_that_alerts_rise_by__are_zero_before_the_first() -> None:
    get = PrometheusObserver(WORKER).registry.get_sample_value
    assert get("kosmos_worker_orphans_total", {"what": "chunks without a vector"}) == 0


def _ask(observer: PrometheusObserver, tenants: int) -> None:
    for number in range(tenants):
        for _ in range(1 + (number == tenants // 2)):
            observer.record(TENANT_RETRIEVALS, 1, f"tenant-{number}")
            observer.record(TENANT_RETRIEVAL_SECONDS, 0.5, f"tenant-{number}")
            for stage in ("embed", "plan", "dense", "lexical", "fuse", "fetch", "rerank", "context", "total"):
                observer.record(RETRIEVAL_STAGE_SECONDS, 0.01, stage)


def test_ten_thousand_tenants__are_no_label_unless_asked_for() -> None:
    observer = PrometheusObserver()
    _ask(observer, 10_000)
    assert "tenant-" not in generate_latest(observer.registry).decode()
    assert _series(observer) < 3_000


def test_ten_thousand_tenants__are_told_of_by_name_up_to_a_number() -> None:
    observer = PrometheusObserver(top_tenants=1_000)
    _ask(observer, 10_000)
    get = observer.registry.get_sample_value
    assert get("kosmos_tenant_retrievals_total", {"tenant": "tenant-5000"}) == 2
    # The first fifty had names while they were alone; what the others asked before they had one stays with the rest.
    assert get("kosmos_tenant_retrievals_total", {"tenant": "other"}) == 10_001 - 50
    assert get("kosmos_tenant_retrieval_seconds_total", {"tenant": "tenant-5000"}) == 1.0
    assert _series(observer) < 3_000
