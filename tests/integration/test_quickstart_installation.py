"""The quick start in a new environment: what it installs, and the first answer."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.distributions import Environment, install, is_installed, list_distributions, measure_bytes

QUESTION = "How is churn calculated?"


def test_quickstart__has_no_torch() -> None:
    distributions = list_distributions("quickstart")
    assert is_installed("torch")
    assert not distributions & {"torch", "transformers", "sentence-transformers", "scipy"}
    assert measure_bytes(distributions) < 600e6


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(tmp_path_factory.mktemp("quickstart"), "quickstart")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_quickstart__is_below_its_limit_and_answers(
    quickstart: Environment, knowledge_base: Path, tmp_path: Path
) -> None:
    """`init`, `ingest` and `ask`, as the README has them."""
    distributions, megabytes = quickstart.measure()
    assert distributions < 120
    assert megabytes <= 700
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KOSMOS_DATABASE__DATA_DIR": str(tmp_path / "data"),
        "KOSMOS_MODELS__CACHE_DIR": str(tmp_path / "models"),
    }

    def run(*arguments: str) -> str:
        process = subprocess.run(
            [quickstart.command, *arguments], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    assert "packaged:all-MiniLM-L6-v2-int8" in run("init")
    run("ingest", str(knowledge_base))
    answer = run("ask", QUESTION)
    assert "churn" in answer.lower()
    assert "[1]" in answer
    assert not list((tmp_path / "models").rglob("*.onnx")), "the model is read where pip has installed it"
