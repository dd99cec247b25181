"""A cluster that is started here, from the programs in KOSMOS_TEST_CITUS_BIN, or one by KOSMOS_TEST_CITUS_URL.

The second is an administrator's address of its coordinator; its servers are not stopped. Without both no test of this
folder is collected. The database is migrated and distributed here, and stays so. Each test has tenants of its own.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from benchmarks.citus_cluster import LocalCluster, citus_cluster
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.provision import APP, OWNER, WORKER
from kosmos_rag.storage.setup import distribute_tables, set_up
from tests.conftest import PASSWORD, Server


@pytest.fixture(scope="session")
def servers() -> Iterator[LocalCluster | None]:
    """The servers that are started here, with passwords between them; None for those by URL."""
    if not (folder := os.environ.get("KOSMOS_TEST_CITUS_BIN")):
        yield None
        return
    passwords = dict.fromkeys(("postgres", OWNER, APP, WORKER), PASSWORD)
    with citus_cluster(Path(folder), passwords=passwords) as started:
        started.create_database("kosmos")
        yield started


@pytest.fixture
def local(servers: LocalCluster | None, cluster: DatabaseSettings) -> Iterator[LocalCluster]:
    """Servers that a test may stop; those that are down at its end are started again."""
    if servers is None:
        pytest.skip("servers are stopped only where KOSMOS_TEST_CITUS_BIN starts them")
    yield servers
    for node in servers.nodes:
        node.ensure_started()


@pytest.fixture(scope="session")
def cluster(servers: LocalCluster | None) -> DatabaseSettings:
    """The distributed database, with all three roles."""
    url = os.environ["KOSMOS_TEST_CITUS_URL"] if servers is None else servers.url("postgres", "kosmos")
    settings = Server(admin=url).settings(urlsplit(url).path.lstrip("/"))
    set_up(settings)
    with psycopg.connect(url, autocommit=True) as connection:
        for role in (APP, WORKER):
            connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(PASSWORD)))
    distribute_tables(settings)
    return settings


@pytest.fixture
def database(cluster: DatabaseSettings) -> DatabaseSettings:
    """In place of a database of the test's own: `settings` and `engine` are over the distributed one."""
    return cluster


@pytest.fixture
def name() -> str:
    """A tenant that no other test has."""
    return f"tenant-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def other_name() -> str:
    """Another one; with 32 shards most likely on another of them."""
    return f"tenant-{uuid.uuid4().hex[:12]}"
