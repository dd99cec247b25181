"""Queries on a described database by agents."""

import asyncio
from pathlib import Path

import pytest

from kosmos_rag import Settings
from tests.integration.apps.http.serving import Signer
from tests.integration.apps.mcp.running import Running, read_data, read_error, serving
from tests.integration.text2sql.shop import opened_shop

pytestmark = pytest.mark.emptied_database


async def _listed(running: Running, tenant: str) -> set[str]:
    async with running.client(tenant=tenant) as client:
        return {tool.name for tool in (await client.list_tools()).tools}


def test_rows__are_for_agents_of_the_tenant_alone(
    settings: Settings, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened_shop(settings, signer, tmp_path, monkeypatch) as engine, serving(engine, signer) as running:
        query = {
            "sql": "SELECT id, colour FROM goods WHERE colour = :c",
            "database": "shop",
            "parameters": {"c": "red"},
        }
        rows = read_data(running.call("query_database", query))
        assert (rows["columns"], rows["rows"], rows["truncated"]) == (["id", "colour"], [[1, "red"]], False)
        short = read_data(running.call("query_database", query | {"max_tokens": 1}))
        assert (short["rows"], short["truncated"]) == ([], True)
        answer = read_data(running.call("ask_database", {"question": "colours of the goods"}))
        assert answer["result"]["rows"] == [["red"]]
        assert "only SELECT is run" in read_error(running.call("query_database", query | {"sql": "DELETE FROM goods"}))
        assert "sql" in read_error(running.call("query_database", query | {"sql": "x" * 30_000}))
        assert "not enabled" in read_error(running.call("query_database", query, tenant="globex"))
        added = {"query_database", "ask_database"}
        assert added <= asyncio.run(_listed(running, "acme"))
        assert not added & asyncio.run(_listed(running, "globex"))
