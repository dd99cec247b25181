"""docker-compose.yml and the Dockerfile against what the code needs. No container engine is asked."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kosmos_rag import Settings
from kosmos_rag.cli.app import app
from workers.ingest import _arguments

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of the compose file."""
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])


def _environment(service: dict[str, Any]) -> dict[str, str]:
    """A service's variables, with the defaults that the file gives."""
    return {
        name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
        for name, value in service["environment"].items()
        if name.startswith("KOSMOS_") and name != "KOSMOS_CONFIG"
    }


def test_compose__has_postgres_the_migration_and_a_worker(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "migrate", "worker"}
    assert services["postgres"]["image"] == "pgvector/pgvector:pg17"
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert services["worker"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


@pytest.mark.parametrize("name", ["migrate", "worker"])
def test_compose__sets_variables_that_are_settings(
    name: str, services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in _environment(services[name]).items():
        monkeypatch.setenv(variable, value)
    database = Settings.load(ROOT / "rag-config.yaml").database
    assert database.url.startswith("postgresql://kosmos_app:")
    assert (database.worker_url or "").startswith("postgresql://kosmos_worker:")
    assert bool(database.admin_url) == (name == "migrate"), "only the migration logs in as an administrator"


def test_compose__runs_commands_that_exist(services: dict[str, Any]) -> None:
    assert services["migrate"]["command"][0] == "kosmos-rag"
    assert services["migrate"]["command"][1] in {command.name for command in app.registered_commands}
    python, module, worker, *arguments = services["worker"]["command"]
    assert (python, module, worker) == ("python", "-m", "workers.ingest")
    parsed = _arguments(arguments)
    assert parsed.tenant == "default"
    assert any(volume.split(":")[1] == str(parsed.paths[0]) for volume in services["worker"]["volumes"])


def test_dockerfile__copies_what_the_package_is_built_from() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE))
    names = {name for line in copied for name in line.split()}
    assert {"pyproject.toml", "README.md", "LICENSE", "rag-config.yaml", "kosmos_rag", "workers", "migrations"} <= names
    assert all((ROOT / name).exists() for name in names)
    assert re.search(r"^USER kosmos$", dockerfile, re.MULTILINE)


def test_readme__names_files_and_targets_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^make ([\w-]+)", readme, re.MULTILINE):
        assert target in targets
    for link in re.findall(r"\]\(([^)#]+)\)", readme):
        assert (ROOT / link).exists(), link
    commands = {command.name for command in (*app.registered_commands, *app.registered_groups)}
    for command in re.findall(r"^kosmos-rag (\w+)", readme, re.MULTILINE):
        assert command in commands
