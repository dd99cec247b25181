"""What a release is built from: locked versions, workflows, the changelog and the hooks."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kosmos_rag.core.version import __version__
from tests.distributions import ROOT, list_requirements

LOCKS = ROOT / "requirements"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
TORCH = {"torch"}
PINS = re.compile(r"^([\w.-]+)==([^\s;]+)(?: ; ([^\\\n]+))?", re.MULTILINE)


def _pins(name: str) -> dict[str, str]:
    return {canonicalize_name(pin[1]): pin[2] for pin in PINS.finditer((LOCKS / name).read_text())}


@pytest.mark.parametrize(("lock", "extra"), [("image.txt", "image"), ("dev.txt", "dev")])
def test_lock__has_a_version_of_each_requirement(lock: str, extra: str) -> None:
    """`make lock` after a change of pyproject.toml."""
    pins = _pins(lock)
    requirements = [*list_requirements(), *list_requirements(extra)]
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{name} is not in requirements/{lock}: run make lock"
        assert requirement.specifier.contains(pins[name], prereleases=True), (
            f"{requirement}, and {pins[name]} is locked"
        )
    assert not set(pins) & TORCH
    assert not any(name.startswith("nvidia-") for name in pins)


@pytest.mark.parametrize("lock", ["image.txt", "build.txt", "dev.txt"])
def test_lock__names_no_address(lock: str) -> None:
    text = (LOCKS / lock).read_text()
    assert not re.search(r"://|--(extra-)?index-url|--find-links| @ ", text)


@pytest.mark.parametrize("lock", ["image.txt", "build.txt"])
def test_lock__of_the_image_has_hashes(lock: str) -> None:
    text = (LOCKS / lock).read_text()
    for line in re.split(r"\n(?=\S)", text.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line


def test_lock__of_the_image_is_what_the_tests_have() -> None:
    image, dev = _pins("image.txt"), _pins("dev.txt")
    assert {name: dev[name] for name in image} == image


def _steps(workflow: str, job: str) -> list[str]:
    return [step["run"] for step in WORKFLOWS[workflow]["jobs"][job]["steps"] if "run" in step]


def test_workflows__call_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    mentioned = {
        target
        for workflow, jobs in WORKFLOWS.items()
        for job in jobs["jobs"]
        for step in _steps(workflow, job)
        for call in re.findall(r"^make (.+)$", step, re.MULTILINE)
        for target in call.split()
    }
    assert {"lint", "test", "test-slow", "demo", "dist", "sbom"} <= mentioned
    assert mentioned <= targets


@pytest.mark.parametrize(
    ("installed", "chosen"), [(("python3.13",), "python3.13"), (("python3.12", "python3.11"), "python3.11")]
)
def test_makefile__takes_the_oldest_supported_python_on_the_path(
    tmp_path: Path, installed: tuple[str, ...], chosen: str
) -> None:
    for name in installed:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    if (make := shutil.which("make")) is None:
        pytest.skip("make is not installed")
    command = [make, "--silent", "--eval", "chosen: ; $(info $(PYTHON))", "chosen"]
    result = subprocess.run(command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == str(tmp_path / chosen)


def test_ci__tests_the_oldest_and_the_newest_of_python_and_postgresql() -> None:
    matrix: dict[str, Any] = WORKFLOWS["ci"]["jobs"]["test"]["strategy"]["matrix"]
    assert matrix == {"python": ["3.11", "3.13"], "postgres": ["16", "18"]}
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


def test_release__publishes_without_a_password_and_after_the_tests() -> None:
    build, publish = (WORKFLOWS["release"]["jobs"][name] for name in ("build", "publish"))
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "permissions" not in build
    assert WORKFLOWS["release"]["permissions"] == {"contents": "read"}
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
    assert _steps("release", "build").index("make test") < _steps("release", "build").index("make dist sbom")


def test_release__builds_the_image_on_a_digest() -> None:
    image = WORKFLOWS["release"]["jobs"]["image"]
    assert image["needs"] == "build"
    assert image["permissions"] == {"contents": "read", "packages": "write"}
    (build,) = _steps("release", "image")
    arguments = set(re.findall(r'--build-arg (\w+)="\$\w+"', build))
    assert arguments == set(re.findall(r"^ARG (\w+)=", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert "{{index .RepoDigests 0}}" in build


def test_changelog__begins_with_the_version() -> None:
    first = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert re.fullmatch(rf"{re.escape(__version__)}(, not released yet| \(\d{{4}}-\d{{2}}-\d{{2}}\))", first)


def test_pre_commit__has_the_ruff_of_the_lock() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    expected = {Requirement(name) for hook in hooks for name in hook.get("additional_dependencies", ())}
    assert {str(requirement) for requirement in expected} == {f"ruff=={_pins('dev.txt')['ruff']}"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_build__makes_the_wheel_from_the_sources(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT], check=True, capture_output=True
    )
    (sources,) = tmp_path.glob("*.tar.gz")
    (wheel,) = tmp_path.glob("*.whl")
    with tarfile.open(sources) as archive:
        names = {name.partition("/")[2].partition("/")[0] for name in archive.getnames()} - {""}
    assert names == {
        ".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "kosmos_rag", "migrations", "pyproject.toml",
        "rag-config.yaml",
    }  # fmt: skip
    with zipfile.ZipFile(wheel) as archive:
        assert f"kosmos_rag-{__version__}.dist-info/METADATA" in archive.namelist()
        assert "kosmos_rag/_migrations/env.py" in archive.namelist()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sbom__has_the_locked_components(tmp_path: Path) -> None:
    """`make sbom` has an environment of its own; here its tool has to be on the path."""
    if (tool := shutil.which("cyclonedx-py")) is None:
        pytest.skip("cyclonedx-py is not installed: make sbom")
    project, out = ROOT / "pyproject.toml", tmp_path / "sbom"
    words = ["requirements", str(LOCKS / "image.txt"), "--pyproject", str(project), "-o", str(out)]
    subprocess.run([tool, *words], check=True, capture_output=True)
    components = {item["name"]: item["version"] for item in json.loads((tmp_path / "sbom").read_text())["components"]}
    assert {canonicalize_name(name): version for name, version in components.items()} == _pins("image.txt")
