"""kosmos-rag ask with a language model: a real database and a real server, vectors made by the real model."""

import json
from collections.abc import Iterator

import pytest

from kosmos_rag.core.config import DatabaseSettings
from tests.commands import MINILM, run_command, set_variables
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
        set_variables(
            patch, module_database, CONFIG=MINILM, RAG__ANSWER__MODE="generative", LANGUAGE_MODEL__URL=started.url()
        )
        assert run_command("ingest", "churn.md", "--root", ".").exit_code == 0
        yield started


def test_ask__prints_what_the_model_writes_and_what_is_wrong_with_it(chat: ChatServer) -> None:
    chat.replies = [writes("Churn is the number of accounts ", "that were lost in the month. [1] ", "It is 5 %. [1]")]
    result = run_command("ask", "What is churn?")
    assert result.exit_code == 0
    assert f"Question: What is churn?\n\n{CHURN} [1] It is 5 %. [1]\n\n" in result.stdout
    assert "unsupported: It is 5 %. (the number '5' is not in the cited passages)\n" in result.stdout
    assert "\nSources\n[1] churn.md | Churn | L5\n\n" in result.stdout
    assert "not verified; --all shows the passages" in result.stdout
    assert "score" not in result.stdout


def test_ask__shows_all_passages_where_it_is_asked_to(chat: ChatServer) -> None:
    chat.replies = [writes(f"{CHURN} [1]")]
    result = run_command("ask", "What is churn?", "--all")
    passages = result.stdout.partition("\nPassages\n")[2]
    assert passages.startswith("[1] churn.md | Churn | ")
    assert "(score " in passages
    assert "--all" not in result.stdout


def test_ask__explains_the_scores_of_units(chat: ChatServer) -> None:
    chat.replies = [writes(f"{CHURN} [1]")]
    result = run_command("ask", "What is churn?", "--explain")
    explained = result.stdout.rpartition("question   What is churn?\n")[2]
    assert explained.startswith("confidence ")
    assert "score  meaning  words" in explained
    assert f"[1]  {CHURN}" in explained


def test_ask__notes_what_is_out_of_date(chat: ChatServer) -> None:
    chat.replies = [writes(f"{CHURN} [1]")]
    assert run_command("set-metadata", "churn.md", "--metadata", "valid_until=2023-12-31").exit_code == 0
    result = run_command("ask", "What is churn?")
    assert "\nnote: [1] is out of date: valid until 2023-12-31\n" in result.stdout
    assert "\nSources\n[1] churn.md | Churn | L5 | valid until 2023-12-31\n" in result.stdout
    assert run_command("set-metadata", "churn.md", "--remove", "valid_until").exit_code == 0


def test_ask__as_json_says_whether_it_is_verified(chat: ChatServer) -> None:
    chat.replies = [writes(f"{CHURN} [1]")]
    answer = json.loads(run_command("ask", "What is churn?", "--json").stdout)
    assert (answer["mode"], answer["verified"], answer["report"]["supported"]) == ("generative", True, True)
    assert answer["sentences"][0]["text"] == CHURN


def test_ask__of_a_model_that_breaks_off_is_one_line_on_standard_error(chat: ChatServer) -> None:
    chat.replies = [breaks_off]
    result = run_command("ask", "What is churn?")
    assert result.exit_code == 1
    assert "Churn is " in result.stdout
    [line] = result.stderr.strip().splitlines()
    assert line.startswith("error: language model server http://127.0.0.1:")
    assert "ended the connection during its answer" in line
