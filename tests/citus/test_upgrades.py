"""A database becomes a distributed one: empty, with data and an index in place, and beside every migration."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.citus import DISTRIBUTED
from kosmos_rag.storage.migrate import REVISION
from kosmos_rag.storage.setup import distribute_tables, set_up
from tests.citus.load import SMALL_INDEXES
from tests.citus.nodes import Node, add_nodes, new_database
from tests.integration.variants import changed
from tests.revisions import add_revision


@pytest.fixture
def empty(cluster: DatabaseSettings) -> Iterator[tuple[DatabaseSettings, list[Node]]]:
    """A database of all nodes, without the extension; the roles have passwords already."""
    with new_database(cluster.admin_url or "") as result:
        yield result


def _documents() -> list[SourceDocument]:
    return [SourceDocument(source=f"d{n}", data=f"The margin of quarter {n} is number{n}.".encode()) for n in range(30)]


def _rows_of_coordinator(connection: psycopg.Connection) -> dict[str, int]:
    """Bytes of each distributed table in the coordinator's own file."""
    sizes = {}
    for table in DISTRIBUTED:
        row = connection.execute(
            "SELECT sum(pg_relation_size(relid))::bigint FROM pg_partition_tree(%s::regclass) WHERE isleaf",
            [f"kosmos.{table}"],
        ).fetchone()
        assert row is not None
        sizes[table] = row[0]
    return sizes


def test_data_from_before__is_moved_whole_and_goes_on_through_all_migrations(
    empty: tuple[DatabaseSettings, list[Node]],
    loaded_settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database, members = empty
    set_up(database)
    settings = changed(loaded_settings, {"database": database, **SMALL_INDEXES})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest(_documents())
        engine.tenant("acme").indexes.build()
        before = [hit.source for hit in engine.tenant("acme").search("number7 margin", 10).hits]
    add_nodes(database, members)
    set_up(database)
    assert distribute_tables(database)
    assert distribute_tables(database) == []
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        assert not any(_rows_of_coordinator(connection).values())

        def hits(**more: Any) -> list[str]:
            with Engine(changed(settings, more), embedder=HashingEmbedder()) as engine:
                return [hit.source for hit in engine.tenant("acme").search("number7 margin", 10).hits]

        assert hits() == before
        assert hits(**{"database.use_nodes": True}) == before
        # A later revision runs on distributed tables, in both directions, and so does a change of functions.
        assert set_up(database, add_revision(tmp_path, monkeypatch)).before == REVISION
        set_up(database, REVISION)
        connection.execute("DROP FUNCTION kosmos.matches_filter(kosmos.documents, text, jsonb, text[], text[])")
        connection.execute("ALTER FUNCTION kosmos.visible_principals(text[]) VOLATILE")
        assert set_up(database, REVISION).functions == ("matches_filter", "visible_principals")
        distribute_tables(database)
        assert distribute_tables(database) == []
        assert hits() == before
        with Engine(settings, embedder=HashingEmbedder()) as engine:
            assert engine.tenant("acme").delete([f"d{n}" for n in range(30)]) == 30
            assert engine.tenant("acme").search("margin").hits == ()
        assert connection.execute("SELECT count(*) FROM kosmos.chunks").fetchone() == (0,)
