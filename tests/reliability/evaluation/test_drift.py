"""Drift: an index over one topic, as many chunks of another inserted beside questions. Prints its figures.

The monitor has to see it within its period, the lifecycle to bring recall back, and no question may fail meanwhile.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.evaluation.monitor.monitor import RecallMonitor
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorRun, MonitorState
from kosmos_rag.evaluation.settings import MonitorSettings
from tests.integration.indexing.ann.worlds import TopicEmbedder, load, only
from tests.integration.variants import changed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CHUNKS = 20_000
FULL = 10
ASKED = 60
PERIOD_S = 20.0
_TOPIC = re.compile(r"topic(\d+)")
_FIRST_OF_B = 1_000
_TOPICS_OF_A, _TOPICS_OF_B = 40, 400
_CENTRES = np.random.default_rng(5).standard_normal((_FIRST_OF_B + _TOPICS_OF_B, 64), dtype=np.float32)


class DriftEmbedder(TopicEmbedder):
    """Topics of A are few and narrow, and an index is tuned to that; those of B are many and wide."""

    def embed_query(self, question: str) -> NDArray[np.float32]:
        seed = int.from_bytes(blake2b(question.encode(), digest_size=8).digest())
        result = _TOPIC.search(question)
        topic = int(result[1]) if result else 0
        noise = 0.5 if topic < _FIRST_OF_B else 1.0
        vector = _CENTRES[topic] + noise * np.random.default_rng(seed).standard_normal(64, dtype=np.float32)
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def choose_topic(number: int) -> int:
    return number % _TOPICS_OF_A if number < CHUNKS else _FIRST_OF_B + number % _TOPICS_OF_B


def make_text(number: int) -> str:
    """Any eight words of it name its topic."""
    topic = f"topic{choose_topic(number)}"
    return f"chunk{number} of {topic} says that {topic} has common words, other {topic} as ever it was"


def question_of_a(number: int) -> str:
    return f"common topic{number % _TOPICS_OF_A} question {number}"


def question_of_b(number: int) -> str:
    return f"common topic{_FIRST_OF_B + number * 7 % _TOPICS_OF_B} question {number}"


EMBEDDER = DriftEmbedder()


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    """An engine whose every question is a sample, with a monitor that has a second in two for itself."""
    drifting = {
        "indexes.vector": "ivfflat", "indexes.unsegmented_chunks": 1_000_000,
        "indexes.vector_cache_mb": 0,  # vectors in memory are exact, and no question would show the drift
        "monitor.interval_s": PERIOD_S, "monitor.database_share": 0.5, "monitor.isolation_interval_s": None,
        "rag.retrieval.similarity_threshold": -1.0, "rag.retrieval.keyword_weight": 0.0,
    }  # fmt: skip
    with Engine(changed(settings, drifting), embedder=EMBEDDER) as running:
        yield running


class Oracle:
    """All vectors, and what is nearest in them."""

    def __init__(self, chunks: int) -> None:
        vectors = EMBEDDER.embed([make_text(number) for number in range(chunks)])
        self._vectors = vectors.astype(np.float16).astype(np.float32)

    def recall(self, engine: Engine, question: Callable[[int], str], count: int = 100) -> float:
        """The share of the ten nearest that questions find which nobody has asked before."""
        shares = []
        for number in range(10_000, 10_000 + count):
            vector = EMBEDDER.embed_query(question(number)).astype(np.float16).astype(np.float32)
            nearest = {make_text(int(place)) for place in np.argsort(-(self._vectors @ vector), kind="stable")[:FULL]}
            texts = {hit.text for hit in engine.tenant("acme").search(question(number), FULL).hits}
            shares.append(len(nearest & texts) / FULL)
        return float(np.mean(shares))


@dataclass
class Load:
    """A thread that asks until it is told to stop, of A and later of B."""

    engine: Engine
    question: Callable[[int], str] = question_of_a
    stop: threading.Event = field(default_factory=threading.Event)
    answered: int = 0
    short: int = 0

    def ask(self) -> None:
        while not self.stop.wait(0.02):
            result = self.engine.tenant("acme").search(self.question(self.answered), FULL)
            self.answered += 1
            self.short += result.returned < FULL


def maintained(engine: Engine) -> list[MonitorRun]:
    """A round of maintenance, as a worker does it."""
    engine.tenant("acme").indexes.build()
    return list(RecallMonitor(engine).run_due("acme", print))


def test_drift__is_seen_within_a_period_and_put_right(engine: Engine, database: DatabaseSettings) -> None:
    scope = engine.tenant("acme")
    load(engine, "acme", range(CHUNKS), text=make_text)
    built = only(scope.indexes.build())
    asking = Load(engine=engine)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asking.ask)
        try:
            states = _until(engine, lambda run: run.state is MonitorState.OK)
            print(
                f"A: {built.settings['lists']} lists, probes {built.settings['probes']}; monitor: {states[-1].reason}"
            )
            load(engine, "acme", range(CHUNKS, 2 * CHUNKS), text=make_text)
            oracle, asking.question = Oracle(2 * CHUNKS), question_of_b
            low, drifted_at = oracle.recall(engine, question_of_b), time.monotonic()
            runs = _until(engine, lambda run: run.state is MonitorState.ALARM)
            seen_s = time.monotonic() - drifted_at
            good = _until(engine, lambda run: run.state is MonitorState.OK)[-1]
            restored = oracle.recall(engine, question_of_b)
        finally:
            asking.stop.set()
        running.result()
    print(f"B: recall@10 {low:.3f}, alarm by run {len(runs)}, after {seen_s:.0f} s: {runs[-1].reason}")
    for step in reversed(scope.indexes.log()):
        print(f"{step.at:%H:%M:%S} {step.action}: {dict(step.before)} -> {dict(step.after)}")
    print(f"restored to {restored:.3f} of B, {oracle.recall(engine, question_of_a):.3f} of A; monitor: {good.reason}")
    print(f"{asking.answered} questions meanwhile, {asking.short} short")
    assert low < 0.95
    assert len(runs) <= 2, "the first may still hold questions of before"
    assert restored >= 0.95
    assert asking.short == 0
    assert asking.answered > 100


def _until(engine: Engine, expected: Callable[[MonitorRun], bool]) -> list[MonitorRun]:
    """Maintain again and again, until a run is what was waited for."""
    runs: list[MonitorRun] = []
    until = time.monotonic() + 10 * PERIOD_S
    while time.monotonic() < until:
        runs += maintained(engine)
        if runs and expected(runs[-1]):
            return runs
        time.sleep(1.0)
    raise AssertionError(f"it did not come: {[run.reason for run in runs]}")


def test_monitor__takes_a_fiftieth_of_one_connection_at_its_default_rate(
    settings: Settings, engine: Engine, database: DatabaseSettings
) -> None:
    load(engine, "acme", range(CHUNKS), text=make_text)
    engine.tenant("acme").indexes.build()
    sampling = changed(engine.settings, {"monitor.interval_s": 0.5})
    with (
        Engine(sampling, embedder=EMBEDDER) as sampling_engine,
        Engine(changed(engine.settings, {"monitor": MonitorSettings()}), embedder=EMBEDDER) as usual,
    ):
        for number in range(200):
            sampling_engine.tenant("acme").search(question_of_a(number), FULL)
        assert sampling_engine.background.drain(60)
        before = _active_ms(database)
        [run] = RecallMonitor(usual).run("acme", [MonitorKind.RECALL])
        used_ms = _active_ms(database) - before
        monitor = usual.settings.section(MonitorSettings)
        wait_s = max(monitor.interval_s, run.milliseconds / 1000 / monitor.database_share)
    print(
        f"{run.figures['samples']} samples of {CHUNKS:,} chunks: {run.milliseconds:.0f} ms of one connection, "
        f"{used_ms:.0f} ms active in the server, every {wait_s:.0f} s: {used_ms / 1000 / wait_s:.3%} of its time"
    )
    assert run.state is MonitorState.OK, "all of the samples were searched"
    assert used_ms / 1000 <= monitor.database_share * wait_s


def _active_ms(database: DatabaseSettings) -> float:
    time.sleep(1.5)  # sessions report what they did once a second
    with psycopg.connect(database.admin_url or "") as connection:
        row = connection.execute(
            "SELECT active_time FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return float(row[0])
