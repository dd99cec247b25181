"""The Python of docs/openai.md, run as it is but for address and key."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kosmos_rag import SourceDocument
from tests.integration.openai.speaking import Speaking
from tests.lazy_imports import import_on_use
from tests.unit.models.llm.chat_server import ChatServer, writes

if TYPE_CHECKING:
    import openai
else:
    openai = import_on_use("openai")

PAGE = (Path(__file__).parents[3] / "docs" / "openai.md").read_text()
LEAVE = b"# Leave\n\nEmployees get 20 days of paid annual leave per year.\n"


def test_examples__run(
    speaking: Speaking, chat: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    chat.replies[:] = [writes("Employees get 20 days of paid annual leave per year [1].")]
    monkeypatch.chdir(tmp_path)
    Path("leave.md").write_bytes(LEAVE)
    client = speaking.client()
    # The page waits for the worker, which runs in this thread.
    monkeypatch.setattr(openai, "OpenAI", lambda **_: client)
    monkeypatch.setattr(client.vector_stores.files, "poll", lambda *_, **__: speaking.work())
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        if "import litellm" in code:  # a client that is not installed here; test_search.py runs it where it is
            continue
        speaking.tenant.ingest(SourceDocument(source="notes.md", data=b"A note."))
        exec(compile(code.replace("qwen3:8b", "writer"), "openai.md", "exec"), names)
    assert "20 days of paid annual leave" in capsys.readouterr().out
