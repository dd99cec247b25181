"""What tools give back of long documents, and what they make of invalid values."""

import asyncio

import pytest
from mcp.server.mcpserver.exceptions import UnexpectedToolError
from pydantic import BaseModel

from kosmos_rag import AsyncEngine, Engine
from kosmos_rag.apps.http.app import create_service
from kosmos_rag.apps.mcp.schemas import DocumentText
from kosmos_rag.apps.mcp.server import Server
from tests.document_lines import lines_of

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
    result = DocumentText.from_record(lines_of(text))
    assert (result.lines, result.truncated, len(result.text)) == (lines, truncated, length)
    assert result.next_offset == (lines[1] + 1 if text.count("\n") >= lines[1] else None)


def test_crash__over_a_value_of_ours_is_not_laid_at_the_door_of_the_agent(engine: Engine) -> None:
    class Ours(BaseModel):
        number: int

    def crashes() -> int:
        return Ours.model_validate({"number": "none"}).number

    async def call() -> None:
        server = Server(create_service(AsyncEngine(engine)), lambda _: None)  # type: ignore[arg-type,return-value]
        server.add_tool(crashes)
        await server.call_tool("crashes", {})

    with pytest.raises(UnexpectedToolError) as failed:
        asyncio.run(call())
    assert "arguments" not in str(failed.value)
