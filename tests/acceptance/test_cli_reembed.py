"""`kosmos-rag reembed` as its users have it: from the real MiniLM to a model of 768 dimensions, and back."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from kosmos_rag.core.config import DatabaseSettings
from tests.commands import Run, run_command
from tests.mpnet import write_mpnet

COLUMNS = "model dimensions state live embedded chunks truncated index recall@10 id"

pytestmark = [pytest.mark.model, pytest.mark.slow]


@pytest.fixture(scope="module")
def mpnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder: the shape of all-mpnet-base-v2 with one layer and random weights, and a real tokenizer."""
    return write_mpnet(tmp_path_factory.mktemp("mpnet"), layers=1)


@pytest.fixture
def kosmos(database: DatabaseSettings, mpnet: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in this process, over this test's database, with both models."""
    variables = {
        "DATABASE__URL": database.url,
        "DATABASE__WORKER_URL": database.worker_url,
        "RAG__EMBEDDING__MODEL": "packaged:all-MiniLM-L6-v2",
        "RAG__EMBEDDING__DIMENSIONS": "384",
        "RAG__NEXT_EMBEDDING__MODEL": str(mpnet),
        "RAG__NEXT_EMBEDDING__DIMENSIONS": "768",
        "RAG__RERANKING__ENABLED": "false",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"KOSMOS_{name}", str(value))
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"Rule {number} says who decides about refunds, and until when.")
    return run_command


def _spaces(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["spaces"]


def test_reembed__moves_a_tenant_from_384_to_768_dimensions_and_back(kosmos: Run, mpnet: Path) -> None:
    assert kosmos("reembed", "status").stdout == "no documents, and so no embedding spaces\n"
    refused = kosmos("reembed", "start")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: tenant 'default' has no documents; ingest some")
    assert kosmos("ingest", ".").exit_code == 0

    started = kosmos("reembed", "start", "--chunks-per-second", "1000")
    assert started.exit_code == 0, started.output
    header, live, building = started.stdout.splitlines()
    assert header.split() == COLUMNS.split()
    assert live.split()[:6] == ["packaged:all-MiniLM-L6-v2", "384", "ready", "live", "5", "5"]
    assert building.split()[:5] == [str(mpnet), "768", "building", "5", "5"]

    quality = json.loads(kosmos("reembed", "cutover", "--json").stdout)["quality"]
    assert (quality["model"], quality["live_model"]) == (str(mpnet), "packaged:all-MiniLM-L6-v2")
    payload = json.loads(kosmos("search", "Who decides?", "--json").stdout)
    assert len(payload["hits"]) == 5

    back = _spaces(kosmos("reembed", "rollback", "--json"))
    assert [(info["dimensions"], info["live"]) for info in back] == [(384, True), (768, False)]
    refused = kosmos("reembed", "drop", "packaged:all-MiniLM-L6-v2")
    assert (refused.exit_code, refused.stderr.partition(":")[0]) == (1, "error")
    assert [info["dimensions"] for info in _spaces(kosmos("reembed", "drop", str(mpnet), "--json"))] == [384]
