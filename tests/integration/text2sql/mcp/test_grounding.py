"""Schema grounding by agents."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.text2sql.catalog.sources import from_json
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from tests.integration.apps.mcp.running import Running, read_data, read_error

SCHEMA = Path(__file__).parents[4] / "examples" / "schema" / "programs.json"

pytestmark = pytest.mark.usefixtures("tenant_name")


def test_ground_schema__names_what_a_question_needs(running: Running) -> None:
    running.tenant().collections.create("schema", preset="schema")
    SchemaGrounding(running.tenant(collection="schema")).build(from_json(SCHEMA))
    arguments = {"question": "What is the success count for the forest fire program", "max_tokens": 5000}
    result = read_data(running.call("ground_schema", arguments))
    assert "ProgramStatistics.success_count" in {ref["name"] for ref in result["schema_refs"]}
    assert "program_statistics" in result["prompt"]
    assert read_data(running.call("ground_schema", arguments, tenant=running.other_name))["tables"] == []
    assert "none" in read_error(running.call("ground_schema", {"question": "a", "database": "none"}))


async def _list_names(running: Running, **claims: Any) -> tuple[set[str], int]:
    async with running.client(**claims) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        return tools, len((await client.list_prompts()).prompts)


def test_ground_schema__is_listed_where_there_is_a_schema(running: Running) -> None:
    reading = {"search", "context", "get_document"}
    scope = running.engine.tenant(running.other_name, collection="schema")
    running.engine.tenant(running.other_name).collections.create("schema", preset="schema")
    assert asyncio.run(_list_names(running, tenant=running.other_name)) == (reading, 2), "the collection is empty"
    SchemaGrounding(scope).build(from_json(SCHEMA))
    assert asyncio.run(_list_names(running, tenant=running.other_name)) == (reading | {"ground_schema"}, 2)
    running.engine.tenant(running.other_name).delete("theirs.md")
    assert asyncio.run(_list_names(running, tenant=running.other_name)) == ({"ground_schema"}, 0)
