"""examples/langgraph_agent: the agent calls tools of a server and answers; its model is scripted."""

import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic import Field

from tests.integration.apps.mcp.running import Running

EXAMPLE = Path(__file__).parents[4] / "examples" / "langgraph_agent"

pytestmark = pytest.mark.emptied_database


class ScriptedModel(FakeMessagesListChatModel):
    """Replies with the next message, and keeps what it is asked."""

    calls: list[list[BaseMessage]] = Field(default=[])
    tools: list[str] = Field(default=[])

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> "ScriptedModel":
        self.tools.extend(tool.name for tool in tools)
        return self

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> Any:
        self.calls.append(messages)
        return super()._generate(messages, *arguments, **options)


def test_agent__searches_and_answers(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langgraph")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    agent = import_module("agent")
    monkeypatch.delitem(sys.modules, "agent")
    question = "How many days of annual leave do employees get?"
    call = {"name": "search", "args": {"question": question, "k": 2}, "id": "1"}
    model = ScriptedModel(responses=[AIMessage("", tool_calls=[call]), AIMessage("20 days (leave.md, Annual).")])

    async def ask() -> str:
        async with running.client(tenant="acme") as client:
            return str(await agent.ask(client, model, question))

    assert asyncio.run(ask()) == "20 days (leave.md, Annual)."
    assert {"search", "context", "get_document"} <= set(model.tools)
    result = model.calls[1][-1]
    assert isinstance(result, ToolMessage)
    assert "20 days of paid annual leave" in str(result.content)
    assert "90 paid days" not in str(result.content), "the reader is not of HR"
