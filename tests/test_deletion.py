"""A wing is a folder that can be removed: the library works without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import KERNEL, WINGS
from tests.without_wings import copy_without_wings

_INTEGRATION = ("answering", "engine", "ingestion", "retrieval")
KERNEL_TESTS = (
    *sorted(f"tests/unit/{package}" for package in KERNEL),
    *(f"tests/integration/{package}" for package in _INTEGRATION),
)
_PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow")
_CONFIG = "tests/unit/core/config"
WHOLE = (
    f"--ignore={_CONFIG}/test_adr_preset.py",
    f"--ignore={_CONFIG}/test_reference.py",
    f"--deselect={_CONFIG}/test_errors.py::test_renamed_keys__lead_to_keys_and_sections_that_exist",
)
"""Tests that compare the settings of the whole library with its pages and records."""


@pytest.fixture(scope="module")
def without_wings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library and its tests without the wings."""
    folder = tmp_path_factory.mktemp("library")
    copy_without_wings(folder)
    return folder


def _run(folder: Path, *arguments: str, timeout_s: float = 170) -> str:
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    return process.stdout


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
    output = _run(without_wings, "-m", "kosmos_rag", "--help")
    assert "search" in output
    assert {"schema", "eval", "experiment", "monitor"}.isdisjoint(output.split())


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
def test_tests_of_the_kernel__are_collected_without_the_wings(without_wings: Path) -> None:
    folders = sorted(
        str(folder.relative_to(without_wings))
        for kind in ("unit", "integration")
        for folder in (without_wings / "tests" / kind).iterdir()
        if folder.name in KERNEL
    )
    assert len(folders) > len(KERNEL)
    _run(without_wings, *_PYTEST, "--collect-only", *folders)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kernel__passes_its_tests_without_the_wings(without_wings: Path) -> None:
    _run(without_wings, *_PYTEST, *WHOLE, *KERNEL_TESTS, timeout_s=3500)
