"""The rules and dashboards of deploy/ against what a service and a worker export."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from prometheus_client import CollectorRegistry

from kosmos_rag import AsyncEngine, Engine, Settings, SourceDocument
from kosmos_rag.apps.http.toolkit.service import create_service
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.telemetry.metrics import (
    CACHE_LOOKUPS,
    ENGINE,
    INGESTION,
    POOL_WAIT_SECONDS,
    REPLICA_LAG_SECONDS,
    load_wing_metrics,
)
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.parsing.sandbox.isolation import Isolation
from kosmos_rag.storage.placement import ClusterNode
from kosmos_rag.storage.sql import statement
from kosmos_rag.worker.cluster import ClusterWatch
from kosmos_rag.worker.collectors import DatabaseGauges, WorkerMetrics
from kosmos_rag.worker.metrics import WORKER, WORKER_ORPHANS
from tests.integration.variants import opened
from tests.metrics_page import BY_NAME, METRICS

pytestmark = pytest.mark.emptied_database

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))

# What Prometheus adds to every series of a target, and the name of its own that says whether a target answers.
OF_TARGETS = {"job", "instance"}
UP = {"up": OF_TARGETS}


def _exported(registry: CollectorRegistry) -> dict[str, set[str]]:
    """The labels of every sample of a registry, by name."""
    outcome: dict[str, set[str]] = {}
    for family in registry.collect():
        for sample in family.samples:
            outcome.setdefault(sample.name, set(OF_TARGETS)).update(sample.labels)
    return outcome


@pytest.fixture
def exported(settings: Settings) -> dict[str, set[str]]:
    """What a service and a worker export when all has happened once, by the name of the sample."""
    with opened(settings, {"observability.top_tenants": 5}) as engine:
        service = create_service(AsyncEngine(engine))
        acme = engine.tenant("acme")
        acme.ingest(SourceDocument(source="a", data=b"Churn is the share of customers who leave."))
        acme.answer("What is churn?")
        service.metrics.record_request("POST", "/v1/search", 200, 0.01)
        for metric in (*ENGINE, *load_wing_metrics("engine")):
            if metric.kind == "counter" and metric not in _READ:
                engine.telemetry.record(metric, 1, *("x" for _ in metric.labels))

        acme.jobs.enqueue(SourceDocument(source="b", data=b"waits"))
        queue = acme.jobs._queue
        cluster = ClusterWatch(engine.database)
        cluster.nodes = (ClusterNode(id=2, address="db2:5432", available=True),)
        worker = WorkerMetrics(queue, engine.database, cluster)
        worker.set_isolation(Isolation(layers=("seccomp",), denied=("network",)))
        assert worker.registry.get_sample_value("kosmos_worker_parser_isolated", {"target": "network"}) == 1
        assert worker.registry.get_sample_value("kosmos_worker_parser_isolated", {"target": "files"}) == 0
        worker.record_claim(jobs := queue.claim(1, kinds=["document"], worker="test"))
        queue.release([job.token for job in jobs])
        assert worker.registry.get_sample_value("kosmos_jobs", {"kind": "document", "state": "dead"}) == 0
        for metric in (*INGESTION, *WORKER, *load_wing_metrics("worker")):
            if metric.kind == "counter":
                worker.observer.record(metric, 1, *("x" for _ in metric.labels))
            elif metric.across_tenants:
                worker.set_tenant_gauges({(metric.name, "acme"): (1.0, 60.0)})
        return _exported(service.metrics.registry) | _exported(worker.registry) | UP | _OF_REPLICAS


_OF_REPLICAS = {REPLICA_LAG_SECONDS.name: OF_TARGETS | set(REPLICA_LAG_SECONDS.labels)}
"""It has no sample where there are no replicas; the tests of replicas read it."""
_READ = {CACHE_LOOKUPS, POOL_WAIT_SECONDS}


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def _expressions() -> Iterator[tuple[str, str]]:
    for rule in _rules():
        yield f"rules.yml: {rule.get('alert') or rule['record']}", rule["expr"]
    for dashboard in DASHBOARDS:
        for panel in json.loads(dashboard.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{dashboard.name}: {panel['title']}", target["expr"]


_OF_CRON_JOBS = ("kube_cronjob_created", "kube_cronjob_status_last_successful_time")
"""Of kube-state-metrics: docs/metrics/workload/cronjob-metrics.md of its repository has their labels."""
_SELECTOR = re.compile(r"\b((?:kosmos|kube_|up\b)[\w:]*)(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")


def test_rules_and_dashboards__name_metrics_and_labels_that_are_exported(exported: dict[str, set[str]]) -> None:
    recorded = {rule["record"] for rule in _rules() if "record" in rule}
    exported = exported | {name: {"namespace", "cronjob"} for name in _OF_CRON_JOBS}
    wrong, shown_names = [], set()
    for place, expression in _expressions():
        selectors = [(name, labels) for name, labels in _SELECTOR.findall(expression) if name not in recorded]
        shown_names |= {name for name, _ in selectors}
        exported_labels: set[str] = set()
        for name, labels in selectors:
            if name not in exported:
                wrong.append(f"{place}: no process exports {name}")
                continue
            exported_labels |= exported[name]
            matches = set(re.findall(r"(\w+)\s*[!=]~?\"", labels))
            wrong += [f"{place}: {name} has no label {label}" for label in matches - exported[name]]
            wrong += [
                f"{place}: {name} has no bucket {bound}" for bound in _bounds(labels) if not _is_bound(name, bound)
            ]
        for grouped in _GROUPING.findall(expression):
            wrong += [
                f"{place}: groups by {label}" for label in re.findall(r"\w+", grouped) if label not in exported_labels
            ]
    assert wrong == []
    assert _families(exported) <= _families(shown_names), "these are exported and shown nowhere"


def test_metrics__are_those_that_are_declared(exported: dict[str, set[str]]) -> None:
    assert _families(exported) == {metric.name for metric in METRICS}
    for metric in METRICS:
        sample = {"counter": "_total", "histogram": "_bucket", "gauge": ""}[metric.kind]
        bounds = {"le"} if metric.kind == "histogram" else set()
        assert exported[metric.name + sample] == OF_TARGETS | set(metric.labels) | bounds, metric.name


def _bounds(labels: str) -> list[str]:
    return re.findall(r'le="([^"]+)"', labels)


def _is_bound(name: str, bound: str) -> bool:
    return bound in {str(float(upto)) for upto in BY_NAME[name.removesuffix("_bucket")].buckets}


def _families(names: Iterable[str]) -> set[str]:
    own_names = {name for name in names if not name.endswith("_created")} - set(UP)
    return {re.sub(r"_(?:total|bucket|sum|count)$", "", name) for name in own_names}


def test_rules__are_well_formed() -> None:
    rules = _rules()
    names = [rule.get("alert") or rule["record"] for rule in rules]
    assert len(set(names)) == len(names) > 20
    for rule in rules:
        assert rule["expr"].count("(") == rule["expr"].count(")")
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"page", "ticket"}
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["annotations"]["remedy"][-1] in ".?)"


def test_rules__burn_rates_look_at_two_windows_that_are_recorded() -> None:
    recorded = {rule["record"] for rule in _rules() if "record" in rule}
    burning = [rule for rule in _rules() if "Burn" in rule.get("alert", "")]
    assert len(burning) == 9
    for rule in burning:
        windows = re.findall(r"(kosmos:\w+:\w+_ratio_\w+) > ([\d.]+) \* ([\d.]+)", rule["expr"])
        assert len(windows) == 2
        assert len({(factor, budget) for _, factor, budget in windows}) == 1
        assert {name for name, _, _ in windows} <= recorded


def test_rules__burn_rates_ask_how_much_there_is_of_what_burns() -> None:
    """A slow retrieval beside many other requests is no outage."""
    for rule in _rules():
        if "Burn" in rule.get("alert", ""):
            [burning] = set(re.findall(r"kosmos:(\w+):\w+_ratio_", rule["expr"]))
            assert re.findall(r"kosmos:(\w+):per_minute_1h > ", rule["expr"]) == [burning], rule["alert"]


def test_rules__compare_quantiles_with_bounds_of_their_histograms() -> None:
    """Between two bounds a quantile is a guess."""
    compared = [
        (rule["alert"], name, float(limit))
        for rule in _rules()
        for name, limit in re.findall(r"histogram_quantile\(.*?(kosmos_\w+)_bucket.*\) > ([\d.]+)", rule["expr"])
    ]
    assert len(compared) == 6
    assert [item for item in compared if item[2] not in BY_NAME[item[1]].buckets] == []


def test_rules__see_the_first_of_what_they_count() -> None:
    """`increase` of a series that begins with its first event is 0: its labels are known, and 0, before."""
    pairs = [
        (name.removesuffix("_total"), dict(re.findall(r'(\w+)=~?"([^"]+)"', labels)))
        for rule in _rules()
        for name, labels in re.findall(r"increase\((\w+)(?:\{([^}]*)\})?\[", rule["expr"])
    ]
    assert len(pairs) > 5
    for name, labels in pairs:
        metric = BY_NAME[name]
        label_sets = [dict(zip(metric.labels, values, strict=True)) for values in metric.initial]
        if metric.labels:
            assert any(all(item[label] == value for label, value in labels.items()) for item in label_sets), (
                name,
                labels,
            )


def test_orphans__are_known_by_the_names_that_the_statement_gives_them() -> None:
    matches = re.findall(r"SELECT '([^']+)'", statement("orphans"))
    assert {(kind,) for kind in matches} == set(WORKER_ORPHANS.initial)


@pytest.mark.own_database
@pytest.mark.parametrize(
    ("change", "result"),
    [
        ("UPDATE kosmos.alembic_version SET version_num = '0000'", None),
        ("ALTER TABLE kosmos.chunks DISABLE ROW LEVEL SECURITY", 0.0),
    ],
)
def test_tenants_not_apart__pages_for_policies_and_not_for_a_migration(
    change: str, result: float | None, settings: Settings, database: DatabaseSettings
) -> None:
    def read_gauge(engine: Engine) -> float | None:
        registry = CollectorRegistry()
        registry.register(DatabaseGauges(engine.database))
        return registry.get_sample_value("kosmos_rls_preflight_ok", {"role": "kosmos_app"})

    with Engine(settings, embedder=HashingEmbedder()) as engine:
        assert read_gauge(engine) == 1.0
        with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
            admin.execute(change.encode())
        assert read_gauge(engine) == result


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboard__is_one_that_grafana_can_lay_out(dashboard: Path) -> None:
    board = json.loads(dashboard.read_text())
    assert board["uid"] == f"kosmos-{dashboard.stem}"
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    pairs: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == source["uid"]
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & pairs, f"{panel['title']} lies over another panel"
        assert max(x for x, _ in cells) < 24
        pairs |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_rules__pass_promtool() -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed: PromQL was checked for names alone")
    for text in (["check", "rules", str(RULES)], ["test", "rules", str(Path(__file__).with_name("rules_test.yml"))]):
        process = subprocess.run([promtool, *text], capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout + process.stderr
