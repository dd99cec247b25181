"""The monitor's canaries: questions with known answers, and secrets that nobody else must find."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVALUATOR
from kosmos_rag.evaluation.monitor.isolation_canary import SECRETS, TENANTS
from kosmos_rag.evaluation.monitor.monitor import RecallMonitor
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorState
from kosmos_rag.worker.cluster import ClusterWatch
from kosmos_rag.worker.collectors import WorkerMetrics
from tests.integration.evaluation.monitor.monitoring import Mute, run_round
from tests.integration.indexing.ann.worlds import WORLD
from tests.integration.variants import changed

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Secrets are asked for where a test says so."""
    return changed(settings, {"monitor.isolation_interval_s": None})


def _rules() -> list[dict[str, Any]]:
    file = Path(__file__).parents[4] / "deploy" / "prometheus" / "rules.yml"
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def test_questions__with_known_answers_give_recall_and_mrr(
    settings: Settings, tmp_path: Path, database: DatabaseSettings
) -> None:
    file = tmp_path / "known.yaml"
    texts = [
        f"- question: chunk{number} of topic{number * 17 % 40}\n  source: default/{number}\n" for number in range(12)
    ]
    file.write_text("".join(texts) + "- question: who knows\n  answerable: false\n")
    by_words = changed(
        settings,
        {
            "monitor.questions": {"acme/default": file},
            "rag.retrieval.keyword_weight": 1.0,
            "rag.retrieval.semantic_weight": 0.0,
        },
    )
    with Engine(by_words, embedder=WORLD) as engine:
        [run] = RecallMonitor(engine).run("acme", [MonitorKind.QUESTIONS])
        assert (run.kind, run.state) == (MonitorKind.QUESTIONS, MonitorState.OK), run.reason
        assert run.figures["questions"] == 12
        assert run.figures["recall_at_10"] == run.figures["mrr"] == 1.0
        file.write_text("no list")
        [run] = RecallMonitor(engine).run("acme", [MonitorKind.QUESTIONS])
        assert run.state is MonitorState.UNKNOWN
        assert "is not a list of questions" in run.reason


def test_questions__of_several_files_share_the_time_of_a_round(
    settings: Settings, tmp_path: Path, database: DatabaseSettings
) -> None:
    file = tmp_path / "known.yaml"
    file.write_text("- question: chunk1 of topic17\n  source: default/1\n")
    files = {"acme/default": file, "acme/half": file}
    with (
        Engine(changed(settings, {"monitor.questions": files, "monitor.interval_s": 0.001}), embedder=WORLD) as engine,
        psycopg.connect(database.admin_url or "", autocommit=True) as admin,
    ):
        monitor = RecallMonitor(engine)
        assert len(monitor.run("acme", [MonitorKind.QUESTIONS])) == 2
        update = "UPDATE kosmos.monitor_runs SET milliseconds = 1000, at = now() - make_interval(secs => %s)"
        admin.execute(update, [99])
        assert list(monitor.run_due("acme", lambda _: None)) == [], "two seconds are a fiftieth of a hundred"
        admin.execute(update, [101])
        assert len(list(monitor.run_due("acme", lambda _: None))) == 2


def test_questions__are_not_those_of_a_reader(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "known.yaml"
    file.write_text("- question: chunk1 of topic17\n  source: default/1\n")
    recording = changed(
        settings,
        {
            "monitor.questions": {"acme/default": file},
            "gaps.record": True,
            "rag.audit.enabled": True,
            "rag.retrieval.keyword_weight": 1.0,
            "rag.retrieval.semantic_weight": 0.0,
        },
    )
    with Engine(recording, embedder=WORLD) as engine:
        RecallMonitor(engine).run("acme", [MonitorKind.QUESTIONS])
        records = engine.tenant("acme").audit.find()
        assert {record.subject for record in records} == {EVALUATOR}


ISOLATION = [MonitorKind.ISOLATION]


def permission(runs: Any) -> Any:
    [run] = [run for run in runs if run.kind is MonitorKind.ISOLATION]
    return run


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"rag.access.department_from": "folder", "rag.access.departments": ("hr",)},
        {"rag.retrieval.require_approved": True},
    ],
    ids=["plain", "departments", "approval"],
)
def test_permission__no_reader_finds_a_secret_of_others(settings: Settings, more: Mapping[str, Any]) -> None:
    with Engine(_by_words(settings, more), embedder=WORLD) as engine:
        run = permission(RecallMonitor(engine).run("acme", ISOLATION))
        assert (run.state, run.figures) == (MonitorState.OK, {"leaks": 0, "missed": 0}), run.reason
        assert permission(RecallMonitor(engine).status(TENANTS[0])).id == run.id


def _by_words(settings: Settings, more: Mapping[str, Any] | None = None) -> Settings:
    return changed(settings, {"rag.retrieval.keyword_weight": 0.3, **(more or {})})


def _let_all_read_all_of_a_tenant(database: DatabaseSettings) -> None:
    """Take the readers out of the policies: a leak."""
    with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
        for table in ("documents", "chunks", "embeddings", "unsegmented_terms", "lexemes", "acl_statistics"):
            admin.execute(
                f"ALTER POLICY app_read ON kosmos.{table} USING (tenant_id = kosmos.current_tenant())".encode()
            )


@pytest.mark.own_database
def test_permission__a_leak_is_found(settings: Settings, database: DatabaseSettings) -> None:
    with Engine(_by_words(settings), embedder=WORLD) as engine:
        assert permission(RecallMonitor(engine).run("acme", ISOLATION)).state is MonitorState.OK
        _let_all_read_all_of_a_tenant(database)
        run = permission(RecallMonitor(engine).run("acme", ISOLATION))
        assert run.state is MonitorState.ALARM
        assert "everyone of kosmos-canary-a found" in run.reason
        assert run.figures["leaks"] >= 2


@pytest.mark.own_database
def test_permission__a_leak_pages(settings: Settings, database: DatabaseSettings) -> None:
    """From a round of maintenance to the series that KosmosPermissionLeak rises by."""
    expression = next(rule["expr"] for rule in _rules() if rule.get("alert") == "KosmosPermissionLeak")
    assert expression.strip() == "sum(increase(kosmos_permission_leaks_total[30m])) > 0"
    with Engine(_by_words(settings, {"monitor.isolation_interval_s": 0.001}), embedder=WORLD) as engine:
        queue = engine.tenant("acme").jobs._queue
        worker = WorkerMetrics(queue, engine.database, ClusterWatch(engine.database))
        leaks = partial(worker.registry.get_sample_value, "kosmos_permission_leaks_total")
        for leaking in (False, True):
            if leaking:
                _let_all_read_all_of_a_tenant(database)
            _, counts = run_round(engine)
            worker.add(counts)
            assert (leaks() or 0.0) >= 2 if leaking else leaks() == 0.0


@pytest.mark.own_database
def test_permission__a_leak_is_counted_where_the_next_measurement_fails(
    indexed: Engine, settings: Settings, database: DatabaseSettings, caplog: pytest.LogCaptureFixture
) -> None:
    with Engine(_by_words(settings, {"monitor.isolation_interval_s": 0.001}), embedder=WORLD) as engine:
        run_round(engine)
        _let_all_read_all_of_a_tenant(database)
        with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
            admin.execute("UPDATE kosmos.monitor_runs SET at = now() - interval '1 day'")
            admin.execute("REVOKE SELECT ON kosmos.monitor_samples FROM kosmos_worker, kosmos_app")
        _, counts = run_round(engine)
        assert "monitor_failed" in {getattr(record, "action", "") for record in caplog.records}
        assert counts["kosmos_permission_leaks", ""] >= 2


def test_permission__counts_failed_probes_and_checks_the_others(
    indexed: Engine, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    mute = changed(settings, {"monitor.isolation_interval_s": 0.001})
    with Engine(mute, embedder=Mute()) as engine, caplog.at_level("INFO", logger="kosmos_rag.worker"):
        _, counts = run_round(engine)
    assert counts["kosmos_permission_checks", "unknown"] == 1
    assert counts["kosmos_recall_monitor_runs", "unknown"] == 1, "too few samples"
    [record] = [vars(record) for record in caplog.records if getattr(record, "action", "") == "monitor_isolation"]
    assert "gone to lunch" in record["texts"]["reason"]
    assert "gone to lunch" not in record["message"] + str(record["figures"])


def test_permission__what_does_not_find_its_own_knows_nothing(settings: Settings) -> None:
    with Engine(_by_words(settings), embedder=WORLD) as engine:
        RecallMonitor(engine).run("acme", ISOLATION)
        scope = engine.tenant(TENANTS[0])
        real = [secret for secret in SECRETS if secret.tenant == TENANTS[0]]
        assert sorted(scope.sources()) == sorted(secret.reader for secret in real)
    blind = _by_words(settings, {"rag.retrieval.similarity_threshold": 1.0, "rag.retrieval.keyword_weight": 0.0})
    with Engine(blind, embedder=WORLD) as engine:
        run = permission(RecallMonitor(engine).run("acme", ISOLATION))
        assert run.state is MonitorState.UNKNOWN
        assert "did not find the own secret" in run.reason
