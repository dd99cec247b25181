"""Blocks of code in the documentation: Python runs, settings load, JSON and SQL are accepted.

Commands are checked by tests/unit/test_documented_commands.py. All Python runs on one database, whose vectors are made
of words.
"""

import configparser
import json
import re
import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2
import psycopg
import pytest
import yaml

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import presets
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.evaluation.offline.questions import read_questions
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.ingestion.sources.spec import validate_feed
from kosmos_rag.retrieval.expansion.synonyms import Synonyms
from kosmos_rag.text2sql.catalog.sources import from_json
from kosmos_rag.text2sql.recipes import read_recipes
from tests.integration.variants import changed

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
BLOCK = re.compile(r"^( *)```(\S*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

# Pages whose Python has a test of its own: it needs the real model, a service, or another library.
OF_OTHER_TESTS = {
    "README.md": "acceptance/test_examples.py",
    "docs/library.md": "integration/engine/test_async_engine.py",
    "docs/client.md": "integration/apps/http/test_client.py",
    "docs/adapters.md": "integration/apps/integrations/test_documentation.py",
    "docs/keyword.md": "unit/retrieval/keyword/test_documentation.py",
    "docs/openai.md": "integration/openai/test_documentation.py",
}
# Blocks that show output, or that other programs read. clients/typescript has tests of its own.
SHOWN = {"text", "mermaid", "cron", "ts"}
FOREIGN_YAML = {"vector_store_registry", "name"}
"""First keys of LiteLLM's settings and of a workflow of GitHub Actions."""


def _blocks(*languages: str) -> Iterator[tuple[Path, str, str]]:
    """Yield page, language and code of the blocks, without the indentation of a list."""
    for page in PAGES:
        for indent, language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
            if not languages or language in languages:
                yield page, language, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_blocks__have_a_language_that_a_test_checks() -> None:
    checked = {"sh", "python", "yaml", "json", "sql", "ini"}
    unchecked = [f"{_name(page)}: {language!r}" for page, language, _ in _blocks() if language not in checked | SHOWN]
    assert unchecked == []
    missing = [test for test in OF_OTHER_TESTS.values() if not (ROOT / "tests" / test).is_file()]
    assert missing == []


class NotInstalled(UserWarning):
    """A program that a block needs is not installed."""


SITES = {"confluence", "jira"}
"""Kinds of sources that are feeds too, where a block names no readers."""
PROGRAMS = {"git", "rclone"}
"""Kinds of sources that need a program of their name."""


def _is_feed(content: dict[str, Any]) -> bool:
    """Return whether a block is the spec of a permission feed."""
    if content.get("kind") in SITES:
        return not {"acl", "permissions"} & content.keys()
    is_of_rclone = content.keys() == {"kind", "name", "remote"}
    return is_of_rclone or bool({"containers_query", "document_prefix"} & content.keys())


def _load(text: str, settings: Settings, folder: Path) -> None:
    """Read a block of YAML as what it is: settings, a preset, a source, a feed, recipes, synonyms or questions."""
    content = yaml.safe_load(text)
    path = folder / "block.yaml"
    path.write_text(text)
    if isinstance(content, list) and isinstance(content[0], dict) and "question" in content[0]:
        read_questions(path)
    elif isinstance(content, list):
        Synonyms.load(path)
    elif _is_feed(content):
        validate_feed(content)
    elif content.get("kind") in PROGRAMS and shutil.which(content["kind"]) is None:
        warnings.warn(f"{content['kind']} is not installed: its source is not opened", NotInstalled, stacklevel=1)
    elif "kind" in content:
        create_source(content, settings.ingestion)
    elif "recipes" in content:
        read_recipes(path, from_json(ROOT / "examples/schema/programs.json"))
    elif "extends" in content:
        presets.load(path, settings, validate=lambda _: None)
    else:
        Settings.load(path)


@pytest.mark.filterwarnings("default::tests.integration.test_documented_code.NotInstalled")
def test_yaml__is_what_it_says(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WIKI_URL", "TICKETS_URL"):
        monkeypatch.setenv(name, "sqlite://")
    monkeypatch.setenv("KOSMOS_SERVICE__OPENID__CLIENT_SECRET", "secret")
    monkeypatch.setenv("KOSMOS_SERVICE__OPENID__SESSION_SECRET", "0123456789abcdef" * 4)
    monkeypatch.setenv("DOCS_AUTHORIZATION", "Bearer token")
    for name in ("SUPPORT_MAIL_PASSWORD", "MAIL_CLIENT_SECRET", "MAIL_REFRESH_TOKEN", "WIKI_TOKEN", "JIRA_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    (tmp_path / "synonyms.yaml").write_text("- [churn, attrition]\n")
    wrong = []
    for page, _, text in _blocks("yaml"):
        if text.split(":")[0] in FOREIGN_YAML:
            continue
        try:
            _load(text, settings, tmp_path)
        except Exception as error:  # noqa: BLE001
            wrong.append(f"{_name(page)}: {text.splitlines()[0]}: {error}")
    assert not wrong, "\n".join(wrong)


def test_json__is_valid() -> None:
    for page, _, text in _blocks("json"):
        lines = text.splitlines()
        records = lines if all(line[0] == "{" and line[-1] == "}" for line in lines) else [text]
        assert all(json.loads(record) for record in records), _name(page)


def test_ini__is_read() -> None:
    for _, _, text in _blocks("ini"):
        configparser.ConfigParser().read_string(f"[pgbouncer]\n{text}")


@pytest.mark.parametrize("file", sorted((ROOT / "deploy" / "terraform").glob("*.tf")), ids=lambda file: file.stem)
def test_terraform__is_read_and_uses_what_it_declares(file: Path) -> None:
    """Not what a provider takes: `terraform validate` needs each provider."""
    code = file.read_text(encoding="utf-8")
    parsed = hcl2.loads(code)
    resources = {f"{kind}.{name}" for block in parsed["resource"] for kind, names in block.items() for name in names}
    resources = {resource.replace('"', "") for resource in resources}
    variables = {f"var.{name}".replace('"', "") for block in parsed.get("variable", ()) for name in block}
    kinds = {resource.partition(".")[0] for resource in resources}
    bare = re.sub(r"#.*", "", code)
    references = {name for name in re.findall(r"\b(\w+\.\w+)", bare) if name.partition(".")[0] in {"var", *kinds}}
    assert references - resources == variables
    page = re.search(r"docs/how-to/[\w-]+\.md", code)
    assert file.stem == "roles" or page is not None
    assert page is None or f"deploy/terraform/{file.name})" in (ROOT / page[0]).read_text(encoding="utf-8")


def test_sql__runs(settings: Settings) -> None:
    admin = settings.database.admin_url
    assert admin is not None
    with psycopg.connect(admin) as connection:
        for _, _, text in _blocks("sql"):
            connection.execute(text.replace("DATABASE kosmos ", f"DATABASE {connection.info.dbname} ").encode())
        connection.rollback()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings with an audit log, which some pages are about."""
    return changed(settings, {"rag.audit.enabled": True})


@pytest.fixture
def names(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What pages take for granted: an open engine, a tenant with documents, and files in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Engine, "open", lambda *_: engine)
    monkeypatch.setattr(Engine, "close", lambda _: None)
    monkeypatch.setattr("prometheus_client.start_http_server", lambda *_, **__: None)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook" / "leave.md").write_text("# Leave\n\nEmployees get 20 days of paid annual leave.\n")
    (tmp_path / "rag-config.yaml").write_text("rag: {retrieval: {top_k: 30}}")
    (tmp_path / "source.yaml").write_text("{kind: folder, path: handbook}")
    with sqlite3.connect("programs.db") as programs:
        programs.execute("CREATE TABLE programs (id INTEGER PRIMARY KEY, name VARCHAR)")
    acme = engine.tenant("acme")
    acme.ingest(["examples/knowledge_base", "handbook"])
    return {
        "engine": engine, "acme": acme, "tenant": acme, "scope": acme, "question": "How is churn calculated?",
        "text": b"Der Urlaub.", "reader": engine.tenant("acme", subject="ada@acme.example"),
        "SourceDocument": SourceDocument, "url": "sqlite:///programs.db",
    }  # fmt: skip


def test_python__runs(names: dict[str, Any]) -> None:
    wrong = []
    for page in dict.fromkeys(page for page, _, _ in _blocks("python") if _name(page) not in OF_OTHER_TESTS):
        namespace = dict(names)
        for _, _, code in (block for block in _blocks("python") if block[0] == page):
            try:
                exec(compile(code, _name(page), "exec"), namespace)
            except Exception as error:  # noqa: BLE001
                wrong.append(f"{_name(page)}: {code.splitlines()[0]}: {type(error).__name__} {error}")
    assert not wrong, "\n".join(wrong)
