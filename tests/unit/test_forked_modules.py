"""`pytest --processes`: modules in forked processes, each test reported, and a lost process too."""

import subprocess
import sys
from pathlib import Path

from tests.distributions import ROOT

CONFTEST = """
from itertools import groupby
from pathlib import Path
import os
import pytest
from tests.forked_modules import add_option as pytest_addoption, run_modules

@pytest.fixture(scope="session")
def process(tmp_path_factory):
    yield os.getpid()
    (Path(__file__).parent / f"ended-{os.getpid()}").touch()

def pytest_runtestloop(session):
    run_modules(session, [list(items) for _, items in groupby(session.items, lambda item: item.path)], 2)
    return True
"""
MODULES = {
    "test_one.py": """
        import os, sys
        PARENT = os.getpid()
        def test_runs_in_another_process(process): assert process == os.getpid() != PARENT
        def test_has_a_folder_of_its_process(tmp_path): assert tmp_path.parent.name.startswith("gw")
        def test_prints(capfd): os.write(1, b"words"); assert capfd.readouterr().out == "words"
    """,
    "test_two.py": """
        import pytest
        def test_fails(process): print("what it printed"); assert process == 0
        def test_is_skipped(): pytest.skip("a reason")
    """,
}


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-rs", "--rootdir", str(folder), "-p", "no:cacheprovider", str(folder)]
    environment = {"PATH": "", "PYTHONPATH": str(ROOT)}
    return subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)


def _write(folder: Path, name: str, text: str) -> None:
    lines = text.splitlines()
    (folder / name).write_text("\n".join(line.removeprefix("        ") for line in lines))


def test_modules__are_reported_as_without_processes(tmp_path: Path) -> None:
    for name, text in MODULES.items():
        _write(tmp_path, name, text)
    result = _run(tmp_path)
    assert result.returncode == 1
    assert "1 failed, 3 passed, 1 skipped" in result.stdout
    assert "what it printed" in result.stdout
    assert "a reason" in result.stdout
    assert list(tmp_path.glob("ended-*"))


def test_a_process_that_ends__fails_its_test_and_the_others_go_on(tmp_path: Path) -> None:
    _write(tmp_path, "test_one.py", "import os\ndef test_ends(): os._exit(7)\ndef test_later(): pass")
    for number in range(5):
        _write(tmp_path, f"test_two_{number}.py", "def test_passes(): pass")
    result = _run(tmp_path)
    assert result.returncode == 1
    assert "1 failed, 5 passed" in result.stdout
    assert "ended with exit code 7; the rest of its module did not run" in result.stdout


def test_first_failure__ends_the_run_where_one_is_too_many(tmp_path: Path) -> None:
    _write(tmp_path, "test_one.py", "def test_fails(): assert 0")
    _write(tmp_path, "test_two.py", "import time\ndef test_waits(): time.sleep(60)")
    result = _run(tmp_path, "-x")
    assert "stopping after 1 failures" in result.stdout
    assert "1 failed" in result.stdout
