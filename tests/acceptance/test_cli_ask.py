"""kosmos-rag ask with a language model: a real database and a real server, vectors made by the real model."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kosmos_rag.apps.cli.app import app
from kosmos_rag.core.config import DatabaseSettings
from tests.unit.models.llm.chat_server import ChatServer, breaks_off, running, writes

pytestmark = pytest.mark.model

CHURN = "Churn is the number of accounts that were lost in the month."


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory, module_database: DatabaseSettings) -> Iterator[ChatServer]:
    """A server of a model, and a database with a document, that the commands of this module are set to."""
    folder = tmp_path_factory.mktemp("ask")
    (folder / "churn.md").write_text(f"# Metrics\n\n## Churn\n\n{CHURN}\n")
    with pytest.MonkeyPatch.context() as patch, running() as started:
        patch.chdir(folder)
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("KOSMOS_CONFIG", str(Path(__file__).parents[2] / "examples" / "minilm.yaml"))
        for name in ("url", "worker_url", "admin_url"):
            patch.setenv(f"KOSMOS_DATABASE__{name.upper()}", getattr(module_database, name))
        patch.setenv("KOSMOS_RAG__ANSWER__MODE", "generative")
        patch.setenv("KOSMOS_LANGUAGE_MODEL__URL", started.url())
        assert _run("ingest", "churn.md", "--root", ".").exit_code == 0
        yield started


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_ask__prints_what_the_model_writes_and_what_is_wrong_with_it(chat: ChatServer) -> None:
    chat.replies = [writes("Churn is the number of accounts ", "that were lost in the month. [1] ", "It is 5 %. [1]")]
    result = _run("ask", "What is churn?")
    assert result.exit_code == 0
    assert f"Question: What is churn?\n\n{CHURN} [1] It is 5 %. [1]\n\n" in result.stdout
    assert "unsupported: It is 5 %. (the number '5' is not in the cited passages)\n" in result.stdout
    assert "\nSources\n[1] churn.md | Churn | L5\n\n" in result.stdout
    assert "not verified; --all shows the passages" in result.stdout
    assert "score" not in result.stdout


def test_ask__shows_all_passages_where_it_is_asked_to(chat: ChatServer) -> None:
    chat.replies = [writes(f"{CHURN} [1]")]
    result = _run("ask", "What is churn?", "--all")
    passages = result.stdout.partition("\nPassages\n")[2]
    assert passages.startswith("[1] churn.md | Churn | ")
    assert "(score " in passages
    assert "--all" not in result.stdout


def test_ask__explains_the_scores_of_units(chat: ChatServer) -> None:
    chat.replies = [writes(f"{CHURN} [1]")]
    result = _run("ask", "What is churn?", "--explain")
    explained = result.stdout.rpartition("question   What is churn?\n")[2]
    assert explained.startswith("confidence ")
    assert "score  meaning  words" in explained
    assert f"[1]  {CHURN}" in explained


def test_ask__notes_what_is_out_of_date(chat: ChatServer) -> None:
    chat.replies = [writes(f"{CHURN} [1]")]
    assert _run("set-metadata", "churn.md", "--metadata", "valid_until=2023-12-31").exit_code == 0
    result = _run("ask", "What is churn?")
    assert "\nnote: [1] is out of date: valid until 2023-12-31\n" in result.stdout
    assert "\nSources\n[1] churn.md | Churn | L5 | valid until 2023-12-31\n" in result.stdout
    assert _run("set-metadata", "churn.md", "--remove", "valid_until").exit_code == 0


def test_ask__as_json_says_whether_it_is_verified(chat: ChatServer) -> None:
    chat.replies = [writes(f"{CHURN} [1]")]
    answer = json.loads(_run("ask", "What is churn?", "--json").stdout)
    assert (answer["mode"], answer["verified"], answer["report"]["supported"]) == ("generative", True, True)
    assert answer["sentences"][0]["text"] == CHURN


def test_ask__of_a_model_that_breaks_off_is_one_line_on_standard_error(chat: ChatServer) -> None:
    chat.replies = [breaks_off]
    result = _run("ask", "What is churn?")
    assert result.exit_code == 1
    assert "Churn is " in result.stdout
    [line] = result.stderr.strip().splitlines()
    assert line.startswith("error: language model server http://127.0.0.1:")
    assert "ended the connection during its answer" in line
