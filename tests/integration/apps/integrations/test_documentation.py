"""The examples of docs/adapters.md, run as they are."""

import re
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Tenant

TEXT = (Path(__file__).parents[4] / "docs" / "adapters.md").read_text()


@pytest.mark.parametrize(
    ("section", "shown"),
    [
        ("LangChain", "[leave.md | Annual | L1 to L5] "),
        ("LlamaIndex", "leave.md | Annual | L1 to L5\n"),
        ("Haystack", "[leave.md | Annual | L1 to L5] "),
    ],
)
def test_example__runs(tenant: Tenant, section: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    part = re.split(rf"^## {section}$", TEXT, flags=re.MULTILINE)[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    names: dict[str, Any] = {"tenant": tenant}
    exec(compile(code, section, "exec"), names)
    assert shown in capsys.readouterr().out
