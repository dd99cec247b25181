"""The examples of docs/adapters.md, run as they are."""

import re
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Tenant

TEXT = (Path(__file__).parents[4] / "docs" / "adapters.md").read_text()


@pytest.mark.parametrize(
    ("section", "output"),
    [
        ("LangChain", ["[leave.md | Annual | L1 to L5] ", "[Document(id='canteen'", "Tea is free."]),
        ("LlamaIndex", ["leave.md | Annual | L1 to L5\n", "The canteen opens at noon."]),
        ("Haystack", ["[leave.md | Annual | L1 to L5] ", "Document(id=canteen, content: 'The canteen opens at noon.'"]),
    ],
)
def test_example__runs(
    engine: Engine,
    tenant: Tenant,
    section: str,
    output: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Engine, "open", lambda _: engine)  # vectors made of words: the model is not the subject
    monkeypatch.setattr(engine, "close", lambda: None)
    part = re.split(rf"^## {section}$", TEXT, flags=re.MULTILINE)[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    names: dict[str, Any] = {"tenant": tenant, "notes": engine.tenant(tenant.name, collection="notes")}
    exec(compile(code, section, "exec"), names)
    out = capsys.readouterr().out
    assert [text for text in output if text not in out] == []
