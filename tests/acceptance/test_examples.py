"""The examples and the README's code, run as they are."""

import ast
import asyncio
import json
import re
import runpy
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.config import DatabaseSettings
from tests.commands import set_variables

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.model


def test_demo__ingests_the_sample_and_cites_the_right_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", "--data-dir", str(tmp_path / "database")])
    monkeypatch.setenv("COLUMNS", "200")
    runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "6 new, 0 changed, 0 unchanged" in out
    assert "How is churn calculated?" in out
    assert re.search(r"example_sql\.md \| Churn Calculation \| L\d+ to L\d+", out)
    assert re.search(r"\[1\] runbooks\.md \|", out)


@pytest.mark.slow
def test_corporate_demo__answers_by_department_and_refuses_what_is_out_of_scope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", "--data-dir", str(tmp_path / "database")])
    monkeypatch.setenv("COLUMNS", "200")
    runpy.run_path(str(ROOT / "examples" / "corporate" / "demo.py"), run_name="__main__")
    out = capsys.readouterr().out
    human_resources, finance, manager = re.findall(
        r"^an employee of HR:|^an employee of Finance:|^a manager:", out, re.M
    )
    parts = re.split(f"{human_resources}|{finance}|{manager}|─ Who won", out)[1:]
    assert ["26 days" in part for part in parts[:3]] == [True, False, True]
    assert parts[1].strip().startswith("refused: ")
    assert "refused: " in parts[3]
    assert "piece: 'Full-time employees receive 26 days" in parts[3]


@pytest.fixture
def prepared_database(database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database on the server of the run: that of the demo prepares the embedded one."""
    set_variables(monkeypatch, database)


@pytest.mark.usefixtures("prepared_database")
def test_readme__code_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert re.search(r"^\[1\] knowledge_base/\w+\.md .* L\d+", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.usefixtures("prepared_database")
def test_notebook__runs_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples")
    notebook = json.loads(Path("quickstart.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell.get("outputs") for cell in notebook["cells"]), "outputs are of somebody's machine"
    values = asyncio.run(_run_cells(cells))
    assert values[0] == (6, ())
    assert re.search(r"<td>knowledge_base/example_sql\.md \| Churn Calculation \| L\d+ to L\d+</td>", values[1])
    assert values[2][1] == len(values[2][0]) == 3
    assert re.fullmatch("[0-9a-f]{64}", values[3])
    assert "<td>[1]</td>" in values[4]
    result, last = values[6]
    assert "Churn Calculation" in result[0][1]
    assert last == "AnswerDone"


async def _run_cells(cells: list[str]) -> list[Any]:
    """Run cells as a notebook does, and return what each displays: HTML, or its last value."""
    names: dict[str, Any] = {}
    values = []
    for number, cell in enumerate(cells):
        tree = ast.parse(cell)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        await _execute(compile(tree, f"cell {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        value: Any = None
        if isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            value = await _execute(compile(expression, f"cell {number}", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        values.append(value._repr_html_() if hasattr(value, "_repr_html_") else value)
    return values


async def _execute(code: Any, names: dict[str, Any]) -> Any:
    value = eval(code, names)
    return await value if isinstance(value, Coroutine) else value
