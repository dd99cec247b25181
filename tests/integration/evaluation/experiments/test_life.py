"""The life of an experiment: what may be started, how it ends, how long its results are kept."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.experiments.experiments import Experiments
from tests.integration.evaluation.experiments.asking import WAIT_S, WORDS, drained, preset_file
from tests.integration.variants import opened

pytestmark = pytest.mark.emptied_database


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rag.retrieval.dept": 5}, "dept"),
        ({"rag.chunking.max_size": 500}, r"rag\.chunking\.max_size \(bad\) is not a setting that single questions"),
        (
            {"rag.access.department_from": "metadata.department"},
            r"rag\.access\.department_from \(bad\) is not a setting",
        ),
        ({"rag.audit.enabled": False}, r"rag\.audit\.enabled \(bad\) is not a setting"),
        ({"rag.retrieval.result_cache": 5}, r"rag\.retrieval\.result_cache \(bad\) is not a setting"),
        ({"rag.retrieval.max_question_chars": 5}, r"max_question_chars \(bad\) is not a setting"),
        ({"rag.retrieval.candidates": 5}, "candidates must be at least top_k"),
        ({"rag.signals": {"nothing": {}}}, "nothing"),
        ({"rag.retrieval": 1, "rag.retrieval.candidates": 200}, "name each key once"),
        ({}, "change one"),
    ],
)
def test_settings__that_cannot_be_are_refused(acme: Tenant, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiments(acme).start("bad", changes)
    assert Experiments(acme).infos() == []


def test_start__refuses_what_cannot_run_and_a_second_one_for_the_same_questions(
    engine: Engine, acme: Tenant, tmp_path: Path
) -> None:
    for share in (0, -0.1, 1.1, float("nan"), True, "half"):
        with pytest.raises(RequestError, match="the share is"):
            Experiments(acme).start("words", WORDS, share=share)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="the mode is 'both'; use shadow or serve"):
        Experiments(acme).start("words", WORDS, mode="both")
    with pytest.raises(RequestError, match="experiment name 'No Name' is malformed"):
        Experiments(acme).start("No Name", WORDS)
    Experiments(acme).start("words", preset_file(tmp_path, "rag: {retrieval: {fusion: score}}"))
    with pytest.raises(RequestError, match="there is an experiment words already"):
        Experiments(acme).start("words", WORDS)
    with pytest.raises(RequestError, match="the experiment words runs for questions to all collections; stop it first"):
        Experiments(acme).start("other", WORDS)
    Experiments(engine.tenant("acme", collection="wiki")).start("wiki", WORDS)
    Experiments(acme).stop("words")
    Experiments(acme).start("other", WORDS)
    assert [(info.name, info.stopped_at is None) for info in Experiments(acme).infos()] == [
        ("other", True),
        ("wiki", True),
        ("words", False),
    ]


def test_stop__ends_it_at_once(engine: Engine, acme: Tenant, settings: Settings) -> None:
    Experiments(acme).start("words", WORDS, share=1.0, mode="serve")
    assert set(acme.search("churn account3", 5).retrievers) == {"lexical"}
    with opened(settings, {}) as other:
        Experiments(other.tenant("acme")).stop("words")
    result = acme.search("churn account3", 5)
    assert (set(result.retrievers), result.experiment) == ({"dense", "lexical"}, None)
    Experiments(acme).start("shadow", WORDS, share=1.0)
    waits = threading.Event()
    assert engine.background.submit(lambda: (waits.wait(WAIT_S), None)[1])
    acme.search("churn account3", 5)
    assert Experiments(acme).stop("shadow").experiment.stopped_at is not None
    waits.set()
    drained(engine)
    assert Experiments(acme).status("shadow").results == 0


def test_prune__removes_what_is_past_retention_and_nothing_else(
    engine: Engine, acme: Tenant, database: DatabaseSettings
) -> None:
    for name in ("old", "new"):
        Experiments(acme).start(name, WORDS, share=1.0)
        for number in range(2):
            acme.search(f"churn account{number}", 5)
        drained(engine)
        Experiments(acme).stop(name)
    Experiments(acme).start("running", WORDS, share=1.0)
    acme.search("churn", 5)
    drained(engine)
    long_ago = datetime.now(UTC) - timedelta(days=40)
    with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
        admin.execute("UPDATE kosmos.experiments SET started_at = %s WHERE name <> 'new'", (long_ago,))
        admin.execute("UPDATE kosmos.experiments SET stopped_at = %s WHERE name = 'old'", (long_ago,))
        admin.execute(
            "UPDATE kosmos.experiment_results r SET at = %s FROM kosmos.experiments x "
            "WHERE x.id = r.experiment_id AND x.name <> 'new'",
            (long_ago,),
        )
    assert Experiments(acme).prune(keep_days=30) == 3
    assert {info.name for info in Experiments(acme).infos()} == {"new", "running"}
    assert Experiments(acme).status("new").results == 2
    assert Experiments(acme).status("running").results == 0
