"""`kosmos-rag index` as its users have it: real model, real server."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import Result

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import tenant
from tests.commands import MINILM, Run, run_command, set_variables

FILES = 30
COLUMNS = ("index", "of", "state", "rows", "now", "MB", "searched", "recall@10", "p50 ms", "due")
KEYS = {
    "kind", "state", "collection", "rows", "rows_now", "bytes", "settings", "health", "checked_at", "due"
}  # fmt: skip

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of this module."""
    folder = tmp_path_factory.mktemp("cli_index")
    documents = folder / "documents"
    documents.mkdir()
    subjects = ("invoices", "refunds", "trials", "outages", "quotas", "credits")
    for number in range(FILES):
        subject = subjects[number % len(subjects)]
        (documents / f"{number}.txt").write_text(f"Rule {number} about {subject}: who decides, and until when.")
    return folder


@pytest.fixture(scope="module")
def kosmos(folder: Path, module_database: DatabaseSettings) -> Iterator[Run]:
    """Run a command in this process, over a database of this module's own in which thirty chunks are many."""
    indexes = {"VECTOR": "ivfflat", "VECTOR_MIN_CHUNKS": str(FILES), "UNSEGMENTED_CHUNKS": str(FILES)}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        variables = {f"INDEXES__{name}": value for name, value in indexes.items()}
        set_variables(patch, module_database, CONFIG=MINILM, **variables)
        assert run_command("ingest", "documents").exit_code == 0
        yield run_command


@pytest.fixture(scope="module")
def first_status(kosmos: Run) -> Result:
    """What `status` shows before anything is built."""
    return kosmos("index", "status")


@pytest.fixture(scope="module")
def built(first_status: Result, kosmos: Run) -> Result:
    """What the first `build` says and shows."""
    return kosmos("index", "build")


def _indexes(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exit_code == 0, result.output
    body = json.loads(result.stdout)
    assert body.keys() == {"tenant", "indexes"}
    assert all(info.keys() == KEYS for info in body["indexes"])
    return {info["kind"]: info for info in body["indexes"]}


def test_status__says_what_is_due(first_status: Result) -> None:
    assert first_status.exit_code == 0
    header, *rows = first_status.stdout.splitlines()
    assert header.split() == " ".join(COLUMNS).split()
    [vectors] = [row for row in rows if row.startswith("none")]
    assert vectors.split()[:5] == ["none", "vectors", "exact", str(FILES), str(FILES)]
    assert vectors.rstrip().endswith(f"indexes.vector_min_chunks is {FILES}")


def test_build__says_what_it_does_and_shows_what_there_is(built: Result, kosmos: Run) -> None:
    assert built.exit_code == 0
    assert f"building ivfflat over {FILES} vectors …" in built.stderr.splitlines()
    assert "measuring ivfflat …" in built.stderr.splitlines()
    rows = {row.split()[0]: row for row in built.stdout.splitlines()}
    assert rows["ivfflat"].split()[1:4] == ["vectors", "ready", str(FILES)]
    assert "probes 1" in rows["ivfflat"]
    assert rows["segment"].split()[1:4] == ["default", "ready", str(FILES)]
    again = kosmos("index", "build")
    assert (again.exit_code, again.stderr) == (0, "")


def test_status__as_json_is_one_object(built: Result, kosmos: Run) -> None:
    indexes = _indexes(kosmos("index", "status", "--json"))
    assert indexes.keys() == {"segment", "unsegmented", "ivfflat"}
    assert indexes["ivfflat"]["settings"] == {"precision": "half", "lists": 1, "probes": 1}
    assert indexes["ivfflat"]["health"]["recall_at_10"] == 1.0
    assert indexes["ivfflat"]["bytes"] > 0
    assert indexes["ivfflat"]["due"] is None
    assert indexes["unsegmented"]["rows"] == 0


def test_setting__of_one_call_is_obeyed(built: Result, kosmos: Run) -> None:
    indexes = _indexes(kosmos("index", "status", "--set", "indexes.vector=hnsw", "--json"))
    assert indexes["ivfflat"]["due"] == "indexes.vector is hnsw"


@pytest.mark.slow
def test_tune__measures_again_and_as_json_says_nothing_beside(built: Result, kosmos: Run) -> None:
    earlier = _indexes(kosmos("index", "status", "--json"))["ivfflat"]
    result = kosmos("index", "tune", "--set", "indexes.recall_target=0.5", "--json")
    assert result.stderr == ""
    later = _indexes(result)["ivfflat"]
    assert (earlier["health"]["recall_target"], later["health"]["recall_target"]) == (0.95, 0.5)
    assert later["checked_at"] > earlier["checked_at"]


def test_warm__says_how_long_the_first_and_the_last_searches_took(built: Result, kosmos: Run) -> None:
    result = kosmos("index", "warm")
    assert re.fullmatch(r"\d+ searches: the first [\d.]+ ms, the last [\d.]+ ms\n", result.stdout)
    assert json.loads(kosmos("index", "warm", "--json").stdout).keys() == {"tenant", "searches", "first_ms", "last_ms"}
    assert kosmos("index", "warm", "--tenant", "nobody").stdout == "no documents, and so no indexes\n"


def test_log__has_what_was_done_and_why(built: Result, kosmos: Run) -> None:
    result = kosmos("index", "log", "--json")
    events = json.loads(result.stdout)["events"]
    assert (events[-1]["action"], events[-1]["reason"]) == ("rebuilt", f"indexes.vector_min_chunks is {FILES}")
    assert events[-1]["after"]["recall_at_10"] == 1.0
    assert f"indexes.vector_min_chunks is {FILES}" in kosmos("index", "log").stdout


def test_monitor__measures_and_shows_what_it_knows(built: Result, kosmos: Run) -> None:
    result = kosmos("monitor", "run", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    runs = {run["kind"]: run for run in json.loads(result.stdout)["runs"]}
    assert (runs["recall"]["state"], runs["recall"]["reason"]) == ("unknown", "0 samples, 30 are needed")
    assert runs["isolation"]["state"] == "ok", runs["isolation"]["reason"]
    output = kosmos("monitor", "status")
    assert "0 samples, 30 are needed" in output.stdout
    assert output.stdout.splitlines()[-1] == "0 samples for the next run"


@pytest.mark.slow
def test_rebuild__makes_all_again(built: Result, kosmos: Run) -> None:
    result = kosmos("index", "rebuild")
    assert result.exit_code == 0
    events = result.stderr.splitlines()
    assert f"merging 1 segments of default, {FILES} chunks …" in events
    assert f"building ivfflat over {FILES} vectors …" in events


@pytest.mark.parametrize("command", ["status", "build", "tune", "rebuild"])
def test_tenant__without_documents_has_no_indexes(command: str, kosmos: Run) -> None:
    result = kosmos("index", command, "--tenant", "nobody")
    assert (result.exit_code, result.stdout) == (0, "no documents, and so no indexes\n")
    assert _indexes(kosmos("index", command, "--tenant", "nobody", "--json")) == {}


@pytest.mark.parametrize("command", ["status", "build", "tune", "rebuild"])
def test_tenant__with_a_malformed_name_is_refused(command: str, kosmos: Run) -> None:
    result = kosmos("index", command, "--tenant", "No Body")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: tenant name 'No Body' is malformed")


@pytest.mark.parametrize("command", ["build", "tune", "rebuild"])
def test_maintenance__of_a_tenant_that_is_being_worked_on_says_so(
    command: str, kosmos: Run, module_database: DatabaseSettings
) -> None:
    with psycopg.connect(module_database.admin_url or "", autocommit=True) as other:
        other.execute(statement("try_maintenance_lock"), {"tenant_id": tenant("default").id})
        result = kosmos("index", command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            "error: the indexes of tenant default are being worked on by another process; try again later\n"
        )
        body = json.loads(kosmos("index", command, "--json").stdout)
        assert body["error"]["type"] == "IndexLocked"
        assert kosmos("index", "status").exit_code == 0


def test_build__on_a_server_by_url_without_an_administrator_names_the_setting(
    built: Result, kosmos: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KOSMOS_DATABASE__ADMIN_URL")
    result = kosmos("index", "build", "--set", "indexes.vector=hnsw")
    assert (result.exit_code, result.stdout) == (1, "")
    [error] = result.stderr.splitlines()
    assert error.startswith("error: database.admin_url is not set, and building a vector index needs an administrator")
    assert _indexes(kosmos("index", "status", "--json"))["ivfflat"]["due"] is None
    assert kosmos("index", "build").exit_code == 0, "where nothing is due nobody is needed"


@pytest.mark.parametrize("command", ["build", "status"])
def test_maintenance__without_the_writing_role_names_the_setting(
    command: str, kosmos: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KOSMOS_DATABASE__WORKER_URL")
    result = kosmos("index", command)
    assert result.exit_code == 1
    assert "database.worker_url is not set" in result.stderr
