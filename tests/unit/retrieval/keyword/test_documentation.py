"""The code of docs/keyword.md, run as it is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def test_documentation__code_puts_the_context_before_the_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "keyword.md").read_text(), re.DOTALL)
    names: dict[str, str] = {}
    exec(compile(code, "docs/keyword.md", "exec"), names)
    assert names["prompt"].startswith("3. Sales by Region:\n   SELECT region")
    assert names["prompt"].endswith("\n\nUSER QUESTION: show total sales by region")
    assert re.search(r"^\d+\.\d+ examples/schema_docs\.txt L\d+ to L\d+ 3\. Sales by Region:", capsys.readouterr().out)
