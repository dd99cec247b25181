"""The database of an engine: addresses, and a pool for each role."""

import math
from dataclasses import dataclass
from functools import partial

from kosmos_rag.core.config import EMBEDDED, DatabaseSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.telemetry.metrics import REPLICA_LAG_SECONDS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.storage import embedded
from kosmos_rag.storage.errors import connect_administrator
from kosmos_rag.storage.migrate import migrate
from kosmos_rag.storage.node_pools import NodePools
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.provision import APP, WORKER, create_database, describe_administrator, provision
from kosmos_rag.storage.replicas import ReplicaPool, Replicas
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True, slots=True)
class Addresses:
    """Connection strings of the three roles.

    `worker` and `admin` are None without a setting.
    """

    app: str
    worker: str | None
    admin: str | None


def resolve_addresses(settings: DatabaseSettings) -> Addresses:
    """Return the connection strings; start the embedded server for `database.url: embedded`.

    An embedded server without the schema is provisioned and migrated here: its first use needs no command.
    A server by URL is never migrated here: its operator decides when to run `kosmos-rag migrate`.
    """
    if settings.url != EMBEDDED:
        return Addresses(app=settings.url, worker=settings.worker_url, admin=settings.admin_url)
    server = embedded.start(settings.resolved_data_dir)
    addresses = Addresses(app=server.conninfo(APP), worker=server.conninfo(WORKER), admin=server.conninfo("postgres"))
    create_database(server.conninfo("postgres", "postgres"), embedded.DATABASE)
    if not _has_schema(server.conninfo("postgres")):
        provision(server.conninfo("postgres"))
        migrate(server.conninfo("postgres"))
    return addresses


def _has_schema(conninfo: str) -> bool:
    with connect_administrator(conninfo) as connection:
        return connection.execute(statement("schema_exists")).fetchone() == (True,)


def _create_pool(conninfo: str, role: str, settings: DatabaseSettings) -> ConnectionPool:
    pool = ConnectionPool(conninfo, role=role, settings=settings)
    if settings.use_nodes:
        pool.router = NodePools(pool, conninfo, settings=settings)
    return pool


def _read_lag(replica: ReplicaPool) -> float:
    return math.nan if replica.lag_s is None else replica.lag_s


class Database:
    """Connection pools of both roles: the app role reads, the worker writes."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self._settings = settings
        self._addresses = resolve_addresses(settings)
        self.app = _create_pool(self._addresses.app, APP, settings)
        self._replicas: Replicas | None = None
        if settings.replica_urls:
            self._replicas = Replicas(self.app, self._addresses.app, settings.replica_urls, settings)
            self.app.replicas = self._replicas
        self._worker = (
            None if self._addresses.worker is None else _create_pool(self._addresses.worker, WORKER, settings)
        )

    def open_reader_pool(self, *, size: int) -> ConnectionPool:
        """Return one more pool of the app role.

        Its work does not wait for that of `app`. The caller closes it.
        """
        settings = self._settings.model_copy(update={"pool_size": size})
        return _create_pool(self._addresses.app, APP, settings)

    @property
    def worker(self) -> ConnectionPool:
        """Return the pool of the worker role, which writes.

        Raises:
            ConfigError: `database.worker_url` is not set.
        """
        if self._worker is None:
            raise ConfigError(
                f"database.worker_url is not set, and writing needs the role {WORKER}; "
                "set KOSMOS_DATABASE__WORKER_URL=postgresql://kosmos_worker:…@host/database"
            )
        return self._worker

    def urls(self) -> dict[str, str | None]:
        """Return the connection strings by settings key.

        Those of an embedded server too.
        """
        addresses = self._addresses
        return {"url": addresses.app, "worker_url": addresses.worker, "admin_url": addresses.admin}

    @property
    def admin_conninfo(self) -> str:
        """Return the connection string of the administrator.

        Raises:
            ConfigError: `database.admin_url` is not set.
        """
        if self._addresses.admin is None:
            raise ConfigError(
                "database.admin_url is not set, and building a vector index needs an administrator; "
                "set KOSMOS_DATABASE__ADMIN_URL=postgresql://postgres:…@host/database, or indexes.vector=none"
            )
        return self._addresses.admin

    def describe_administrator(self) -> str:
        """Return who the administrator is, and whether it may migrate.

        Raises ConfigError, DatabaseNotReady where roles are missing, DatabaseUnavailable.
        """
        return describe_administrator(self.admin_conninfo)

    def require_superuser(self) -> str:
        """Return the connection string of an administrator who may rewrite files.

        Raises ConfigError where none is set, and for a role without the right.
        """
        if (admin := self._addresses.admin) is not None:
            with connect_administrator(admin) as connection:
                if connection.info.parameter_status("is_superuser") == "on":
                    return admin
        raise ConfigError(
            "to rewrite the files of the database needs a superuser in database.admin_url, which most providers do not "
            "give; erase without --purge, and ask how long your provider keeps the log of the server (docs/erasure.md)"
        )

    def attach(self, telemetry: Telemetry) -> None:
        """Report the use of both pools as gauges."""
        for pool in (self.app, self._worker):
            if pool is not None:
                pool.attach(telemetry)
        for replica in self.replicas():
            telemetry.gauge(REPLICA_LAG_SECONDS, partial(_read_lag, replica), replica.address)

    def replicas(self) -> tuple[ReplicaPool, ...]:
        """Return the pools of `database.replica_urls`."""
        return () if self._replicas is None else self._replicas.pools

    def measure_replicas(self) -> tuple[ReplicaPool, ...]:
        """Return the pools of replicas after a measurement of their lag.

        One that is behind takes seconds.
        """
        if self._replicas is not None:
            self._replicas.measure_until_known()
        return self.replicas()

    def close(self) -> None:
        """Close both pools, and those of nodes with them."""
        self.app.close()
        if self._worker is not None:
            self._worker.close()
