"""The preflight of a database that many tests share, once for each role.

It takes the server 35 ms, and a test opens two or three pools. None of these tests changes the catalogue.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage import preflight


@contextmanager
def check_catalogue_once(settings: DatabaseSettings) -> Iterator[None]:
    """Let the pools of a login rely on the first preflight of the database that passed."""
    name = conninfo_to_dict(settings.url)["dbname"]
    require = preflight.require
    passed = set()

    def require_once(connection: psycopg.Connection, expected_role: str) -> None:
        login = (connection.info.user, expected_role)
        if connection.info.dbname != name or login not in passed:
            require(connection, expected_role)
        if connection.info.dbname == name:
            passed.add(login)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preflight, "require", require_once)
        yield
