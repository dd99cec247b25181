"""The preflight of databases whose catalogue no test changes, once for each role.

All of them are copies of one template. A preflight takes the server 35 ms, and a test opens two or three pools.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage import preflight

_UNCHANGED: set[str] = set()
"""Names of the databases."""


@contextmanager
def rely_on_first_check() -> Iterator[None]:
    """Let the pools of a login rely on the first preflight of such a database that passed."""
    require = preflight.require
    passed = set()

    def require_once(connection: psycopg.Connection, expected_role: str) -> None:
        login = (connection.info.user, expected_role)
        is_unchanged = connection.info.dbname in _UNCHANGED
        if not is_unchanged or login not in passed:
            require(connection, expected_role)
        if is_unchanged:
            passed.add(login)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preflight, "require", require_once)
        yield


@contextmanager
def check_catalogue_once(settings: DatabaseSettings) -> Iterator[None]:
    """Say of a copy of the template, for the time of a block, that no test changes its catalogue."""
    name = str(conninfo_to_dict(settings.url)["dbname"])
    _UNCHANGED.add(name)
    yield
    _UNCHANGED.remove(name)
