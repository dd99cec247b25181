"""Experiments: a second configuration in the shadow or in service, which no reader pays for and no tenant shares."""

import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.config import DatabaseSettings
from kosmos_rag.errors import ConfigError, ModelError, RequestError
from kosmos_rag.records import EVALUATOR, EVERYONE, Arm, ExperimentMode, Retrieval
from kosmos_rag.scope import TenantScope
from kosmos_rag.storage.setup import set_up
from kosmos_rag.storage.tenancy import tenant
from kosmos_rag.testing import HashingEmbedder
from tests.integration.variants import opened

WAIT_S = 60
WORDS = {"rag.retrieval.semantic_weight": 0.0}
"""A second configuration that is known by its legs: it has no dense one."""


def _document(number: int, text: str = "", **more: Any) -> SourceDocument:
    return SourceDocument(source=f"d{number}", title="-", data=f"churn of account{number} {text}".encode(), **more)


def _filled(engine: Engine, **scope: Any) -> TenantScope:
    acme = engine.tenant("acme", **scope)
    acme.ingest(_document(number, "churn " * (number % 5)) for number in range(12))
    return acme


@pytest.fixture
def acme(engine: Engine) -> TenantScope:
    """A tenant with a dozen documents."""
    return _filled(engine)


def _told(found: Retrieval) -> Retrieval:
    """What a result says, without how long it took."""
    return replace(found, stages=(), timings_ms={})


def _drained(engine: Engine) -> None:
    assert engine.parts.experiments.drain(WAIT_S)


def _rows(database: DatabaseSettings, columns: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.admin_url or "") as connection:
        return connection.execute(f"SELECT {columns} FROM kosmos.experiment_results ORDER BY at".encode()).fetchall()


def test_shadow__changes_no_answer_and_keeps_how_like_the_two_are(
    engine: Engine, acme: TenantScope, database: DatabaseSettings
) -> None:
    questions = [f"churn account{number}" for number in range(6)]
    before = [_told(acme.retrieve(question, 5)) for question in questions]
    info = acme.experiments.start("words", WORDS, share=1.0)
    assert (info.mode, info.collection) == (ExperimentMode.SHADOW, None)
    assert info.settings == {"rag": {"retrieval": {"semantic_weight": 0.0}}}
    during = [acme.retrieve(question, 5) for question in questions]
    assert [_told(found) for found in during] == before
    assert {found.experiment for found in during} == {None}
    _drained(engine)
    rows = _rows(database, "arm, requested, first_hits, degraded, fault, first_ms, second_ms, overlap, rbo")
    assert len(rows) == len(questions)
    for row, found in zip(rows, during, strict=True):
        assert row[:5] == ("first", 5, found.returned, False, None)
        assert row[5] == pytest.approx(found.timings_ms["total"] - found.timings_ms["embed"])
        assert row[6] > 0
        assert 0 < row[7] <= 1
    report = acme.experiments.status("words")
    assert (report.results, report.compared, report.failed) == (6, 6, 0)
    assert report.overlap == pytest.approx(np.mean([row[7] for row in rows]))
    assert report.rbo == pytest.approx(np.mean([row[8] for row in rows]))
    assert report.shortage == "6 questions compared, and 30 are needed"
    assert [difference.p for difference in report.differences] == [None]


def test_shadow__of_the_same_answers_says_so(engine: Engine, acme: TenantScope) -> None:
    acme.experiments.start("deeper", {"rag.retrieval.depth": 200}, share=1.0)
    acme.retrieve("churn account1", 5)
    acme.context("churn account2", 5)
    acme.answer("What is churn of account3?", 5)
    acme.stream_answer("What is churn of account4?", 5).close()
    _drained(engine)
    report = acme.experiments.status("deeper")
    assert (report.compared, report.identical, report.overlap, report.rbo) == (4, 4, 1.0, pytest.approx(1.0))
    evaluator = engine.tenant("acme", subject=EVALUATOR)
    evaluator.retrieve("churn account1", 5)
    _drained(engine)
    assert acme.experiments.status("deeper").results == 4


class Reranker:
    """Hangs where it is asked something slow."""

    name = "told"

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        if "slow" in question:
            self.begun.set()
            self.goes_on.wait(WAIT_S)
        return [0.9 - place / 1000 for place in range(len(passages))]


def _preset(folder: Path, text: str) -> Path:
    path = folder / "plain.yaml"
    path.write_text(text)
    return path


def test_shadow__that_hangs_delays_nobody_and_what_finds_no_room_is_dropped(
    settings: Settings, database: DatabaseSettings, tmp_path: Path
) -> None:
    reranker = Reranker()
    keys = {"rag.reranking.enabled": True, "rag.reranking.deadline_ms": 60_000, "rag.reranking.concurrency": 1}
    with opened(settings, keys, reranker=reranker) as engine:
        acme = _filled(engine)
        acme.collections.create("wiki", preset=_preset(tmp_path, "rag: {reranking: {enabled: false}}"))
        wiki = engine.tenant("acme", collection="wiki")
        wiki.ingest(_document(number) for number in range(5))
        wiki.experiments.start("reranked", {"rag.reranking.enabled": True}, share=1.0)
        expected = _told(wiki.retrieve("churn slow", 3))
        assert reranker.begun.wait(WAIT_S)
        # One place in the line for the model: readers who need it are not behind the one that hangs.
        assert acme.retrieve("churn account3", 3).skipped == ()
        line = engine.parts.experiments._background
        assert all(line.submit(lambda: None) for _ in range(60))
        for _ in range(7):  # and four find room
            assert _told(wiki.retrieve("churn slow", 3)) == expected
        assert _rows(database, "id") == []
        reranker.goes_on.set()
        _drained(engine)
        assert wiki.experiments.status("reranked").results == 1 + 4


class BrokenEmbedder(HashingEmbedder):
    """Fails on questions, once it is told to."""

    fails = False

    def embed_query(self, question: str) -> NDArray[np.float32]:
        if self.fails:
            raise ModelError(f"broken on purpose by {question}")
        return super().embed_query(question)


def test_shadow__that_raises_is_counted_and_fails_nobody(
    settings: Settings, database: DatabaseSettings, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = BrokenEmbedder()
    with opened(settings, WORDS, embedder=embedder) as engine:
        acme = _filled(engine)
        acme.experiments.start("vectors", {"rag.retrieval.semantic_weight": 0.5}, share=1.0)
        embedder.fails = True
        assert acme.retrieve("churn secret3", 5).returned == 5
        _drained(engine)
        assert _rows(database, "fault, overlap, second_ms") == [("ModelError", None, None)]
        report = acme.experiments.status("vectors")
        assert (report.results, report.compared, report.failed) == (1, 0, 1)
        assert "secret3" not in caplog.text
        with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
            # What is stored fits no configuration any more: the first one answers, whatever the mode.
            admin.execute(
                'UPDATE kosmos.experiments SET mode = \'serve\', content = \'{"rag": {"retrieval": {"depth": -1}}}\''
            )
        found = acme.retrieve("churn account4", 5)
        assert (found.returned, found.experiment, found.notes) == (5, None, ())


def test_shadow__takes_no_connection_from_readers(settings: Settings) -> None:
    with opened(settings, {"database.pool_size": 1}) as engine:
        acme = _filled(engine)
        acme.experiments.start("words", WORDS, share=1.0)
        with engine.parts.database.app.transaction(tenant("acme").id, [EVERYONE]):
            pass
        shadowed = threading.Event()
        held = engine.parts.experiments
        assert held._background.submit(lambda: (shadowed.wait(WAIT_S), None)[1])
        acme.retrieve("churn account3", 5)
        with engine.parts.database.app.transaction(tenant("acme").id, [EVERYONE]):
            shadowed.set()
            _drained(engine)  # while the readers' only connection is taken
        assert acme.experiments.status("words").compared == 1


def test_serve__share_is_answered_by_the_second_and_says_so(settings: Settings, database: DatabaseSettings) -> None:
    with opened(settings, {"rag.audit.enabled": True}) as engine:
        acme = _filled(engine, subject="ada")
        plain = acme.retrieve("churn account3", 5)
        acme.experiments.start("words", WORDS, share=0.5, mode="serve")
        questions = [f"churn account{number}" for number in range(20)]
        first = [acme.retrieve(question, 5) for question in questions]
        again = [acme.context(question, 5).retrieval for question in questions]
        assert [found.experiment for found in first] == [found.experiment for found in again]
        arms = [found.experiment.arm for found in first if found.experiment]
        assert len(arms) == 20
        assert set(arms) == {Arm.FIRST, Arm.SECOND}
        for found, arm in zip(first, arms, strict=True):
            assert ("dense" in found.legs) == (arm is Arm.FIRST)
            note = "answered by the second configuration of the experiment words"
            assert (note in found.notes) == (arm is Arm.SECOND)
        _drained(engine)
        rows = dict(_rows(database, "retrieval_id, arm"))
        assert rows == {found.id: arm for found, arm in zip([*first, *again], arms * 2, strict=True)}
        settings_of = {record.id: record.settings for record in acme.audit.find(limit=100)}
        for found, arm in zip(first, arms, strict=True):
            assert found.id is not None
            assert plain.id is not None
            assert (settings_of[found.id] == settings_of[plain.id]) == (arm is Arm.FIRST)
        assert acme.experiments.status("words").arms[1].served == 2 * arms.count(Arm.SECOND)


def test_feedback__is_told_by_arm_and_tested(settings: Settings, database: DatabaseSettings) -> None:
    with opened(settings, {"rag.audit.enabled": True}) as engine:
        acme = _filled(engine, subject="ada")
        acme.experiments.start("words", WORDS, share=0.5, mode="serve")
        served = {Arm.FIRST: 0, Arm.SECOND: 0}
        number = 0
        while min(served.values()) < 10:
            found = acme.retrieve(f"churn number{number}", 3)
            number += 1
            assert found.experiment is not None
            arm = found.experiment.arm
            if served[arm] < 10:
                served[arm] += 1
                acme.feedback("up" if arm is Arm.SECOND else "down", retrieval_id=found.id)
                acme.feedback("click", retrieval_id=found.id, chunk_id=found.hits[0].chunk_id)
                acme.feedback("down", retrieval_id=found.id, chunk_id=found.hits[0].chunk_id)
        _drained(engine)
        report = acme.experiments.status("words")
        first, second = report.arms
        assert (first.up, first.down, first.clicked) == (0, 20, 10)
        assert (second.up, second.down, second.clicked) == (10, 10, 10)
        thumbs = next(one for one in report.differences if one.of == "thumbs")
        assert (thumbs.first, thumbs.second, thumbs.significant, thumbs.reason) == (0.0, 0.5, True, "Fisher's exact")
        clicks = next(one for one in report.differences if one.of == "clicks")
        assert clicks.p is None
        assert "too little to tell" in clicks.reason
        assert [question.disliked for question in acme.audit.failed()] != []


def test_clicks__are_of_a_passage(engine: Engine) -> None:
    with pytest.raises(RequestError, match="a click is on a passage"):
        engine.tenant("acme", subject="ada").feedback("click", question="churn")


def test_kept_results__of_the_two_are_never_mixed(settings: Settings) -> None:
    with opened(settings, {"rag.retrieval.cached_results": 50}) as engine:
        acme = _filled(engine)
        assert not acme.retrieve("churn account3", 5).cached
        acme.experiments.start("words", WORDS, share=1.0, mode="serve")
        for cached in (False, True):
            found = acme.retrieve("churn account3", 5)
            assert (found.cached, set(found.legs)) == (cached, {"lexical"})
        _drained(engine)
        assert acme.experiments.stop("words").results == 2
        found = acme.retrieve("churn account3", 5)
        assert (found.cached, set(found.legs), found.experiment) == (True, {"dense", "lexical"}, None)
        # A result of before is compared with nothing: it was when it was made.
        acme.experiments.start("shadow", WORDS, share=1.0)
        acme.retrieve("churn account3", 5)
        _drained(engine)
        assert acme.experiments.status("shadow").results == 0


def test_stop__ends_it_at_once(engine: Engine, acme: TenantScope, settings: Settings) -> None:
    acme.experiments.start("words", WORDS, share=1.0, mode="serve")
    assert set(acme.retrieve("churn account3", 5).legs) == {"lexical"}
    with opened(settings, {}) as other:
        other.tenant("acme").experiments.stop("words")
    found = acme.retrieve("churn account3", 5)
    assert (set(found.legs), found.experiment) == ({"dense", "lexical"}, None)
    acme.experiments.start("shadow", WORDS, share=1.0)
    waits = threading.Event()
    assert engine.parts.experiments._background.submit(lambda: (waits.wait(WAIT_S), None)[1])
    acme.retrieve("churn account3", 5)
    assert acme.experiments.stop("shadow").experiment.stopped_at is not None
    waits.set()
    _drained(engine)
    assert acme.experiments.status("shadow").results == 0


def test_other_tenants_and_collections__take_no_part_and_see_nothing(
    engine: Engine, acme: TenantScope, database: DatabaseSettings
) -> None:
    other = _filled_other(engine)
    wiki = engine.tenant("acme", collection="wiki")
    wiki.ingest(_document(1))
    acme.experiments.start("words", WORDS, share=1.0, mode="serve")
    for scope in (other, wiki):
        assert scope.retrieve("churn account1", 5).experiment is None
    acme.retrieve("churn account1", 5)
    _drained(engine)
    assert other.experiments.infos() == []
    for call in (other.experiments.status, other.experiments.stop):
        with pytest.raises(RequestError, match="tenant other has no experiment 'words'"):
            call("words")
    assert acme.experiments.status("words").results == 1
    for table in ("experiments", "experiment_results"):
        count = f"SELECT count(*), count(DISTINCT tenant_id) FROM kosmos.{table}".encode()
        with psycopg.connect(database.worker_url or "") as worker:
            assert worker.execute(count).fetchone() == (0, 0)
            for name, rows in (("acme", 1), ("other", 0)):
                worker.execute("SELECT kosmos.enter(%s, %s)", (tenant(name).id, [EVERYONE]))
                assert worker.execute(count).fetchone() == (rows, rows)
    with psycopg.connect(database.url) as app:
        app.execute("SELECT kosmos.enter(%s, %s)", (tenant("acme").id, [EVERYONE]))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute("SELECT FROM kosmos.experiment_results")


def _filled_other(engine: Engine) -> TenantScope:
    other = engine.tenant("other")
    other.ingest(_document(1))
    return other


def test_departments__hold_for_the_second_configuration(settings: Settings, database: DatabaseSettings) -> None:
    """What only the board may read is nearest to the question; the shadow finds it for the board alone."""
    with opened(settings, {}) as engine:
        writer = engine.tenant("acme")
        writer.ingest(_document(number, readers=("department:hr",)) for number in range(4))
        writer.ingest(_document(9, "secret merger", readers=("department:board",)))
        for mode in ("shadow", "serve"):
            writer.experiments.start(mode, WORDS, share=1.0, mode=mode)
            for department, hits in (("hr", 4), ("board", 1)):
                reader = engine.tenant("acme", principals=[f"department:{department}"])
                found = reader.retrieve("churn secret merger", 10)
                assert {hit.source for hit in found.hits} == ({"d9"} if hits == 1 else {"d0", "d1", "d2", "d3"})
                assert found.returned == hits
            nobody = engine.tenant("acme", principals=["department:sales"]).retrieve("churn secret merger", 10)
            assert nobody.returned == 0
            _drained(engine)
            column = "second_hits" if mode == "serve" else "first_hits, second_hits"
            counts = _rows(database, column)
            assert counts == ([(4,), (1,), (0,)] if mode == "serve" else [(4, 4), (1, 1), (0, 0)])
            writer.experiments.stop(mode)
            with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
                admin.execute("TRUNCATE kosmos.experiment_results")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rag.retrieval.dept": 5}, "dept"),
        ({"rag.chunking.max_size": 500}, r"rag\.chunking\.max_size \(bad\) is not a setting that single questions"),
        ({"rag.access.by": "metadata.department"}, r"rag\.access\.by \(bad\) is not a setting"),
        ({"rag.audit.enabled": False}, r"rag\.audit\.enabled \(bad\) is not a setting"),
        ({"rag.retrieval.cached_results": 5}, r"rag\.retrieval\.cached_results \(bad\) is not a setting"),
        ({"rag.retrieval.max_question_chars": 5}, r"max_question_chars \(bad\) is not a setting"),
        ({"rag.retrieval.depth": 5}, "depth must be at least top_k"),
        ({"rag.signals": {"nothing": {}}}, "nothing"),
        ({"rag.retrieval": 1, "rag.retrieval.depth": 200}, "name each key once"),
        ({}, "change one"),
    ],
)
def test_settings__that_cannot_be_are_refused(acme: TenantScope, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        acme.experiments.start("bad", changes)
    assert acme.experiments.infos() == []


def test_start__refuses_what_cannot_run_and_a_second_one_for_the_same_questions(
    engine: Engine, acme: TenantScope, tmp_path: Path
) -> None:
    for share in (0, -0.1, 1.1, float("nan"), True, "half"):
        with pytest.raises(RequestError, match="the share is"):
            acme.experiments.start("words", WORDS, share=share)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="the mode is 'both'; use shadow or serve"):
        acme.experiments.start("words", WORDS, mode="both")
    with pytest.raises(RequestError, match="experiment name 'No Name' is malformed"):
        acme.experiments.start("No Name", WORDS)
    acme.experiments.start("words", _preset(tmp_path, "rag: {retrieval: {fusion: score}}"))
    with pytest.raises(RequestError, match="there is an experiment words already"):
        acme.experiments.start("words", WORDS)
    with pytest.raises(RequestError, match="the experiment words runs for questions to all collections; stop it first"):
        acme.experiments.start("other", WORDS)
    engine.tenant("acme", collection="wiki").experiments.start("wiki", WORDS)
    acme.experiments.stop("words")
    acme.experiments.start("other", WORDS)
    assert [(info.name, info.stopped_at is None) for info in acme.experiments.infos()] == [
        ("other", True),
        ("wiki", True),
        ("words", False),
    ]


def test_prune__removes_what_is_past_retention_and_nothing_else(
    engine: Engine, acme: TenantScope, database: DatabaseSettings
) -> None:
    for name in ("old", "new"):
        acme.experiments.start(name, WORDS, share=1.0)
        for number in range(2):
            acme.retrieve(f"churn account{number}", 5)
        _drained(engine)
        acme.experiments.stop(name)
    acme.experiments.start("running", WORDS, share=1.0)
    acme.retrieve("churn", 5)
    _drained(engine)
    long_ago = datetime.now(UTC) - timedelta(days=40)
    with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
        admin.execute("UPDATE kosmos.experiments SET started_at = %s WHERE name <> 'new'", (long_ago,))
        admin.execute("UPDATE kosmos.experiments SET stopped_at = %s WHERE name = 'old'", (long_ago,))
        admin.execute(
            "UPDATE kosmos.experiment_results r SET at = %s FROM kosmos.experiments x "
            "WHERE x.id = r.experiment_id AND x.name <> 'new'",
            (long_ago,),
        )
    assert acme.experiments.prune(keep_days=30) == 3
    assert {info.name for info in acme.experiments.infos()} == {"new", "running"}
    assert acme.experiments.status("new").results == 2
    assert acme.experiments.status("running").results == 0


def test_results__hold_no_text_and_no_reader(engine: Engine, acme: TenantScope, database: DatabaseSettings) -> None:
    acme.experiments.start("words", WORDS, share=1.0)
    ada = engine.tenant("acme", subject="ada@acme.example")
    ada.retrieve("churn secretword", 5)
    _drained(engine)
    [(row,)] = _rows(database, "to_jsonb(experiment_results)::text")
    for told in ("secretword", "ada", EVERYONE):
        assert told not in row
    assert uuid.UUID(tenant("acme").id.hex).hex in row.replace("-", "")


def test_migrate__to_the_revision_before_and_back_keeps_all_but_experiments_and_clicks(
    settings: Settings, database: DatabaseSettings
) -> None:
    with opened(settings, {}) as engine:
        ada = _filled(engine, subject="ada")
        chunk = ada.retrieve("churn account1", 1).hits[0].chunk_id
        for name in ("acme", "other"):
            engine.tenant(name, subject="ada").feedback("up", question="churn")
        ada.feedback("click", question="churn", chunk_id=chunk)
        ada.experiments.start("words", WORDS, share=1.0)
    assert set_up(database, "0012").after == "0012"
    with psycopg.connect(database.admin_url or "") as admin:
        ratings = "SELECT rating, count(*), count(DISTINCT tenant_id) FROM kosmos.feedback GROUP BY rating"
        assert admin.execute(ratings).fetchall() == [("up", 2, 2)]
        forced = "SELECT relforcerowsecurity FROM pg_class WHERE oid = 'kosmos.feedback'::regclass"
        assert admin.execute(forced).fetchone() == (True,)
        with pytest.raises(psycopg.errors.CheckViolation):
            admin.execute("UPDATE kosmos.feedback SET rating = 'click'")
    assert set_up(database).before == "0012"
    with opened(settings, {}) as engine:
        ada = engine.tenant("acme", subject="ada")
        assert ada.retrieve("churn account1", 1).hits[0].chunk_id == chunk
        assert ada.experiments.infos() == []
        ada.feedback("click", question="churn", chunk_id=chunk)
        ada.experiments.start("words", WORDS)
