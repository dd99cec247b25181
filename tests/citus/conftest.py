"""A distributed server by KOSMOS_TEST_CITUS_URL, an administrator's address of its coordinator.

Without it no test of this folder is collected.
Its database is migrated and distributed here, and stays so. Each test has tenants of its own.
"""

import os
import uuid
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.provision import APP, WORKER
from kosmos_rag.storage.setup import distribute_tables, set_up
from tests.conftest import PASSWORD, Server


@pytest.fixture(scope="session")
def cluster() -> DatabaseSettings:
    """The distributed database, with all three roles."""
    url = os.environ["KOSMOS_TEST_CITUS_URL"]
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
