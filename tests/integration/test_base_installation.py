"""The base installation: it imports the package and searches, and names the extra of everything else."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import EmbeddingSettings
from tests.distributions import ROOT, Environment, install, list_distributions, map_modules
from tests.integration.variants import changed
from tests.unit.models.embedding.embedding_server import DIMENSIONS, KEY, embeds
from tests.unit.models.llm.chat_server import running
from tests.without_wings import copy_without_wings

LEAVE = SourceDocument(source="leave.md", data=b"# Leave\n\nEmployees have twenty days of annual leave a year.")
NOTICE = SourceDocument(source="notice.md", data=b"# Notice\n\nCustomers give ninety days of notice in writing.")
QUESTION = "How many days of leave do employees have?"

_BLOCK = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
_SEARCH = """
from kosmos_rag import Engine, Settings

with Engine.open(Settings.load()) as engine:
    tenant = engine.tenant({tenant!r})
    result = tenant.search({question!r})
    print(result.hits[0].source, result.warnings)
    print(tenant.context({question!r}).citations[0].source)
    print(tenant.answer({question!r}).text)
"""


@dataclass(frozen=True, kw_only=True)
class World:
    """A tenant with two documents, and the settings of another process that searches them."""

    tenant: str
    variables: Mapping[str, str]


@pytest.fixture
def world(settings: Settings, tenant_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as server:
        server.replies = [embeds("openai")]
        embedding = EmbeddingSettings(model="m", dimensions=DIMENSIONS, url=server.url(), api_key=SecretStr(KEY))
        with Engine(changed(settings, {"rag.embedding": embedding})) as engine:
            assert engine.tenant(tenant_name).ingest([LEAVE, NOTICE]).new == 2
        database = settings.database
        yield World(
            tenant=tenant_name,
            variables={
                "PATH": os.environ["PATH"],
                "NO_PROXY": "127.0.0.1",
                "KOSMOS_CONFIG": os.devnull,
                "KOSMOS_DATABASE__URL": database.url,
                "KOSMOS_DATABASE__WORKER_URL": database.worker_url or "",
                "KOSMOS_RAG__CHUNKING__STRATEGY": "paragraph",
                "KOSMOS_RAG__EMBEDDING__MODEL": "m",
                "KOSMOS_RAG__EMBEDDING__DIMENSIONS": str(DIMENSIONS),
                "KOSMOS_RAG__EMBEDDING__URL": server.url(),
                "KOSMOS_RAG__EMBEDDING__API_KEY": KEY,
                "KOSMOS_RAG__RERANKING__ENABLED": "false",
                "KOSMOS_RAG__ANSWER__THRESHOLD": "0.0",
            },
        )


def _run(*command: str | Path, variables: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("wings", ["with the wings", "without the wings"])
def test_search__needs_the_base_packages_alone(world: World, tmp_path: Path, wings: str) -> None:
    """In a process that cannot import any other package, installed or not."""
    library = ROOT
    if wings == "without the wings":
        library = tmp_path / "library"
        copy_without_wings(library)
    base = list_distributions()
    blocked = {module for module, names in map_modules().items() if not names & base} - {"kosmos_rag"}
    assert {"alembic", "sqlalchemy", "torch", "fastapi", "langchain_core", "pypdfium2"} <= blocked
    program = _BLOCK.format(blocked=blocked) + _SEARCH.format(tenant=world.tenant, question=QUESTION)
    variables = {**world.variables, "PYTHONPATH": str(library)}
    result = _run(sys.executable, "-c", program, variables=variables, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("leave.md ()\nleave.md\n"), result.stdout
    assert "twenty days" in result.stdout


@pytest.fixture(scope="module")
def base_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A new environment with the wheel and its requirements, and nothing else."""
    return install(tmp_path_factory.mktemp("base"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_base_environment__is_small(base_environment: Environment) -> None:
    distributions, megabytes = base_environment.measure()
    assert distributions <= 32
    assert megabytes <= 153


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_base_environment__searches(base_environment: Environment, world: World, tmp_path: Path) -> None:
    python, command = base_environment.python, base_environment.command
    program = _SEARCH.format(tenant=world.tenant, question=QUESTION)
    result = _run(python, "-c", program, variables=world.variables, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "twenty days" in result.stdout
    result = _run(command, "search", QUESTION, "--tenant", world.tenant, variables=world.variables, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "leave.md" in result.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_base_environment__works_without_the_wings(base_environment: Environment, world: World, tmp_path: Path) -> None:
    copy_without_wings(tmp_path)
    python, command = base_environment.python, base_environment.command
    variables = {**world.variables, "PYTHONPATH": str(tmp_path)}
    result = _run(python, "-c", "import kosmos_rag; print(kosmos_rag.__file__)", variables=variables, folder=tmp_path)
    assert Path(result.stdout.strip()).is_relative_to(tmp_path), result.stderr
    program = _SEARCH.format(tenant=world.tenant, question=QUESTION)
    result = _run(python, "-c", program, variables=variables, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "twenty days" in result.stdout
    result = _run(command, "--help", variables=variables, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "search" in result.stdout
    assert {"schema", "eval", "experiment", "monitor"}.isdisjoint(result.stdout.split())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("migrate", "migrate"),
        ("serve", "service"),
        ("worker --until-idle", "worker"),
        ("mcp", "mcp"),
        ("keyword-context word --file words.txt", "keyword"),
        ("ingest documents", "ingestion"),
    ],
)
def test_base_environment__names_the_extra_of_a_command(
    arguments: str, extra: str, base_environment: Environment, world: World, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("A word.")
    (tmp_path / "documents").mkdir()
    command = base_environment.command
    assert _run(command, "--help", variables=world.variables, folder=tmp_path).returncode == 0
    result = _run(command, *arguments.split(), variables=world.variables, folder=tmp_path)
    assert result.returncode == 1
    assert f"pip install 'kosmos-rag[{extra}]'" in result.stderr, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
