"""The two statements of a search without a transaction: what the caller concludes from their rows."""

import uuid
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, SourceDocument
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import changed

READER: dict[str, Any] = {"principals": [EVERYONE], "collection": None, "texts": ["margin"], "weights": [1.0]}


def _read_overview(connection: psycopg.Connection, tenant_id: uuid.UUID) -> dict[str, Any] | None:
    row = connection.execute(statement("search_state_of_reader"), {**READER, "tenant_id": tenant_id}).fetchone()
    assert row is not None
    overview: dict[str, Any] | None = row[0]["overview"]
    return overview


def test_state__has_an_overview_of_each_tenant_that_the_statement_has_found(engine: Engine, tenant_name: str) -> None:
    """A node of Citus that does not have the tenant finds no overview: so such a state is known to be wrong."""
    tenant_id = tenant(tenant_name).id
    with engine.database.app.connection(tenant_id) as connection:
        assert _read_overview(connection, tenant_id) is None
        engine.tenant(tenant_name).ingest([SourceDocument(source="a", data=b"The margin.", acl=("board",))])
        hidden = _read_overview(connection, tenant_id)
        engine.tenant(tenant_name).delete(["a"])
        without_documents = _read_overview(connection, tenant_id)
    assert hidden is not None
    assert without_documents is not None
    assert [(row["chunks_unfiltered"], row["chunks"]) for row in hidden["collections"]] == [(1, None)]
    assert without_documents["collections"] is None, "deleted collections would be read by each search"


def test_passages__come_before_their_states(engine: Engine, tenant_name: str) -> None:
    tenant_id, scope = tenant(tenant_name).id, engine.tenant(tenant_name)
    scope.ingest([SourceDocument(source="a", data=b"The margin.")])
    (hit,) = scope.search("margin").hits

    def read(connection: psycopg.Connection) -> tuple[list[Any], dict[str, str]]:
        values = {**READER, "tenant_id": tenant_id, "chunk_ids": [hit.chunk_id, uuid.uuid4()]}
        *passages, last = connection.execute(statement("passages_of_reader"), values).fetchall()
        assert {row[0] for row in passages} == {None}
        assert set(last[1:]) == {None}
        return passages, last[0]

    with engine.database.app.connection(tenant_id) as connection:
        passages, states = read(connection)
        scope.ingest([SourceDocument(source="b", data=b"The leave.")], prune=False)
        _, later = read(connection)
    assert [row[1] for row in passages] == [hit.chunk_id]
    assert states.keys() == later.keys() == {hit.collection}
    assert later[hit.collection] != states[hit.collection]


@pytest.mark.parametrize("use_nodes", [False, True])
def test_pool__sends_them_to_a_server_that_distributes_nothing(
    engine: Engine, tenant_name: str, use_nodes: bool
) -> None:
    with Engine(changed(engine.settings, {"database.use_nodes": use_nodes}), embedder=engine.embedder) as opened:
        assert opened.tenant(tenant_name).search("margin").hits == ()
        assert opened.database.app.sets_reader_in_statement
