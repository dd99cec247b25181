"""kosmos-rag erase and kosmos-rag tenant delete."""

import json
from pathlib import Path

import pytest

from tests.commands import MINILM, Run, run_command

pytestmark = pytest.mark.model


@pytest.fixture
def kosmos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, in a folder with documents and a database of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOSMOS_CONFIG", MINILM)
    monkeypatch.setenv("KOSMOS_DATABASE__DATA_DIR", str(tmp_path / "database"))
    for name in ("ada", "grace"):
        (tmp_path / f"{name}.txt").write_text(f"The salary of {name} is paid on Monday.\n")
    return run_command


def test_erase__shows_then_erases_and_records(kosmos: Run, tmp_path: Path) -> None:
    assert kosmos("ingest", "ada.txt", "grace.txt").exit_code == 0

    preview = kosmos("erase", "--source", "*ada.txt")
    assert "would be erased by source *ada.txt; --yes erases them" in preview.stdout
    assert len(json.loads(kosmos("documents", "--json").stdout)["documents"]) == 2

    for arguments, message in (
        ((), "0 selectors are given; erase by one of subject, source and metadata"),
        (("--source", "a", "--subject", "b"), "2 selectors are given"),
        (("--metadata", "employee"), "--metadata 'employee' is not KEY=VALUE; write --metadata employee=4711"),
    ):
        refused = kosmos("erase", *arguments, "--yes")
        assert (refused.exit_code, message in refused.stderr) == (1, True), refused.stderr

    payload = json.loads(kosmos("erase", "--source", "*ada.txt", "--yes", "--json").stdout)
    assert (payload["kind"], payload["number"], payload["erased"]["documents"], payload["purged"]) == (
        "source",
        1,
        1,
        False,
    )
    assert len(json.loads(kosmos("documents", "--json").stdout)["documents"]) == 1
    assert f"the records of 1 erasure are valid\nlast erasure {payload['sha256']}" in kosmos("audit", "verify").stdout

    deleted = kosmos("tenant", "delete", "default", "--yes", "--purge")
    assert "the files of the database were rewritten" in deleted.stdout
    assert json.loads(kosmos("documents", "--json").stdout)["documents"] == []
    assert json.loads(kosmos("audit", "verify", "--json").stdout)["erasures"] == 2
