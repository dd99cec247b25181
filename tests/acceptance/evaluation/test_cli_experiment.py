"""kosmos-rag experiment: started, compared and stopped from the command line."""

import json
from functools import partial
from pathlib import Path

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types.serialize import to_dict
from kosmos_rag.evaluation.experiments.experiments import Experiments
from tests.commands import Run, run_command, set_variables

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def kosmos(tmp_path: Path, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, database)
    return partial(run_command, "experiment")


def test_experiment__from_its_start_to_what_came_of_it(
    kosmos: Run, engine: Engine, settings: Settings, tmp_path: Path
) -> None:
    scope = engine.tenant("default")
    scope.ingest(SourceDocument(source=f"d{number}", data=f"churn of account{number}".encode()) for number in range(9))
    assert kosmos("status").stdout == "no experiments of tenant default\n"
    started = kosmos("start", "by-scores", "--change", "rag.retrieval.fusion=score", "--share", "1")
    assert started.stdout.startswith("the experiment by-scores (shadow, 100% of the questions to all collections) runs")
    for number in range(3):
        scope.search(f"churn account{number}", settings.rag.retrieval.top_k)
    assert engine.background.drain(60)
    result = json.loads(kosmos("status", "by-scores", "--json").stdout)
    assert (result["results"], result["compared"], result["experiment"]["mode"]) == (3, 3, "shadow")
    assert result["differences"][0]["significant"] is False
    stdout = kosmos("stop", "by-scores").stdout
    assert "3 questions: 3 compared, 0 failed, 0 degraded" in stdout
    assert "no result yet: 3 questions compared, and 30 are needed" in stdout
    (tmp_path / "deeper.yaml").write_text("rag: {retrieval: {candidates: 300}}")
    assert kosmos("start", "deeper", "--settings", "deeper.yaml", "--mode", "serve", "-C", "wiki").exit_code == 0
    listed = json.loads(kosmos("status", "--json").stdout)["experiments"]
    assert [(item["name"], item["collection"], item["stopped_at"] is None) for item in listed] == [
        ("deeper", "wiki", True),
        ("by-scores", None, False),
    ]
    assert "runs" in kosmos("status").stdout


def test_search__tells_which_configuration_answered(engine: Engine) -> None:
    scope = engine.tenant("default")
    scope.ingest(SourceDocument(source="d", data=b"churn of accounts"))
    Experiments(scope).start("words", {"rag.retrieval.semantic_weight": 0.0}, share=1.0, mode="serve")
    assert to_dict(scope.search("churn"))["experiment"] == {"experiment": "words", "arm": "treatment"}


def test_status__tells_what_the_second_configuration_fails_with(kosmos: Run, engine: Engine) -> None:
    scope = engine.tenant("default")
    scope.ingest(SourceDocument(source="d", data=b"churn of accounts"))
    Experiments(scope).start("reranked", {"rag.reranking.enabled": True}, share=1.0, mode="serve")
    assert to_dict(scope.search("churn"))["experiment"] == {"experiment": "reranked", "arm": "control"}
    assert engine.background.drain(60)
    assert "failed with ConfigError (1)" in kosmos("status", "reranked").stdout
    assert json.loads(kosmos("status", "reranked", "--json").stdout)["faults"] == {"ConfigError": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("start", "a"), "either --change"),
        (("start", "a", "--change", "rag.chunking.overlap=3"), "rag.chunking.overlap (a) is not a setting"),
        (("status", "nothing"), "tenant default has no experiment 'nothing'"),
        (("stop", "nothing"), "tenant default has no experiment 'nothing'"),
    ],
)
def test_experiment__that_cannot_be_is_one_line(kosmos: Run, arguments: tuple[str, ...], message: str) -> None:
    refused = kosmos(*arguments)
    assert refused.exit_code == 1
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
