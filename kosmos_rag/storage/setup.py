"""Preparing a database by command: the only way in which a server by URL is ever changed."""

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.storage.citus import distribute, preview
from kosmos_rag.storage.migrate import Migration, migrate
from kosmos_rag.storage.pool import resolve
from kosmos_rag.storage.provision import provision


def set_up(settings: DatabaseSettings, revision: str = "head") -> Migration:
    """Provision the database and migrate it to `revision`.

    Raises ConfigError where the settings name no administrator, DatabaseUnavailable, DatabaseNotReady.
    """
    admin = _administrator(settings)
    provision(admin, app_url=settings.url, worker_url=settings.worker_url)
    return migrate(admin, revision)


def spread(settings: DatabaseSettings, *, dry_run: bool = False) -> list[str]:
    """Distribute the tables of a migrated database over the nodes of Citus; returns the statements.

    What is distributed stays so. With `dry_run` nothing is run. Raises ConfigError, DatabaseUnavailable,
    DatabaseNotReady.
    """
    admin = _administrator(settings)
    return preview(admin) if dry_run else distribute(admin)


def _administrator(settings: DatabaseSettings) -> str:
    admin = resolve(settings).admin
    if admin is None:
        raise ConfigError(
            "database.admin_url is not set, and migrating needs an administrator; "
            "set KOSMOS_DATABASE__ADMIN_URL=postgresql://postgres:…@host/database"
        )
    return admin
