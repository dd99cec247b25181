"""Prepare a database by command.

Nothing else ever changes the schema of a server by URL.
"""

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.storage.citus import distribute, preview
from kosmos_rag.storage.database import resolve_addresses
from kosmos_rag.storage.migrate import Migration, migrate
from kosmos_rag.storage.provision import provision


def set_up(settings: DatabaseSettings, revision: str = "head", *, may_drop: bool = True) -> Migration:
    """Provision the database and migrate it to `revision`.

    Args:
        may_drop: whether a downgrade may drop what newer revisions created.

    Raises:
        RequestError: it would be a downgrade, which may not be.
        ConfigError: `database.admin_url` is not set.
        DatabaseUnavailable: no connection to the server.
        DatabaseNotReady: the server or the revision does not fit.
    """
    admin = _administrator(settings)
    provision(admin, app_url=settings.url, worker_url=settings.worker_url)
    return migrate(admin, revision, may_drop=may_drop)


def distribute_tables(settings: DatabaseSettings, *, shards: int | None = None, dry_run: bool = False) -> list[str]:
    """Distribute the tables over the nodes of Citus, and return the statements.

    Distributed tables stay distributed.

    Args:
        shards: shards of each table, the largest number of nodes; None for that of Citus, 32.
        dry_run: run no statement.

    Raises:
        ConfigError: `database.admin_url` is not set.
        DatabaseUnavailable: no connection to the server.
        DatabaseNotReady: Citus, its nodes or the rights of the administrator are missing.
        RequestError: the tables have another number of shards.
    """
    admin = _administrator(settings)
    return preview(admin, shards) if dry_run else distribute(admin, shards)


def _administrator(settings: DatabaseSettings) -> str:
    admin = resolve_addresses(settings).admin
    if admin is None:
        raise ConfigError(
            "database.admin_url is not set, and migrating needs an administrator; "
            "set KOSMOS_DATABASE__ADMIN_URL=postgresql://postgres:…@host/database"
        )
    return admin
