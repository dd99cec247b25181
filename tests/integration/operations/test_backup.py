"""A backup, by the commands of docs/how-to/restore.md, as a role that policies do not bind; restored elsewhere."""

import os
import re
import subprocess
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import embedded
from kosmos_rag.storage.expected_catalog import TABLES, VERSION
from kosmos_rag.storage.migrate import REVISION
from kosmos_rag.storage.provision import APP, WORKER, create_database
from kosmos_rag.storage.setup import set_up
from tests.integration.operations.filled_tenants import fill, read_hits

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "restore.md").read_text()
# Two servers and all their tables: not in every run.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(os.environ.get("KOSMOS_TEST_DATABASE_URL") or os.environ.get("KOSMOS_TEST_DOCKER")),
        reason="pg_dump has to be of the server's version: that of the embedded one is at hand",
    ),
]


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    utils = embedded._package().utils
    binary = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION] / program
    return subprocess.run([str(binary), *arguments], capture_output=True, text=True, check=False)


def _options(program: str) -> list[str]:
    """The options that the page gives a program, without names of files and databases."""
    (line,) = re.findall(rf"^{program} (.+)$", PAGE, re.MULTILINE)
    return re.findall(r"(?<!\S)--[a-z-]+(?:=[a-z_]+)?(?!\S)", line)


def _as(url: str, role: str) -> str:
    return re.sub(r"//[^@/]*@", f"//{role}@", url)


def _counts(url: str) -> dict[str, dict[str, int]]:
    """Rows by table and tenant, as the administrator sees them."""
    with psycopg.connect(url) as connection:
        return {
            table: {
                str(tenant): count
                for tenant, count in connection.execute(
                    f"SELECT tenant_id, count(*) FROM kosmos.{table} GROUP BY tenant_id"
                )
            }
            for table in TABLES - {VERSION}
        }


@pytest.fixture
def elsewhere(tmp_path: Path) -> DatabaseSettings:
    """A server that has never seen this schema or its roles."""
    server = embedded.start(tmp_path / "elsewhere")
    create_database(server.conninfo("postgres", "postgres"), "restored")
    return DatabaseSettings(
        url=server.conninfo(APP, "restored"),
        worker_url=server.conninfo(WORKER, "restored"),
        admin_url=server.conninfo("postgres", "restored"),
    )


@pytest.fixture
def backup(database: DatabaseSettings) -> str:
    """The address of the role that backs up."""
    return _as(database.admin_url or "", "kosmos_backup")


def test_backup__restored_on_another_server_keeps_tenants_and_readers_apart(
    settings: Settings, backup: str, elsewhere: DatabaseSettings, tmp_path: Path
) -> None:
    admin, copy = settings.database.admin_url or "", elsewhere.admin_url or ""
    fill(settings)
    # In this order: questions are usage, which is stored too.
    result, before = read_hits(settings, "everyone"), _counts(admin)
    dump = str(tmp_path / "kosmos.dump")
    outcome = _run("pg_dump", *_options("pg_dump"), f"--dbname={backup}", f"--file={dump}")
    assert (outcome.returncode, outcome.stderr) == (0, "")

    assert set_up(elsewhere, "base").after is None
    with psycopg.connect(copy) as connection:
        connection.execute("DROP SCHEMA kosmos CASCADE")
    outcome = _run("pg_restore", *_options("pg_restore"), f"--dbname={copy}", dump)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert set_up(elsewhere).before == REVISION

    assert _counts(copy) == before
    assert {table for table, rows in before.items() if len(rows) == 2} >= {
        "documents",
        "embeddings",
        "postings",
        "jobs",
    }
    restored = settings.model_copy(update={"database": elsewhere})
    problems = [check.detail for check in diagnose(restored) if check.name.startswith("role") and not check.ok]
    assert problems == []
    assert read_hits(restored, "everyone") == result
    assert len(result["acme"]) == 20, "what the board may read is not for everyone"
    assert len(read_hits(restored, "everyone", "department:board")["acme"]) == 30
    with psycopg.connect(elsewhere.url) as connection:
        assert connection.execute("SELECT count(*) FROM kosmos.documents").fetchone() == (0,), "no tenant, no rows"
        assert connection.execute("SHOW plan_cache_mode").fetchone() == ("force_custom_plan",)
    with Engine(restored, embedder=HashingEmbedder()) as engine:
        assert {info.kind for info in engine.tenant("acme").indexes.status()} >= {"segment", "ivfflat"}
        assert engine.tenant("other").ingest(SourceDocument(source="new", data=b"goes on")).new == 1


@pytest.mark.parametrize("role", [APP, "kosmos_dumper"])
def test_backup__is_refused_to_a_role_that_would_leave_rows_out(role: str, settings: Settings, tmp_path: Path) -> None:
    """pg_dump asks for all rows or an error; the second role may read every table, and is bound by the policies."""
    admin = settings.database.admin_url or ""
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("CREATE ROLE kosmos_dumper LOGIN; GRANT pg_read_all_data TO kosmos_dumper")
    try:
        result = _run(
            "pg_dump", *_options("pg_dump"), f"--dbname={_as(admin, role)}", f"--file={tmp_path / 'kosmos.dump'}"
        )
    finally:
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute("DROP ROLE kosmos_dumper")
    assert result.returncode != 0
    assert "row-level security" in result.stderr or "permission denied" in result.stderr
