"""The migrations: up, down and up again over data, and equal to the metadata."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.config import DatabaseSettings
from kosmos_rag.errors import ConfigError, DatabaseNotReady
from kosmos_rag.storage.migrate import head
from kosmos_rag.storage.revision import REVISION
from kosmos_rag.storage.schema import metadata
from kosmos_rag.storage.setup import set_up
from kosmos_rag.testing import HashingEmbedder


def _tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kosmos'").fetchall()
    return {row[0] for row in rows}


def test_head_is_the_revision_that_the_code_expects() -> None:
    assert head() == REVISION


def test_migrate__up_down_and_up_again_over_data(database: DatabaseSettings, settings: Settings) -> None:
    def ingest() -> int:
        with Engine(settings, embedder=HashingEmbedder()) as engine:
            scope = engine.tenant("acme")
            scope.ingest([SourceDocument(source="a", data=b"Some words about churn.")])
            return scope.retrieve("churn").returned

    assert ingest() == 1
    done = set_up(database, "base")
    assert (done.before, done.after) == (REVISION, None)
    assert _tables(database.admin_url or "") == {"alembic_version"}
    done = set_up(database)
    assert (done.before, done.after) == (None, REVISION)
    assert ingest() == 1
    again = set_up(database)
    assert again.before == again.after == REVISION


def test_migrations_add_up_to_the_metadata(database: DatabaseSettings) -> None:
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(database.admin_url or ""), poolclass=NullPool
    )

    def ours(name: str | None, kind: str, parents: dict[str, str | None]) -> bool:
        if kind == "schema":
            return name == "kosmos"
        return not (kind == "table" and name == "alembic_version")

    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_schemas": True, "include_name": ours, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_everything_belongs_to_the_owner(database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        strangers = connection.execute(
            """
            SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'kosmos'::regnamespace
               AND c.relowner <> 'kosmos_owner'::regrole
             UNION ALL
            SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'kosmos'::regnamespace
               AND p.proowner <> 'kosmos_owner'::regrole
            """
        ).fetchall()
    assert strangers == []


def test_migrate__without_an_administrator_says_so(database: DatabaseSettings) -> None:
    with pytest.raises(ConfigError, match=r"database\.admin_url is not set"):
        set_up(database.model_copy(update={"admin_url": None}))


def test_migrate__to_an_unknown_revision_says_so(database: DatabaseSettings) -> None:
    with pytest.raises(DatabaseNotReady, match="cannot migrate to '9999'"):
        set_up(database, "9999")


def test_migrate__over_a_newer_database_says_so(database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute("UPDATE kosmos.alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseNotReady, match=r"revision 9999, unknown to this version; install a newer kosmos-rag"):
        set_up(database)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    repository = Path(__file__).parents[2]
    run = [sys.executable, "-m"]
    subprocess.run(
        [*run, "build", "--wheel", "--no-isolation", "--outdir", folder, repository], check=True, capture_output=True
    )
    wheel = next(folder.glob("kosmos_rag-*.whl"))
    target = folder / "site"
    subprocess.run(
        [*run, "pip", "install", "--quiet", "--no-deps", "--target", target, wheel], check=True, capture_output=True
    )
    return target


def test_migrate__from_an_installed_wheel(installed: Path, empty_database: DatabaseSettings, tmp_path: Path) -> None:
    assert (installed / "kosmos_rag" / "_migrations" / "versions").is_dir()
    assert (installed / "workers" / "ingest.py").is_file()
    script = "import kosmos_rag, kosmos_rag.cli; print(kosmos_rag.__file__, flush=True); kosmos_rag.cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "migrate"],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(installed),
            "KOSMOS_DATABASE__URL": empty_database.url,
            "KOSMOS_DATABASE__ADMIN_URL": empty_database.admin_url or "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed))
    assert f"migrated from an empty database to {REVISION}" in done.stdout
    assert "chunks" in _tables(empty_database.admin_url or "")


def test_two_processes_may_provision_at_once(empty_database: DatabaseSettings) -> None:
    command = [sys.executable, "-m", "kosmos_rag.cli", "migrate", "--set", f"database.url={empty_database.url}"]
    command += ["--set", f"database.admin_url={empty_database.admin_url}"]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
