"""kosmos-rag audit: what auditors and content owners see of the log, and what they are told when it was changed."""

import json
from pathlib import Path

import psycopg
import pytest

from kosmos_rag.core.config import DatabaseSettings
from tests.commands import MINILM, Run, run_command, set_variables

pytestmark = [pytest.mark.model, pytest.mark.emptied_database]


@pytest.fixture
def kosmos(tmp_path: Path, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, in a folder with a document, with a log."""
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, database, CONFIG=MINILM, RAG__AUDIT__ENABLED="true")
    (tmp_path / "churn.md").write_text("# Churn\n\nChurn is the share of accounts that left within a month.\n")
    return run_command


def test_audit__from_the_first_question_to_a_record_that_was_changed(kosmos: Run, database: DatabaseSettings) -> None:
    assert kosmos("audit", "list").stdout == "nothing in the log\n"
    assert kosmos("ingest", "churn.md").exit_code == 0
    assert kosmos("search", "What is churn?").exit_code == 0
    assert kosmos("ask", "Who plays the violin?").exit_code == 0

    listed = json.loads(kosmos("audit", "list", "--json").stdout)["retrievals"]
    assert [(item["kind"], item["outcome"]) for item in listed] == [("answer", "none"), ("search", "hits")]
    assert "What is churn?" in kosmos("audit", "list", "--outcome", "hits").stdout
    stdout = kosmos("audit", "show", listed[1]["id"]).stdout
    assert "What is churn?" in stdout
    assert "churn.md v1" in stdout
    for name in ("churn.md", str(Path("churn.md").absolute()), listed[1]["passages"][0]["document_id"]):
        sightings = json.loads(kosmos("audit", "who-saw", name, "--json").stdout)["sightings"]
        assert {item["retrieval_id"] for item in sightings} == {listed[1]["id"]}
    assert "What is churn?" in kosmos("audit", "who-saw", "churn.md").stdout
    assert "nobody" in kosmos("audit", "who-saw", "other.md").stdout
    assert "Who plays the violin?" in kosmos("audit", "failed").stdout
    assert kosmos("audit", "failed", "--until", "2026-01-01").stdout == "no question failed\n"

    assert kosmos("audit", "seal").stdout == "1 new seals in the log of tenant default\n"
    assert kosmos("audit", "verify").stdout.startswith("1 seals over 2 records are valid, 0 records are not sealed yet")
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.audit_events SET subject = 'eve'")
    broken = kosmos("audit", "verify")
    assert broken.exit_code == 1
    assert "a record of the 2 under seal 1" in broken.stderr
    as_json = kosmos("audit", "verify", "--json")
    assert as_json.exit_code == 1
    assert (json.loads(as_json.stdout)["intact"], json.loads(as_json.stdout)["broken"]) == (False, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "--outcome", "good"), "--outcome 'good' is not an outcome; use one of hits, none, refused"),
        (("list", "--since", "yesterday"), "--since 'yesterday' is not a day or time"),
        (("list", "--before", "x"), "'x' is not an id of a retrieval"),
        (("show", "00000000-0000-0000-0000-000000000000"), "the log of tenant default has no retrieval"),
    ],
)
def test_audit__says_what_is_wrong_with_an_argument(kosmos: Run, arguments: tuple[str, ...], message: str) -> None:
    refused = kosmos("audit", *arguments)
    assert refused.exit_code == 1
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
