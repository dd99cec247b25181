"""What tools give back of long documents, and what they make of values that are not as they should be."""

import asyncio
import uuid
from datetime import UTC, datetime

import pytest
from mcp.server.mcpserver.exceptions import UnexpectedToolError
from pydantic import BaseModel

from kosmos_rag import AsyncEngine, Engine
from kosmos_rag.mcp.results import DocumentText
from kosmos_rag.mcp.server import Server
from kosmos_rag.records import DocumentInfo, DocumentLines
from kosmos_rag.service.app import create_service

MOST = 50_000


def _lines(text: str, *, total: int) -> DocumentLines:
    info = DocumentInfo(
        id=uuid.uuid4(),
        source="long.txt",
        collection="default",
        title="Long",
        media_type="text/plain",
        language="english",
        version=1,
        content_hash="",
        bytes=len(text),
        chunks=1,
        metadata={},
        updated_at=datetime.now(UTC),
    )
    return DocumentLines(
        document=info,
        version_id=uuid.uuid4(),
        text=text,
        start=0,
        line_start=1,
        line_end=1 + text.count("\n"),
        total_lines=total,
        page_start=None,
        page_end=None,
        chunk_ids=(),
    )


@pytest.mark.parametrize(
    ("text", "lines", "cut", "length"),
    [
        ("a" * MOST, (1, 1), False, MOST),
        ("a" * MOST + "\nb", (1, 1), False, MOST),
        ("a" * (MOST - 1) + "\nb", (1, 1), False, MOST - 1),
        ("a" * (MOST + 1) + "\nb", (1, 1), True, MOST),
        ("a\n" + "b" * MOST, (1, 1), False, 1),
        ("a\n" * (MOST // 2) + "b", (1, MOST // 2), False, MOST - 1),
    ],
)
def test_document__is_told_in_whole_lines(text: str, lines: tuple[int, int], cut: bool, length: int) -> None:
    told = DocumentText.of(_lines(text, total=text.count("\n") + 1))
    assert (told.lines, told.cut, len(told.text)) == (lines, cut, length)
    assert told.next_offset == (lines[1] + 1 if text.count("\n") >= lines[1] else None)


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
