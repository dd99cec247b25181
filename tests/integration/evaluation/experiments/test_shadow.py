"""Experiments in the shadow: no reader pays for the second configuration, or notices it."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVALUATOR, EVERYONE, ExperimentMode
from kosmos_rag.engine.background import CAPACITY
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.experiments.experiments import Experiments
from kosmos_rag.storage.tenants import tenant
from tests.integration.evaluation.experiments.asking import (
    WAIT_S,
    WORDS,
    BrokenEmbedder,
    document,
    drained,
    filled,
    load_outcomes,
    preset_file,
    result,
)
from tests.integration.variants import opened

pytestmark = pytest.mark.emptied_database


class Reranker:
    """Hangs where it is asked something slow."""

    name = "told"

    def __init__(self) -> None:
        self.started, self.goes_on = threading.Event(), threading.Event()

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        if "slow" in question:
            self.started.set()
            self.goes_on.wait(WAIT_S)
        return [0.9 - place / 1000 for place in range(len(passages))]


def test_shadow__changes_no_answer_and_keeps_how_like_the_two_are(
    engine: Engine, acme: Tenant, database: DatabaseSettings
) -> None:
    questions = [f"churn account{number}" for number in range(6)]
    before = [result(acme.search(question, 5)) for question in questions]
    info = Experiments(acme).start("words", WORDS, share=1.0)
    assert (info.mode, info.collection) == (ExperimentMode.SHADOW, None)
    assert info.settings == {"rag": {"retrieval": {"semantic_weight": 0.0}}}
    during = [acme.search(question, 5) for question in questions]
    assert [result(outcome) for outcome in during] == before
    assert {outcome.experiment for outcome in during} == {None}
    drained(engine)
    rows = load_outcomes(
        database, "arm, requested, control_hits, degraded, error, control_ms, treatment_ms, overlap, rbo"
    )
    assert len(rows) == len(questions)
    for row, outcome in zip(rows, during, strict=True):
        assert row[:5] == ("control", 5, outcome.returned, False, None)
        assert row[5] == pytest.approx(outcome.timings_ms["total"] - outcome.timings_ms["embed"])
        assert row[6] > 0
        assert 0 < row[7] <= 1
    report = Experiments(acme).status("words")
    assert (report.results, report.compared, report.failed) == (6, 6, 0)
    assert report.overlap == pytest.approx(np.mean([row[7] for row in rows]))
    assert report.rbo == pytest.approx(np.mean([row[8] for row in rows]))
    assert report.shortage == "6 questions compared, and 30 are needed"
    assert [difference.p for difference in report.differences] == [None]


def test_shadow__of_the_same_answers_says_so(engine: Engine, acme: Tenant) -> None:
    Experiments(acme).start("deeper", {"rag.retrieval.candidates": 200}, share=1.0)
    acme.search("churn account1", 5)
    acme.context("churn account2", 5)
    acme.answer("What is churn of account3?", 5)
    acme.stream_answer("What is churn of account4?", 5).close()
    drained(engine)
    report = Experiments(acme).status("deeper")
    assert (report.compared, report.identical, report.overlap, report.rbo) == (4, 4, 1.0, 1.0)
    evaluator = engine.tenant("acme", subject=EVALUATOR)
    evaluator.search("churn account1", 5)
    drained(engine)
    assert Experiments(acme).status("deeper").results == 4


def test_shadow__that_hangs_delays_nobody_and_what_finds_no_room_is_dropped(
    settings: Settings, database: DatabaseSettings, tmp_path: Path
) -> None:
    reranker = Reranker()
    keys = {"rag.reranking.enabled": True, "rag.reranking.deadline_ms": 60_000, "rag.reranking.concurrency": 1}
    with opened(settings, keys, reranker=reranker) as engine:
        acme = filled(engine)
        acme.collections.create("wiki", preset=preset_file(tmp_path, "rag: {reranking: {enabled: false}}"))
        wiki = engine.tenant("acme", collection="wiki")
        wiki.ingest(document(number) for number in range(5))
        Experiments(wiki).start("reranked", {"rag.reranking.enabled": True}, share=1.0)
        expected = result(wiki.search("churn slow", 3))
        assert reranker.started.wait(WAIT_S)
        # One place in the line for the model: readers who need it are not behind the one that hangs.
        assert acme.search("churn account3", 3).degraded_stages == ()
        queue = engine.background
        assert all(queue.submit(lambda: None) for _ in range(CAPACITY - 4))
        for _ in range(7):  # and four find room
            assert result(wiki.search("churn slow", 3)) == expected
        assert load_outcomes(database, "id") == []
        reranker.goes_on.set()
        drained(engine)
        assert Experiments(wiki).status("reranked").results == 1 + 4


def test_shadow__that_raises_is_counted_and_fails_nobody(
    settings: Settings, database: DatabaseSettings, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = BrokenEmbedder()
    with opened(settings, WORDS, embedder=embedder) as engine:
        acme = filled(engine)
        Experiments(acme).start("vectors", {"rag.retrieval.semantic_weight": 0.5}, share=1.0)
        embedder.fails = True
        assert acme.search("churn secret3", 5).returned == 5
        drained(engine)
        assert load_outcomes(database, "error, overlap, treatment_ms") == [("ModelError", None, None)]
        report = Experiments(acme).status("vectors")
        assert (report.results, report.compared, report.failed) == (1, 0, 1)
        assert "secret3" not in caplog.text


def test_shadow__takes_no_connection_from_readers(settings: Settings) -> None:
    with opened(settings, {"database.pool_size": 1}) as engine:
        acme = filled(engine)
        Experiments(acme).start("words", WORDS, share=1.0)
        with engine.database.app.transaction(tenant("acme").id, [EVERYONE]):
            pass
        shadowed = threading.Event()
        background = engine.background
        assert background.submit(lambda: (shadowed.wait(WAIT_S), None)[1])
        acme.search("churn account3", 5)
        with engine.database.app.transaction(tenant("acme").id, [EVERYONE]):
            shadowed.set()
            drained(engine)  # while the readers' only connection is taken
        assert Experiments(acme).status("words").compared == 1
