"""A backup of a cluster is restored into another database of the cluster, with the rows of all nodes."""

import os
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.backup import back_up, restore
from kosmos_rag.storage.citus import DISTRIBUTED
from kosmos_rag.storage.setup import distribute_tables, set_up
from tests.citus.load import SMALL_INDEXES, tenants_by_port
from tests.citus.nodes import add_nodes, new_database
from tests.integration.variants import changed


def _counts(database: DatabaseSettings) -> dict[str, int]:
    with psycopg.connect(database.admin_url or "") as connection:
        return {
            table: (connection.execute(f"SELECT count(*) FROM kosmos.{table}").fetchone() or (0,))[0]
            for table in DISTRIBUTED
        }


def test_backup_of_a_cluster__is_restored_and_distributed(
    cluster: DatabaseSettings, loaded_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (programs := os.environ.get("KOSMOS_TEST_CITUS_BIN")):
        pytest.skip("pg_dump has to be of the server's version: KOSMOS_TEST_CITUS_BIN has it")
    monkeypatch.setenv("PATH", programs, prepend=os.pathsep)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(Path(programs).parent / "lib"))

    def settings(database: DatabaseSettings) -> Settings:
        return changed(loaded_settings, {"database": database, **SMALL_INDEXES})

    file = tmp_path / "kosmos.dump"
    admin = cluster.admin_url or ""
    with new_database(admin) as (original, members):
        add_nodes(original, members)
        set_up(original)
        distribute_tables(original)
        with Engine(settings(original), embedder=HashingEmbedder()) as engine:
            names = list(tenants_by_port(engine).values())
            for name in names:
                engine.tenant(name).ingest(
                    SourceDocument(source=f"d{n}", data=f"The margin of number{n}.".encode()) for n in range(20)
                )
                engine.tenant(name).indexes.build()
        before = _counts(original)
        assert before["documents"] == 40
        back_up(original, file)
    with new_database(admin) as (copy, members):
        add_nodes(copy, members)
        restoration = restore(copy, file)
        assert (restoration.tenants, restoration.before) == (2, restoration.after)
        assert _counts(copy) == before
        assert distribute_tables(copy) == []
        with Engine(settings(copy), embedder=HashingEmbedder()) as engine:
            for name in names:
                assert engine.tenant(name).search("number7").hits[0].source == "d7"
                engine.tenant(name).ingest([SourceDocument(source="new", data=b"The invoice of a quarter.")])
                assert engine.tenant(name).search("invoice").hits[0].source == "new"
