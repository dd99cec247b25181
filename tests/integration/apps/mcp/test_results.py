"""What tools give back of long documents, and what they make of invalid values."""

import asyncio

import pytest
from mcp_types import CallToolRequestParams, CallToolResult
from pydantic import BaseModel

from kosmos_rag import AsyncEngine, Engine
from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.apps.http.toolkit.service import create_service
from kosmos_rag.apps.mcp import budget
from kosmos_rag.apps.mcp.registry import Tool
from kosmos_rag.apps.mcp.schemas import DocumentText
from kosmos_rag.apps.mcp.server import Handlers
from tests.document_lines import build_lines
from tests.integration.apps.mcp.running import read_error

MOST = 50_000


@pytest.mark.parametrize(
    ("text", "lines", "truncated", "length"),
    [
        ("a" * MOST, (1, 1), False, MOST),
        ("a" * MOST + "\nb", (1, 1), False, MOST),
        ("a" * (MOST - 1) + "\nb", (1, 1), False, MOST - 1),
        ("a" * (MOST + 1) + "\nb", (1, 1), True, MOST),
        ("a\n" + "b" * MOST, (1, 1), False, 1),
        ("a\n" * (MOST // 2) + "b", (1, MOST // 2), False, MOST - 1),
    ],
)
def test_document__is_told_in_whole_lines(text: str, lines: tuple[int, int], truncated: bool, length: int) -> None:
    result = DocumentText.from_record(build_lines(text))
    assert (result.lines, result.line_truncated, len(result.text)) == (lines, truncated, length)
    assert result.truncated == (len(text) > MOST)
    assert result.next_offset == (lines[1] + 1 if text.count("\n") >= lines[1] else None)


@pytest.mark.usefixtures("tenant_name")
def test_crash__over_a_value_of_ours_is_not_laid_at_the_door_of_the_agent(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    class Ours(BaseModel):
        number: int

    async def crashes(caller: Caller, max_tokens: int | None = None) -> dict[str, int]:
        return {"number": Ours.model_validate({"number": "none"}).number}

    async def call() -> CallToolResult:
        tool = Tool.from_method(crashes, is_useful=lambda _: True, shorten=budget.shorten_search)
        identity = Identity(tenant="acme", subject="a", principals=("everyone",), scopes=frozenset({"read"}))
        handlers = Handlers(create_service(AsyncEngine(engine)), lambda _: identity, (tool,))
        return await handlers.call_tool(None, CallToolRequestParams(name="crashes"))  # type: ignore[arg-type]

    assert read_error(asyncio.run(call())) == "Something went wrong"
    assert any("crashes failed" in record.message for record in caplog.records)
