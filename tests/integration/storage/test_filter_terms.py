"""The terms of filters follow the documents, whatever changes these."""

import json
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Filter, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import PERMISSION_FEED
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import changed

STORED = """
    SELECT t.document_id, array_agg(t.term ORDER BY t.term), min(t.acl)
      FROM kosmos.filter_terms t
     WHERE t.tenant_id = %s
     GROUP BY t.document_id
"""
EXPECTED = """
    SELECT d.id, array_agg(t.term ORDER BY t.term), d.acl
      FROM kosmos.documents d,
           unnest(kosmos.hash_fields(jsonb_build_object('metadata', d.metadata, 'acl', d.acl))) AS t (term)
     WHERE d.tenant_id = %s
     GROUP BY d.id, d.acl
"""


def _document(number: int, **options: object) -> SourceDocument:
    fields = {"n": number, "parity": ("even", "odd")[number % 2], "tags": ["a", {"deep": [number, 1.50]}]} | options
    return SourceDocument(
        source=f"page-{number}", data=f"churn report {number}".encode(), metadata=fields, acl=(PERMISSION_FEED,)
    )


def _require_equal(database: DatabaseSettings, name: str, documents: int) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        tenant_id = tenant(name).id
        stored = sorted(connection.execute(STORED, [tenant_id]).fetchall())
        assert stored == sorted(connection.execute(EXPECTED, [tenant_id]).fetchall())
    assert len(stored) == documents


def test_terms__follow_publication_metadata_permissions_and_deletion(
    engine: Engine, database: DatabaseSettings, tenant_name: str, tmp_path: Path
) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest([_document(number) for number in range(12)])
    _require_equal(database, tenant_name, 12)
    scope.ingest([_document(number, stage="new", n=str(number)) for number in range(3, 9)])
    _require_equal(database, tenant_name, 12)
    assert scope.update_metadata(["page-1", "page-2"], {"parity": None, "stage": ["b", 2.0]}) == 2
    _require_equal(database, tenant_name, 12)
    feed = tmp_path / "feed.jsonl"
    rows = [{"container": "space", "principals": ["ann"]}, {"document": "page-4", "containers": ["space"]}]
    feed.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert scope.sync_permissions({"kind": "json_lines", "name": "wiki", "path": str(feed)}).changed == 1
    _require_equal(database, tenant_name, 12)
    assert scope.delete(["page-4", "page-5"]) == 2
    _require_equal(database, tenant_name, 10)


@pytest.fixture
def indexed(settings: Settings) -> Engine:
    overrides = {"indexes.vector_min_chunks": 1, "rag.retrieval.similarity_threshold": -1.0}
    return Engine(changed(settings, overrides), embedder=HashingEmbedder())


def test_document__of_more_values_than_terms_is_found(
    indexed: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    with indexed:
        scope = indexed.tenant(tenant_name)
        documents = [
            SourceDocument(source=f"page-{size}", data=f"churn of {size}".encode(), metadata={"n": list(range(size))})
            for size in (10, 400)
        ]
        scope.ingest(documents)
        scope.indexes.build()
        with psycopg.connect(database.admin_url or "") as connection:
            query = "SELECT count(*), min(term) FROM kosmos.filter_terms WHERE tenant_id = %s GROUP BY document_id"
            assert sorted(connection.execute(query, [tenant(tenant_name).id]).fetchall())[0] == (1, 0)
        for number, sources in ((5, {"page-10", "page-400"}), (300, {"page-400"}), (400, set())):
            for where in ({"metadata.n": number}, {"metadata.n": number, "metadata.m": {"$exists": False}}):
                hits = scope.search("churn", filter=Filter(where=where)).hits
                assert {hit.source for hit in hits} == sources


def test_terms__of_others_are_hidden_from_a_reader(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    metadata = {"n": 1}
    engine.tenant(tenant_name).ingest(
        [SourceDocument(source=name, data=b"churn", metadata=metadata, acl=(name,)) for name in ("ann", "ben")]
    )
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT kosmos.set_tenant_context(%s, %s)", [tenant(tenant_name).id, ["ann"]])
        rows = connection.execute("SELECT acl FROM kosmos.filter_terms").fetchall()
    assert rows == [(["ann"],)] * 2
