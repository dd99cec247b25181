"""A wing is a folder that can be removed: the library works without it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import PACKAGE, ROOT, WINGS

KERNEL_TESTS = ("tests/unit/core", "tests/unit/retrieval/signals", "tests/unit/worker")
WHOLE = "tests/unit/core/config"
"""Compares the settings of the whole library with its pages and records."""


@pytest.fixture(scope="module")
def without_wings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library and its tests without the wings."""
    folder = tmp_path_factory.mktemp("library")
    unused = shutil.ignore_patterns("__pycache__", *WINGS)
    shutil.copytree(PACKAGE, folder / "kosmos_rag", ignore=unused)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=unused)
    for name in ("pyproject.toml", "rag-config.yaml", "docs"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def _run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_library__is_imported_with_the_settings_of_the_kernel_alone(without_wings: Path) -> None:
    program = (
        "import kosmos_rag; from kosmos_rag import Settings; from kosmos_rag.wings import load_wing_jobs;"
        "print(kosmos_rag.__file__, *Settings.model_fields, load_wing_jobs())"
    )
    file, *sections = _run(without_wings, "-c", program).split()
    assert Path(file).is_relative_to(without_wings)
    assert set(sections).isdisjoint(WINGS)
    assert {"rag", "database", "service"} <= set(sections)


def test_command_line__has_all_commands_but_those_of_the_wings(without_wings: Path) -> None:
    shown = _run(without_wings, "-m", "kosmos_rag.apps.cli", "--help")
    assert "search" in shown
    assert {"schema", "eval", "experiment", "monitor"}.isdisjoint(shown.split())


def test_services__are_built_without_the_wings(without_wings: Path) -> None:
    program = (
        "from kosmos_rag.apps.http.app import describe_api; from kosmos_rag.apps.mcp.server import load_mcp_wings;"
        "from kosmos_rag.apps.client.wings import load_client_calls;"
        "print(*describe_api()['paths']); assert not load_mcp_wings(); assert not load_client_calls()"
    )
    paths = _run(without_wings, "-c", program).split()
    assert "/v1/search" in paths
    assert [path for path in paths if "schema" in path] == []


@pytest.mark.slow
def test_kernel__passes_its_tests_without_the_wings(without_wings: Path) -> None:
    _run(without_wings, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--ignore={WHOLE}", *KERNEL_TESTS)
