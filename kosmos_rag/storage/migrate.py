"""Run migrations by command.

They are the revisions of alembic, in the repository or in the installed package. The functions of the database come
from files of their own after the revisions (storage/functions.py).
"""

import logging
import re
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kosmos_rag.core.errors import DatabaseNotReady, KosmosError, RequestError, StatementFailed
from kosmos_rag.core.extras import require_extra
from kosmos_rag.storage.errors import translate_errors
from kosmos_rag.storage.functions import POLICY_FUNCTIONS, apply_functions, drop_functions
from kosmos_rag.storage.sql import statement

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from sqlalchemy import Connection
    from sqlalchemy import Engine as SqlEngine

_LOG = logging.getLogger(__name__)

SCHEMA = "kosmos"
BASELINE = "0100"
"""The first revision. No release migrates what development before 0.1.0 left, whose revisions end at 0024."""

REVISION = "0115"
"""The newest revision in migrations/, which the code needs. A test keeps the two equal."""

BREAKING: tuple[str, ...] = ("0101", "0103", "0104")
"""Revisions that change or drop what older code uses: older code cannot serve from them. The others only add."""


_BLOCKED = frozenset({"55P03", "40P01"})
"""States of a statement that waited too long for a lock, or was in a deadlock."""
_ATTEMPTS, _PAUSE_S = 100, 1.0
"""How often a migration begins, and how long others go first before the next time."""
_STILL_BLOCKED = (
    "other transactions used the tables at each of {} attempts, and nothing was changed ({}); pg_stat_activity names "
    "the oldest: let backups and maintenance end, and run it again"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Migration:
    """The revision before and after a migration; None for an empty database."""

    before: str | None
    after: str | None
    functions: tuple[str, ...] = ()
    """Names of the functions that were created, replaced or dropped."""


def describe_older_line(revision: str) -> str | None:
    """Return what to do if a revision is older than the baseline."""
    if revision >= BASELINE:
        return None
    return (
        f"revision {revision} is older than release 0.1.0 and cannot be migrated; keep a backup, "
        "create a new database and ingest the sources again (docs/how-to/upgrade.md)"
    )


def script_location() -> Path:
    """Return the folder of the revisions."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise KosmosError(f"there are no migrations in or next to {package}; install kosmos-rag again")


@cache
def list_columns() -> dict[str, tuple[str, ...]]:
    """Return the columns of each table, as the migrations make them."""
    text = (script_location() / "schema.sql").read_text(encoding="utf-8")
    tables = re.findall(r"^CREATE TABLE kosmos\.(\w+) \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    return {table: tuple(re.findall(r"^    ([a-z]\w*) ", body, re.MULTILINE)) for table, body in tables}


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    return config


def head() -> str:
    """Return the newest revision of the migrations on disk."""
    from alembic.script import ScriptDirectory

    revision = ScriptDirectory.from_config(_config()).get_current_head()
    if revision is None:
        raise KosmosError(f"no revision in {script_location()}")
    return revision


def knows(revision: str) -> bool:
    """Return True for a revision that this version can migrate from."""
    from alembic.script import ScriptDirectory

    return any(entry.revision == revision for entry in ScriptDirectory.from_config(_config()).walk_revisions())


def _current(connection: "Connection") -> str | None:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection, opts={"version_table_schema": SCHEMA}).get_current_revision()


def migrate(admin_conninfo: str, revision: str = "head", *, may_drop: bool = True) -> Migration:
    """Upgrade or downgrade the database to `revision`.

    One transaction as kosmos_owner: afterwards the database is at `revision`, or unchanged. An upgrade brings the
    functions to their files; a downgrade leaves them to the older code.

    Everybody waits for a table behind a migration that waits for it. So it waits two seconds for a table that another
    transaction uses, lets the others pass, and begins again, a hundred times.

    Args:
        revision: `head`, `base` or a revision.
        may_drop: whether a downgrade may drop what newer revisions created.

    Raises:
        RequestError: it would be a downgrade, which may not be.
        DatabaseNotReady: this version of the code does not know the revision.
        DatabaseUnavailable: no connection to the server.
        StatementFailed: the server refused a statement of a revision.
    """
    require_extra("migrate", "migrating a database", "alembic", "sqlalchemy")
    import psycopg
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(admin_conninfo), poolclass=NullPool)
    attempt = 0
    while True:
        attempt += 1
        try:
            return _migrate_once(engine, revision, may_drop=may_drop)
        except StatementFailed as error:
            if error.sqlstate not in _BLOCKED:
                raise
            if attempt >= _ATTEMPTS:
                raise StatementFailed(_STILL_BLOCKED.format(_ATTEMPTS, error), sqlstate=error.sqlstate) from error
            _LOG.warning(
                "%s; others go first, and the migration begins again", error, extra={"action": "migration_blocked"}
            )
            time.sleep(_PAUSE_S)


def _migrate_once(engine: "SqlEngine", revision: str, *, may_drop: bool) -> Migration:
    from alembic.util import CommandError
    from sqlalchemy import text
    from sqlalchemy.exc import DBAPIError

    with translate_errors("database.admin_url"), engine.begin() as connection:
        try:
            connection.execute(text(statement("lock_provisioning")))
            connection.execute(text(statement("limit_lock_waits")))
            connection.execute(text(statement("set_owner_role")))
            connection.execute(text(statement("set_sequential_mode")))
            before = _current(connection)
            functions = _run(connection, revision, before, may_drop=may_drop)
            if (after := _current(connection)) is not None:
                connection.exec_driver_sql(_comment(after))
        except CommandError as error:
            raise DatabaseNotReady(
                [f"cannot migrate to {revision!r}: {error}; name head, base or a revision"]
            ) from error
        except DBAPIError as error:
            # SQLAlchemy wraps errors of the driver, and `translate_errors` knows those of the driver.
            raise (error.orig or error) from error
        return Migration(before=before, after=after, functions=functions)


def _run(connection: "Connection", revision: str, before: str | None, *, may_drop: bool) -> tuple[str, ...]:
    """Run revisions, apply functions, and return the names of changed functions."""
    from alembic import command
    from alembic.script import ScriptDirectory

    config = _config()
    config.attributes["connection"] = connection
    script = ScriptDirectory.from_config(config)
    if before is not None and before not in {entry.revision for entry in script.walk_revisions()}:
        unknown = f"the database is at revision {before}, unknown to this version; install a newer kosmos-rag"
        raise DatabaseNotReady([describe_older_line(before) or unknown])
    is_downgrade = before is not None and _is_older(script, revision, before)
    if is_downgrade and not may_drop:
        raise RequestError(
            f"the database is at revision {before}: a downgrade to {revision} drops the tables of newer revisions with "
            "their data; write a backup, and add --yes"
        )
    driver = connection.connection.driver_connection
    assert driver is not None
    if revision == "base":
        drop_functions(driver, keep=POLICY_FUNCTIONS)
        command.downgrade(config, revision)
        drop_functions(driver)
        return ()
    if is_downgrade:
        command.downgrade(config, revision)
        return ()
    of_policies = apply_functions(driver, POLICY_FUNCTIONS)
    command.upgrade(config, revision)
    return tuple(sorted({*of_policies, *apply_functions(driver)}))


def _comment(revision: str) -> str:
    """Return the statement that stores the oldest compatible revision.

    Code of that revision can serve from this one.
    """
    oldest = max((candidate for candidate in BREAKING if candidate <= revision), default=None)
    return f"COMMENT ON TABLE {SCHEMA}.alembic_version IS {'NULL' if oldest is None else repr(oldest)}"


def _is_older(script: "ScriptDirectory", revision: str, current: str) -> bool:
    if revision in {"head", current}:
        return False
    return revision == "base" or any(entry.revision == revision for entry in script.iterate_revisions(current, "base"))
