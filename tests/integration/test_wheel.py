"""The wheel: what it installs, the types of its public names, and migrations out of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.migrate import REVISION

ROOT = Path(__file__).parents[2]
DATA = {".py", ".typed", ".sql", ".css", ".html", ".j2", ".js", ".mako", ".svg", ".txt", ".yaml"}
PROGRAM = """
from kosmos_rag import Answer, Engine, Filter, IngestReport, SearchResult, Settings, SourceDocument, Tenant

with Engine.open(Settings.load()) as engine:
    tenant: Tenant = engine.tenant("acme", principals=["everyone"])
    report: IngestReport = tenant.ingest([SourceDocument(source="leave.md", data=b"Leave is 20 days a year.")])
    result: SearchResult = tenant.search("How long is leave?", 5, Filter(sources=("leave.md",)))
    texts: list[str] = [hit.text for hit in result.hits]
    answer: Answer = tenant.answer("How long is leave?")
    print(report.new, texts, answer.text, answer.citations[0].location)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    run = [sys.executable, "-m"]
    subprocess.run(
        [*run, "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    wheel = next(folder.glob("kosmos_rag-*.whl"))
    target = folder / "site"
    subprocess.run(
        [*run, "pip", "install", "--quiet", "--no-deps", "--target", target, wheel], check=True, capture_output=True
    )
    return target


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in DATA}


def test_wheel__installs_one_package_with_its_types_migrations_and_data(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} == {"bin", "kosmos_rag"}
    package = _files(installed / "kosmos_rag")
    migrations = {f"_migrations/{path}" for path in _files(ROOT / "migrations")}
    assert "py.typed" in package
    assert package == _files(ROOT / "kosmos_rag") | migrations


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_program__of_public_names_is_checked_strictly_against_the_wheel(installed: Path, tmp_path: Path) -> None:
    """As another project sees it: without our settings. The second run must object to a wrong type."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    environment = {"MYPYPATH": "", "PYTHONPATH": str(installed)}
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    wrong = PROGRAM.replace("texts: list[str]", "texts: list[int]")
    program.write_text(wrong)
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "List comprehension has incompatible type" in checked.stdout


def test_migrate__from_an_installed_wheel(installed: Path, empty_database: DatabaseSettings, tmp_path: Path) -> None:
    script = (
        "import kosmos_rag, kosmos_rag.apps.cli; print(kosmos_rag.__file__, flush=True); kosmos_rag.apps.cli.main()"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, "migrate"],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(installed),
            "KOSMOS_DATABASE__URL": empty_database.url,
            "KOSMOS_DATABASE__ADMIN_URL": empty_database.admin_url or "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith(str(installed))
    assert f"migrated from an empty database to {REVISION}" in process.stdout
