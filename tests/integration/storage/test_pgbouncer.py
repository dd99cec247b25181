"""PgBouncer in transaction mode, which gives each transaction another session of the server."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseUnavailable
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.provision import APP, WORKER
from tests.conftest import Server
from tests.integration.variants import changed
from tests.pgbouncer import find_pgbouncer, running_pgbouncer

_LOCKS = """
SELECT count(*) FROM pg_locks
 WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_SNAPSHOTS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND state = 'idle in transaction' AND backend_xmin IS NOT NULL
"""
RunPooler = Callable[..., AbstractContextManager[DatabaseSettings]]
pytestmark = pytest.mark.own_database


@pytest.fixture
def pooled(database: DatabaseSettings, server: Server, tmp_path: Path) -> RunPooler:
    """Return what runs a PgBouncer of these settings, and gives the database by way of it."""
    folder = server.folder
    if folder is None or find_pgbouncer() is None:
        pytest.skip("the server is no embedded one, or pgbouncer is not installed")
    address = conninfo_to_dict(server.admin)
    name = conninfo_to_dict(database.admin_url or "")["dbname"]
    (tmp_path / "users").write_text("".join(f'"{role}" ""\n' for role in (APP, WORKER)))

    @contextmanager
    def run(**settings: object) -> Iterator[DatabaseSettings]:
        with running_pgbouncer(
            tmp_path,
            {"auth_type": "trust", "auth_file": tmp_path / "users", **settings},
            server=f"host={address['host']} port={address['port']}",
            url=f"postgresql://{APP}@127.0.0.1:{{port}}/{name}?sslmode=disable",
            user=(folder / "data").stat().st_uid,
        ) as port:
            app, worker = (f"postgresql://{role}@127.0.0.1:{port}/{name}?sslmode=disable" for role in (APP, WORKER))
            yield database.model_copy(update={"url": app, "worker_url": worker})

    return run


def test_maintenance__leaves_no_lock_with_another_client(settings: Settings, pooled: RunPooler) -> None:
    segmented = changed(settings, {"indexes.unsegmented_chunks": 1, "indexes.vector": "none"})
    with (
        pooled() as database,
        psycopg.connect(database.worker_url or "") as other,
        psycopg.connect(database.admin_url or "", autocommit=True) as admin,
        Engine(segmented.model_copy(update={"database": database}), embedder=HashingEmbedder()) as engine,
    ):
        steps = []

        def use_a_session(step: str) -> None:
            steps.append(step)
            assert admin.execute(_SNAPSHOTS).fetchone() == (0,)
            other.execute("SELECT 1")  # in a transaction that goes on: the session is the other client's until then

        scope = engine.tenant("acme")
        scope.ingest(SourceDocument(source="a.txt", data=b"some words"))
        scope.indexes.build(use_a_session)
        assert steps
        assert admin.execute(_LOCKS).fetchone() == (0,)
        scope.indexes.rebuild()


def test_pooler__that_refuses_start_up_parameters_is_told_from_a_server(settings: Settings, pooled: RunPooler) -> None:
    with (
        pooled(ignore_startup_parameters="") as database,
        Engine(settings.model_copy(update={"database": database}), embedder=HashingEmbedder()) as engine,
        pytest.raises(DatabaseUnavailable, match="ignore_startup_parameters = options"),
    ):
        engine.tenant("acme").search("words")
