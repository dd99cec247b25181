"""The examples and the README's code, run as they are."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.model


def test_demo__ingests_the_sample_and_cites_the_right_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", "--data-dir", str(tmp_path / "database")])
    monkeypatch.setenv("COLUMNS", "200")
    runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "6 new, 0 changed, 0 unchanged" in shown
    assert "How is churn calculated?" in shown
    assert re.search(r"example_sql\.md \| Churn Calculation \| L\d+ to L\d+", shown)
    assert re.search(r"\[1\] runbooks\.md \|", shown)


def test_readme__code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("KOSMOS_DATABASE__DATA_DIR", str(tmp_path / "database"))
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert re.search(r"^\[1\] /.*examples/knowledge_base/\w+\.md .* L\d+", capsys.readouterr().out, re.MULTILINE)
