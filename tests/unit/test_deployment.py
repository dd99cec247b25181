"""The Dockerfile, the compose files and what they mount, against what the code needs. No container engine is asked."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from kosmos_rag import Settings
from kosmos_rag.apps.cli.app import app
from kosmos_rag.core.config.keys import iter_keys
from kosmos_rag.core.config.loading import DELIMITER, FILE_VARIABLE, PREFIX
from kosmos_rag.core.version import __version__

ROOT = Path(__file__).parents[2]
OURS = ("migrate", "api", "worker")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
VARIABLES = {PREFIX + key.upper().replace(".", DELIMITER) for key, _ in iter_keys(Settings)} | {FILE_VARIABLE}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of the compose file."""
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])


def _substitute(value: Any) -> str:
    """A value of the compose file as Compose hands it on, where .env sets what it has to."""
    required = re.sub(r"\$\{\w+:\?[^}]*\}", "given", str(value))
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", required)


def _image_environment() -> dict[str, str]:
    return dict(re.findall(r"\b(KOSMOS_\w+)=(\S+)", DOCKERFILE))


def _settings(service: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings that a container of the service goes by."""
    environment = _image_environment() | {name: _substitute(value) for name, value in service["environment"].items()}
    for name, value in environment.items():
        if name != FILE_VARIABLE:
            monkeypatch.setenv(name, value)
    return Settings.load(ROOT / "rag-config.yaml")


def test_compose__has_every_service_of_a_deployment(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "migrate", "api", "worker", "prometheus", "grafana", "ollama"}
    assert services["ollama"]["profiles"] == ["ollama"]
    for name in OURS[1:]:
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_compose__pins_every_image(services: dict[str, Any]) -> None:
    images = [service["image"] for service in services.values() if "build" not in service]
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${BASE}"}
    images += re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert len(images) == 5
    for image in images:
        assert re.fullmatch(r"[\w./-]+:[\w.-]*\d+\.\d+\.\d+[\w.-]*", image), f"{image} may become another one"


@pytest.mark.parametrize("name", OURS)
def test_compose__sets_variables_that_are_settings(
    name: str, services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {key for key in services[name]["environment"] if key.startswith("KOSMOS")} <= VARIABLES
    assert set(_image_environment()) <= VARIABLES
    database = _settings(services[name], monkeypatch).database
    assert database.url == "postgresql://kosmos_app:given@postgres:5432/kosmos"
    assert database.worker_url == "postgresql://kosmos_worker:given@postgres:5432/kosmos"
    assert bool(database.admin_url) == (name == "migrate"), "only the migration logs in as an administrator"


def test_compose__has_no_password_of_its_own(services: dict[str, Any]) -> None:
    """What is secret is asked for: a missing or empty one stops Compose before anything starts."""
    secret = {
        variable: value
        for service in services.values()
        for variable, value in service.get("environment", {}).items()
        if "PASSWORD" in variable or variable.endswith("URL")
    }
    assert len(secret) == 6
    for variable, value in secret.items():
        assert ":?" in value or variable == "KOSMOS_LANGUAGE_MODEL__URL", variable
    example = dict(re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    variables = set(re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yml").read_text()))
    assert example == dict.fromkeys(sorted(variables), "")
    assert ".env" in (ROOT / ".gitignore").read_text().split()
    assert ".env" in (ROOT / ".dockerignore").read_text().split()


def test_env_example__names_what_the_compose_file_reads() -> None:
    matches = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    read = set(re.findall(r"\$\{(\w+):[-?]", (ROOT / "docker-compose.yml").read_text()))
    assert matches - {"COMPOSE_PROFILES"} == read


@pytest.mark.parametrize("name", OURS)
def test_compose__gives_our_containers_nothing_that_they_do_not_need(name: str, services: dict[str, Any]) -> None:
    service = services[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    parts = {volume.split(":")[1] for volume in service["volumes"] if not volume.endswith(":ro")}
    assert parts | {mount.partition(":")[0] for mount in service["tmpfs"]} == {"/models", "/tmp"}


def test_compose__bounds_every_container(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
        assert service["pids_limit"] > 0, name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert all(re.search(r":size=\d+[mg]$", mount) for mount in service.get("tmpfs", [])), name
    settings = Settings()
    needed = settings.worker.processes * settings.worker.memory_mb / 1024 + 1
    assert int(services["worker"]["mem_limit"].removesuffix("g")) >= needed, "processes, and /tmp"


@cache
def _root() -> Any:
    return typer.main.get_command(app)


def _command(words: list[str]) -> Any:
    """The command that the words call. Raises KeyError where there is none."""
    assert words[0] == "kosmos-rag"
    command: Any = _root()
    for word in words[1:]:
        if not hasattr(command, "commands"):
            break
        command = command.commands[word]
    return command


@pytest.mark.parametrize("name", OURS)
def test_compose__runs_commands_that_exist(name: str, services: dict[str, Any]) -> None:
    assert not hasattr(_command(services[name]["command"]), "commands"), "a group of commands does nothing"


def test_compose__looks_at_ports_and_paths_that_are_served(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        service = _settings(services["api"], patch).service
    with monkeypatch.context() as patch:
        worker = _settings(services["worker"], patch).worker
    assert service.host == "0.0.0.0"
    assert services["api"]["ports"] == [f"127.0.0.1:{service.port}:{service.port}"]
    ports = {"api": service.port, "worker": worker.health_port}
    for name, port in ports.items():
        (probe,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", services[name]["healthcheck"]["test"][-1])
        assert probe == (str(port), "/readyz")
    (probe,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", DOCKERFILE)
    assert probe == (str(service.health_port), "/livez")
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in scraped}
    assert targets == {
        "kosmos-api": [f"api:{service.health_port}"],
        "kosmos-worker": [f"worker:{worker.health_port}"],
    }


def test_compose__waits_longer_than_our_processes_take_to_end(services: dict[str, Any]) -> None:
    settings = Settings()
    expected = {"api": settings.service.drain_s + 5, "worker": settings.worker.drain_s}
    for name, seconds in expected.items():
        assert int(services[name]["stop_grace_period"].removesuffix("s")) >= seconds + 5
    megabytes = 1024 * int(services["postgres"]["shm_size"].removesuffix("gb"))
    assert megabytes >= settings.indexes.build_memory_mb


def test_compose__mounts_what_is_there(services: dict[str, Any]) -> None:
    volumes = set(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["volumes"])
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in volumes or source == "./documents" or (ROOT / source).is_dir(), source


def test_dockerfile__copies_what_the_package_is_built_from() -> None:
    copied = {
        name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    assert copied == {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "rag-config.yaml",
        "kosmos_rag",
        "migrations",
        "requirements",
    }
    assert all((ROOT / name).exists() for name in copied)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not copied & set(ignored)


def test_dockerfile__installs_locked_packages_and_runs_as_nobody() -> None:
    installed = re.findall(r"pip install (.+)$", DOCKERFILE, re.MULTILINE)
    assert installed == [
        "--require-hashes --no-deps -r requirements/build.txt",
        "${TORCH}",
        "--require-hashes --no-deps -r requirements/image.txt",
        "--no-deps dist/*.whl && pip check",
    ]
    assert re.search(r'^ARG TORCH="torch==\d+\.\d+\.\d+"$', DOCKERFILE, re.MULTILINE)
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.MULTILINE)
    assert DOCKERFILE.rindex("USER 10001") > DOCKERFILE.rindex("RUN ")


def test_dockerfile__can_be_published() -> None:
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', DOCKERFILE))
    assert labels.keys() == {"title", "description", "version", "licenses"}
    assert re.search(rf"^ARG VERSION={re.escape(__version__)}$", DOCKERFILE, re.MULTILINE)
    assert labels["licenses"] == "Apache-2.0"
    assert "VOLUME" in DOCKERFILE
    (command,) = re.findall(r"^CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    assert not hasattr(_command(json.loads(command)), "commands"), "a group of commands does nothing"
    (exposed,) = re.findall(r"^EXPOSE (.+)$", DOCKERFILE, re.MULTILINE)
    environment = _image_environment()
    assert exposed.split() == [str(Settings().service.port), environment["KOSMOS_SERVICE__HEALTH_PORT"]]
    assert not re.search(r"(?i)(password|token|secret|key)=\S", DOCKERFILE)


def test_dockerfile__writes_settings_for_a_container_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the image, in a folder of the test's, and the settings that `docker run` uses."""
    (words,) = re.findall(r"^RUN /opt/kosmos/bin/kosmos-rag (init .+)$", DOCKERFILE, re.MULTILINE)
    (data,) = re.findall(r"database\.data_dir=(\S+)", words)
    assert re.search(rf"mkdir .*{Path(data).parent}\b.* chown .*{Path(data).parent}\b", DOCKERFILE)
    here = words.replace("/app/", f"{tmp_path}/").replace(data, f"{tmp_path}/data")
    result = CliRunner().invoke(app, here.split(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for name, value in _image_environment().items():
        if name != FILE_VARIABLE:
            monkeypatch.setenv(name, value)
    settings = Settings.load(tmp_path / "quickstart.yaml")
    assert settings.rag.embedding.model == "packaged:all-MiniLM-L6-v2-int8"
    assert (settings.service.development.tenant, settings.service.host) == (None, "0.0.0.0")
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))])
    for text in (pages, DOCKERFILE):
        (run,) = re.findall(r"docker run .*kosmos-rag:.*", text)
        assert f"--volume kosmos:{Path(data).parent} " in run
        assert f"--publish 127.0.0.1:{settings.service.port}:{settings.service.port} " in run
        words_run = run.partition(" kosmos-rag:latest kosmos-rag ")[2].split()
        assert words_run == ["serve", "--worker", "--config", "/app/quickstart.yaml"]
        assert "--worker" in {option for item in _command(["kosmos-rag", "serve"]).params for option in item.opts}


def test_readme__begins_with_the_commands_of_a_first_minute() -> None:
    """In this order, with an extra and commands that exist."""
    checkout, installation = re.findall(
        r"^```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )[:2]
    assert [line.split()[:2] for line in checkout.splitlines()] == [["make", "demo"], ["make", "test"]]
    environment, *commands = [line.partition("#")[0].split() for line in installation.splitlines()]
    assert environment[:3] == ["python3.11", "-m", "venv"]
    assert [words[:2] for words in commands] == [
        ["pip", "install"],
        *(["kosmos-rag", name] for name in ("init", "ingest", "ask", "serve")),
    ]
    assert commands[0][2] == "'.[quickstart]'"


def test_readme__names_commands_and_targets_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^make ([\w-]+)", readme, re.MULTILINE):
        assert target in targets
    commands = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    for command in re.findall(r"^kosmos-rag (\w+)", readme, re.MULTILINE):
        assert command in commands


@pytest.mark.parametrize(
    "page",
    ["server.md", "service.md", "workers.md", "indexes.md", "erasure.md", "audit.md", "reembedding.md"]
    + [f"how-to/{page.name}" for page in sorted((ROOT / "docs" / "how-to").glob("[a-z]*.md"))],
)
def test_documentation__names_commands_that_exist(page: str) -> None:
    """Each `kosmos-rag …` of a page, up to its arguments, is a command with the options that are given."""
    text = (ROOT / "docs" / page).read_text()
    calls = re.findall(r"\bkosmos-rag((?: +[a-z][a-z-]*)+)((?: +--?[a-z][a-z-]*(?:[ =][^-\s`|#]+)?)*)", text)
    assert calls or page.startswith("how-to/")
    for words, options in calls:
        command = _command(["kosmos-rag", *words.split()])
        names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", options)) <= names | {"--help"}, (words, options)


def test_citus__has_the_versions_that_were_tried_and_knows_its_nodes() -> None:
    folder = ROOT / "deploy" / "citus"
    services = yaml.safe_load((folder / "docker-compose.yml").read_text())["services"]
    assert set(services) == {"coordinator", "worker1", "worker2", "nodes"}
    for name in ("coordinator", "worker1", "worker2"):
        assert services[name]["build"] == "."
        assert "shared_preload_libraries=citus" in services[name]["command"]
    assert services["coordinator"]["ports"] == ["127.0.0.1:5433:5432"]
    assert not any("ports" in services[name] for name in ("worker1", "worker2"))
    added = re.findall(r"'(\w+)', 5432", " ".join(services["nodes"]["command"]))
    assert added == ["coordinator", "worker1", "worker2"]
    assert set(services["nodes"]["depends_on"]) == set(added)
    dockerfile = (folder / "Dockerfile").read_text()
    (tried,) = re.findall(r"on Citus (\d+\.\d+)\.\d+, PostgreSQL (\d+)", (ROOT / "docs" / "scale.md").read_text())
    (image,) = re.findall(r"^FROM citusdata/citus:(\d+\.\d+)\.\d+$", dockerfile, re.MULTILINE)
    (postgres,) = re.findall(r"postgresql-(\d+)-pgvector", dockerfile)
    assert (image, postgres) == tried


INSTALLATION = {
    *("init", "doctor", "keyword-context", "serve", "worker", "migrate", "backup", "restore", "config show"),
    *("models pull", "models list", "models recommend", "schema export", "siem convert-log"),
}
"""Commands that work on no tenant; `tenant delete` has it as its argument."""


def _options(command: Any, *names: str) -> dict[str, set[str]]:
    """Return the options of each command by its name."""
    context = typer.Context(command)
    if not hasattr(command, "list_commands"):
        return {" ".join(names): {option for parameter in command.params for option in parameter.opts}}
    children = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {key: value for name, child in children.items() for key, value in _options(child, *names, name).items()}


def test_commands__take_a_tenant_unless_they_work_on_the_installation() -> None:
    """As the README says."""
    options = _options(typer.main.get_command(app))
    without = {name for name, values in options.items() if "--tenant" not in values}
    assert without == {*INSTALLATION, "tenant delete"} & options.keys()
