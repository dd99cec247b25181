"""The monitor over a tenant with an index: what it keeps of questions, what it measures, and what comes of that."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kosmos_rag import Engine, Filter, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseError, StatementFailed
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.background import CAPACITY
from kosmos_rag.evaluation.monitor.monitor import RecallMonitor
from kosmos_rag.evaluation.monitor.recall import Sample, measure_live_recall
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorState
from kosmos_rag.storage.tenants import tenant
from tests.integration.evaluation.monitor.monitoring import Mute, run_round
from tests.integration.indexing.ann.worlds import (
    FULL,
    QUESTIONS,
    TOPICS,
    WORLD,
    make_question,
    only,
    physical,
    publish_world,
)
from tests.integration.variants import changed

pytestmark = pytest.mark.emptied_database

ASKED = 40


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Slices of a millisecond: every question is a sample."""
    return changed(
        settings,
        {"monitor.samples_per_run": 1000, "monitor.interval_s": 1.0, "monitor.isolation_interval_s": None},
    )


def rows(database: DatabaseSettings, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.admin_url or "") as connection:
        return connection.execute(query.encode()).fetchall()


def make_other_question(number: int) -> str:
    """A question that is near no topic: what is nearest lies in many lists."""
    return f"nothing of the kind {number}"


def question_of_five_topics(number: int) -> str:
    """Its nearest chunks lie in about five lists: more than one, and fewer than half of them, in every build."""
    topics = " ".join(f"topic{(number + 13 * step) % TOPICS}" for step in range(5))
    return f"common {topics} question {number}"


def ask(engine: Engine, count: int = ASKED, question: Callable[[int], str] = make_question, **scope: Any) -> None:
    """Ask questions, and wait until their samples are written."""
    for number in range(count):
        engine.tenant("acme", **scope).search(question(number), FULL)
    assert engine.background.drain(60)


def search_less(database: DatabaseSettings, probes: int = 1) -> None:
    """Have the index searched less far than it was measured to need."""
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute(
            "UPDATE kosmos.indexes SET settings = settings || %s WHERE kind = 'ivfflat'", [Jsonb({"probes": probes})]
        )


# --- samples -------------------------------------------------------------------------------------------------------


def test_samples__are_vectors_with_their_readers_and_bounded(settings: Settings, database: DatabaseSettings) -> None:
    with Engine(
        changed(settings, {"monitor.samples_per_run": 30, "monitor.interval_s": 0.1}), embedder=WORLD
    ) as engine:
        engine.tenant("acme").indexes.build()
        ask(engine, 120)
        ask(engine, 5, principals=["half"], collection="default")
    samples = rows(database, "SELECT collection, principals, question, vector::text FROM kosmos.monitor_samples")
    of_all = [row for row in samples if row[0] is None]
    assert 10 <= len(of_all) <= 30
    assert {tuple(row[1]) for row in of_all} == {(EVERYONE,)}
    assert 1 <= len(samples) - len(of_all) <= 5
    assert {tuple(row[1]) for row in samples if row[0] == "default"} == {("half",)}
    assert {row[2] for row in samples} == {None}
    assert all(row[3].count(",") == WORLD.dimensions - 1 for row in samples)


def test_samples__leave_out_what_callers_wrote_into_filters_and_phrases(
    indexed: Engine, database: DatabaseSettings
) -> None:
    scope = indexed.tenant("acme")
    scope.search(QUESTIONS[0], FULL, Filter(where={"metadata.n": 77}))
    scope.search('"common words" topic3', FULL)
    ask(indexed, 0)
    assert rows(database, "SELECT 1 FROM kosmos.monitor_samples") == []


def test_samples__of_a_tenant_that_is_scanned_are_none(engine: Engine, database: DatabaseSettings) -> None:
    ask(engine)
    assert rows(database, "SELECT 1 FROM kosmos.monitor_samples") == []
    assert engine.background._thread is None


def test_samples__carry_the_text_only_where_a_setting_says_so(settings: Settings, database: DatabaseSettings) -> None:
    with Engine(changed(settings, {"monitor.keep_questions": True}), embedder=WORLD) as engine:
        engine.tenant("acme").indexes.build()
        engine.tenant("acme").search("common topic3 question", FULL)
    assert rows(database, "SELECT question FROM kosmos.monitor_samples") == [("common topic3 question",)]


class Listener:
    """Counts what is told of samples."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}
        self._lock = threading.Lock()

    def record(self, metric: Any, value: float = 1.0, *labels: str) -> None:
        if metric.name == "kosmos_recall_monitor_samples":
            with self._lock:
                self.counts[labels[0]] = self.counts.get(labels[0], 0.0) + value

    def gauge(self, *_: Any) -> None:
        """Leave it."""


@pytest.mark.own_database
def test_samples__that_find_the_buffer_full_or_cannot_be_written_are_dropped_and_counted(
    indexed: Engine, database: DatabaseSettings
) -> None:
    listener = Listener()
    indexed.observe(listener)
    queue, event, goes_on = indexed.background, threading.Event(), threading.Event()
    assert queue.submit(lambda: (event.set(), goes_on.wait(60), None)[2])
    assert event.wait(60)
    assert all(queue.submit(lambda: None) for _ in range(CAPACITY - 10))
    scope = indexed.tenant("acme")
    assert all(scope.search(make_question(number), FULL).returned == FULL for number in range(15))
    assert listener.counts == {"dropped": 5}
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute("REVOKE INSERT ON kosmos.monitor_samples FROM kosmos_app")
    goes_on.set()
    ask(indexed, 0)
    assert listener.counts == {"dropped": 15}


def test_samples__are_written_and_read_by_no_other_tenant(indexed: Engine, database: DatabaseSettings) -> None:
    ask(indexed, 3)
    app, worker = indexed.database.app, indexed.database.worker
    with worker.transaction(tenant("other").id, [EVERYONE]) as connection:
        assert connection.execute("SELECT count(*) FROM kosmos.monitor_samples").fetchone() == (0,)
    with (
        pytest.raises(DatabaseError, match="permission denied"),
        app.transaction(tenant("acme").id, [EVERYONE]) as connection,
    ):
        connection.execute("SELECT count(*) FROM kosmos.monitor_samples").fetchone()


RECALL = [MonitorKind.RECALL]

# --- recall ----------------------------------------------------------------------------------------------------------


def test_monitor__finds_nothing_wrong_with_a_good_index(indexed: Engine, database: DatabaseSettings) -> None:
    before = physical(database)
    ask(indexed)
    monitor = RecallMonitor(indexed)
    assert monitor.count_samples("acme") >= 30
    [run] = monitor.run("acme", RECALL)
    assert (run.kind, run.state) == (MonitorKind.RECALL, MonitorState.OK)
    assert run.figures["ann_recall_at_10"] >= 0.9
    assert run.figures["incomplete_share"] == 0.0
    assert run.milliseconds > 0
    assert physical(database) == before
    assert monitor.count_samples("acme") == 0
    assert [step.action for step in indexed.tenant("acme").indexes.log()] == ["rebuilt"]


def test_monitor__with_too_few_samples_says_unknown_and_keeps_them(indexed: Engine) -> None:
    ask(indexed, 10)
    monitor = RecallMonitor(indexed)
    samples = monitor.count_samples("acme")
    [run] = monitor.run("acme", RECALL)
    assert (run.state, run.reason) == (MonitorState.UNKNOWN, f"{samples} samples, 30 are needed")
    assert monitor.count_samples("acme") == samples
    assert [result.id for result in monitor.status("acme")] == [run.id]


@pytest.fixture
def many_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty lists, of which one holds little of what is near."""
    monkeypatch.setattr("kosmos_rag.indexing.ann._ROWS_PER_LIST", 100)


def test_monitor__searches_an_index_further(many_lists: None, indexed: Engine, database: DatabaseSettings) -> None:
    before = physical(database)
    search_less(database)
    ask(indexed, question=question_of_five_topics)
    [run] = RecallMonitor(indexed).run("acme", RECALL)
    assert (run.state, run.figures["action"]) == (MonitorState.ALARM, "search_widened"), run.figures
    assert run.figures["consecutive_alarms"] == 1
    assert physical(database) == before
    info = only(indexed.tenant("acme").indexes.status())
    assert info.settings["probes"] > 1
    assert info.health["recall_at_10"] >= 0.95
    [step, _] = indexed.tenant("acme").indexes.log()
    assert (step.action, step.reason, step.before["probes"]) == ("search_widened", run.reason, 1)
    assert step.after["probes"] == info.settings["probes"]
    # What measured nothing is no end of a row of alarms, however much there is of it.
    assert {RecallMonitor(indexed).run("acme", RECALL)[0].state for _ in range(25)} == {MonitorState.UNKNOWN}
    search_less(database)
    ask(indexed, question=question_of_five_topics)
    assert RecallMonitor(indexed).run("acme", RECALL)[0].figures["consecutive_alarms"] == 2


@pytest.mark.slow
def test_monitor__that_has_raised_before_builds_again_where_that_may_help(
    many_lists: None, indexed: Engine, database: DatabaseSettings
) -> None:
    scope, monitor = indexed.tenant("acme"), RecallMonitor(indexed)
    [first] = physical(database)
    for action in ("search_widened", "skipped"):
        search_less(database)
        ask(indexed, question=question_of_five_topics)
        [run] = monitor.run("acme", RECALL)
        assert (run.state, run.figures["action"]) == (MonitorState.ALARM, action)
    assert run.figures["consecutive_alarms"] == 2
    assert scope.indexes.log(1)[0].reason.endswith(
        "0 chunks published since it was built are too few for another build"
    )

    publish_world(indexed, "acme", range(3_000, 3_400))
    search_less(database)
    ask(indexed, question=question_of_five_topics)
    [run] = monitor.run("acme", RECALL)
    assert (run.state, run.figures["action"]) == (MonitorState.ALARM, "rebuilt")
    [second] = physical(database)
    assert second != first
    assert only(scope.indexes.status()).rows == 3_400
    ask(indexed, question=question_of_five_topics)
    assert monitor.run("acme", RECALL)[0].state is MonitorState.OK
    built = next(step for step in scope.indexes.log() if step.action == "rebuilt")
    assert "the target is 0.95" in built.reason
    assert (built.before["rows"], built.after["rows"]) == (3_000, 3_400)


def test_monitor__that_cannot_put_an_index_right_tells_of_the_alarm_all_the_same(
    many_lists: None, indexed: Engine, settings: Settings, database: DatabaseSettings
) -> None:
    search_less(database)
    ask(indexed, question=make_other_question)
    with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
        # It was raised before, and all of it has changed: it is to be built again, which takes a model.
        health = Jsonb({"search_widened": True, "published": 0})
        admin.execute("UPDATE kosmos.indexes SET health = health || %s WHERE kind = 'ivfflat'", [health])
    with Engine(settings, embedder=Mute()) as engine:
        engine.tenant("acme").events.start()
        _, counts = run_round(engine)
        alarms = [event for event in engine.tenant("acme").events.read()[0] if event.type == "monitor.alarm"]
        assert [(event.collection, event.data["kind"]) for event in alarms] == [("*", "recall")]
        assert alarms[0].data["figures"]["consecutive_alarms"] >= 1
        assert counts["kosmos_recall_monitor_repairs", "skipped"] == counts["kosmos_recall_monitor_runs", "alarm"] == 1
        step = engine.tenant("acme").indexes.log(1)[0]
        assert step.action == "skipped"
        assert "gone to lunch" in step.reason


@pytest.mark.slow
def test_monitor__that_may_not_act_leaves_the_index(
    many_lists: None, settings: Settings, database: DatabaseSettings
) -> None:
    with Engine(changed(settings, {"monitor.auto_repair": False}), embedder=WORLD) as engine:
        engine.tenant("acme").indexes.build()
        search_less(database)
        ask(engine, question=make_other_question)
        [run] = RecallMonitor(engine).run("acme", RECALL)
        assert run.state is MonitorState.ALARM
        assert "action" not in run.figures
        assert only(engine.tenant("acme").indexes.status()).settings["probes"] == 1


@pytest.mark.slow
def test_monitor__compares_scores_with_those_since_the_last_tuning(indexed: Engine) -> None:
    monitor = RecallMonitor(indexed)
    ask(indexed)
    assert "drift" not in monitor.run("acme", RECALL)[0].figures
    ask(indexed)
    run = monitor.run("acme", RECALL)[0]
    assert run.figures["drift"] < run.figures["drift_limit"]
    ask(indexed, question=make_other_question)
    run = monitor.run("acme", RECALL)[0]
    assert run.figures["drift"] > run.figures["drift_limit"]
    indexed.tenant("acme").indexes.tune()
    ask(indexed)
    assert "drift" not in monitor.run("acme", RECALL)[0].figures


def test_run_due__waits_for_its_time_and_its_share(
    indexed: Engine, settings: Settings, database: DatabaseSettings
) -> None:
    message = list[str]()
    ask(indexed)
    with Engine(changed(settings, {"monitor.interval_s": 3600.0}), embedder=WORLD) as seldom:
        assert [run.state for run in RecallMonitor(seldom).run_due("acme", message.append)] == [MonitorState.OK]
        ask(indexed)
        assert list(RecallMonitor(seldom).run_due("acme", message.append)) == []
    with (
        Engine(changed(settings, {"monitor.interval_s": 0.001}), embedder=WORLD) as engine,
        psycopg.connect(database.admin_url or "", autocommit=True) as admin,
    ):
        admin.execute("UPDATE kosmos.monitor_runs SET milliseconds = 1000, at = now() - interval '30 seconds'")
        assert list(RecallMonitor(engine).run_due("acme", message.append)) == [], (
            "a second of two hundredths is not over before fifty"
        )
        admin.execute("UPDATE kosmos.monitor_runs SET at = now() - interval '51 seconds'")
        output, counts = run_round(engine)
        assert counts["kosmos_recall_monitor_runs", "ok"] == 1
        [run, _] = RecallMonitor(engine).status("acme")
        _, hold_s = output["kosmos_recall_monitor_recall_at_10", "acme"]
        assert hold_s > 2 * run.milliseconds / 1000 / 0.02, "a figure is shown until it is measured again"


def test_live_recall__pauses_as_long_as_it_works_and_counts_what_takes_too_long(indexed: Engine) -> None:
    sample = Sample(id=tenant("acme").id, collection=None, principals=("half",), vector=WORLD.embed_query(QUESTIONS[0]))
    pauses: list[float] = []
    result = measure_live_recall(indexed, "acme", [sample] * 3, pause=pauses.append)
    assert (result.samples, result.timed_out, len(result.scores)) == (3, 0, 3)
    assert sum(pauses) * 1000 == pytest.approx(result.milliseconds, abs=1)
    assert result.recall is not None
    assert result.recall.recall_at_10 >= 0.8
    nobody = replace(sample, principals=("nobody",))
    unseen = measure_live_recall(indexed, "acme", [nobody], pause=pauses.append)
    assert (unseen.samples, unseen.recall, unseen.scores) == (0, None, ())
    with pytest.raises(StatementFailed, match="dimensions"):  # refused, and not late
        measure_live_recall(indexed, "acme", [replace(sample, vector=sample.vector[:5])], pause=pauses.append)
