"""Preparing a database by command: the only way in which a server by URL is ever changed."""

from kosmos_rag.config import DatabaseSettings
from kosmos_rag.errors import ConfigError
from kosmos_rag.storage.database import resolve
from kosmos_rag.storage.migrate import Migration, migrate
from kosmos_rag.storage.provision import provision


def set_up(settings: DatabaseSettings, revision: str = "head") -> Migration:
    """Provision the database and migrate it to `revision`.

    Raises ConfigError where the settings name no administrator, DatabaseUnavailable, DatabaseNotReady.
    """
    admin = resolve(settings).admin
    if admin is None:
        raise ConfigError(
            "database.admin_url is not set, and migrating needs an administrator; "
            "set KOSMOS_DATABASE__ADMIN_URL=postgresql://postgres:…@host/database"
        )
    provision(admin, app_url=settings.url, worker_url=settings.worker_url)
    return migrate(admin, revision)
