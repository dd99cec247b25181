"""Documents and sections as resources, prompts, and what a caller without documents sees."""

import asyncio
import json
import uuid
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import EmbeddedResource, TextContent, TextResourceContents

from kosmos_rag import SourceDocument
from kosmos_rag.apps.mcp import resources
from tests.integration.apps.mcp.conftest import DOCUMENTS
from tests.integration.apps.mcp.running import Running
from tests.integration.apps.mcp.test_http import NOT_FOUND

pytestmark = pytest.mark.usefixtures("tenant_name")


async def _listed(running: Running, **claims: Any) -> list[tuple[str, str]]:
    async with running.client(**claims) as client:
        pairs, cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            pairs += [(resource.name, str(resource.uri)) for resource in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                return pairs


async def _read(running: Running, uri: str, **claims: Any) -> TextResourceContents:
    async with running.client(**claims) as client:
        (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content


def test_documents__are_listed_page_by_page_as_the_caller_may_read_them(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_PAGE", 2)
    more = [SourceDocument(source=f"more-{n}.md", data=f"Text {n}.".encode()) for n in range(3)]
    running.tenant().ingest(more)
    names = [name for name, _ in asyncio.run(_listed(running))]
    assert names == ["leave.md", "more-0.md", "more-1.md", "more-2.md"]
    assert ("secret.md" in dict(asyncio.run(_listed(running, departments=["hr"]))), len(names)) == (True, 4)
    assert asyncio.run(_listed(running, tenant="nobody")) == []
    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(_bad_cursor(running))
    assert failed.group_contains(MCPError, match="cursor")


async def _bad_cursor(running: Running) -> None:
    async with running.client() as client:
        await client.list_resources(cursor="x")


def test_document__is_read_whole_from_a_line_on_and_by_sections(running: Running) -> None:
    (uri,) = [uri for name, uri in asyncio.run(_listed(running)) if name == "leave.md"]
    text = DOCUMENTS[0].data.decode()
    whole = asyncio.run(_read(running, uri))
    assert whole.text == text
    assert whole.meta is not None
    assert "kosmos-rag/next_offset" not in whole.meta
    assert not whole.meta["kosmos-rag/truncated"]
    assert asyncio.run(_read(running, f"{uri}?offset=5")).text == "\n".join(text.split("\n")[4:])
    parts = "".join(f"## Part {n}\n\n{'Leave of the part number ' + str(n) + ' is paid. ' * 20}\n\n" for n in range(3))
    running.tenant().ingest(SourceDocument(source="parts.md", data=f"# Parts\n\n{parts}".encode()))
    long = dict(asyncio.run(_listed(running)))["parts.md"]
    sections = json.loads(asyncio.run(_read(running, f"{long}/sections")).text)
    assert [section["section"][-1] for section in sections] == ["Part 0", "Part 1", "Part 2"]
    for section, word in zip(sections, ("number 0", "number 1", "number 2"), strict=True):
        read = asyncio.run(_read(running, section["uri"]))
        assert word in read.text
        assert read.meta is not None
        assert read.meta["kosmos-rag/lines"] == section["lines"]
    running.tenant().ingest(SourceDocument(source="leave.md", data=b"# New\n\nAnother text.\n"))
    assert asyncio.run(_read(running, uri)).text == "# New\n\nAnother text.\n"


def test_read__tells_nothing_of_what_is_kept_from_the_caller(running: Running) -> None:
    """Resources of MCP show each caller only documents that the caller may read."""
    hidden = dict(asyncio.run(_listed(running, departments=["hr"])))["secret.md"]
    assert "90 paid days" in asyncio.run(_read(running, hidden, departments=["hr"])).text
    foreign = dict(asyncio.run(_listed(running, tenant=running.other_name)))["theirs.md"]
    messages = set()

    async def read_all() -> None:
        async with running.client() as client:
            for uri in (hidden, foreign, resources.document_uri(uuid.uuid4())):
                for path in ("", "/sections", "/sections/1"):
                    with pytest.raises(MCPError) as failed:
                        await client.read_resource(f"{uri}{path}")
                    messages.add(failed.value.error.message)
            for uri in ("kosmos://documents/x", f"{hidden}/pages", "file:///etc/passwd", f"{hidden}?offset=x"):
                with pytest.raises(MCPError, match="is no resource"):
                    await client.read_resource(uri)
            assert {template.name for template in (await client.list_resource_templates()).resource_templates} == {
                "document",
                "sections",
                "section",
            }

    asyncio.run(read_all())
    assert messages == {NOT_FOUND}


def test_prompts__bring_the_evidence_that_the_caller_may_read(running: Running) -> None:
    """Prompts of MCP contain only evidence that the caller may read."""

    async def ask(**claims: Any) -> tuple[list[str], str, Any]:
        async with running.client(**claims) as client:
            names = [prompt.name for prompt in (await client.list_prompts()).prompts]
            question = {"question": "How many days of paid annual leave do employees receive?"}
            (answer,) = (await client.get_prompt("cited_answer", question)).messages
            uri = next(str(item.uri) for item in (await client.list_resources()).resources if item.name == "leave.md")
            summary = await client.get_prompt("summarize_document", {"document_id": uri.rpartition("/")[2]})
            for name, arguments in (("none", {}), ("cited_answer", {}), ("summarize_document", {"document_id": "x"})):
                with pytest.raises(MCPError):
                    await client.get_prompt(name, arguments)
            assert isinstance(answer.content, TextContent)
            return names, answer.content.text, summary.messages[1].content

    names, text, document = asyncio.run(ask())
    assert names == ["cited_answer", "summarize_document"]
    assert "20 days" in text
    assert "90 paid days" not in text
    assert isinstance(document, EmbeddedResource)
    assert isinstance(document.resource, TextResourceContents)
    assert document.resource.text == DOCUMENTS[0].data.decode()
    assert "90 paid days" in asyncio.run(ask(departments=["hr"]))[1]


async def _names(running: Running, **claims: Any) -> tuple[set[str], int]:
    async with running.client(**claims) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        return tools, len((await client.list_prompts()).prompts)


def test_tools_without_use__are_not_listed(running: Running) -> None:
    reading = {"search", "context", "get_document"}
    assert asyncio.run(_names(running)) == (reading, 2), "no schema, and no language model"
    assert asyncio.run(_names(running, tenant="nobody")) == (set(), 0)
