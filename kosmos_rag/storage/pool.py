"""Connections: where the server is, one pool a role, and the tenant transaction that every statement runs in."""

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import psycopg
from pgvector.psycopg import register_vector
from psycopg import IsolationLevel
from psycopg_pool import ConnectionPool, PoolTimeout

from kosmos_rag.core.config import EMBEDDED, DatabaseSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.telemetry.metrics import POOL_CONNECTIONS, POOL_WAIT_SECONDS, POOL_WAITING
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.storage import embedded, preflight
from kosmos_rag.storage.binary import register_arrays
from kosmos_rag.storage.errors import translated
from kosmos_rag.storage.migrate import migrate
from kosmos_rag.storage.provision import APP, WORKER, create_database, provision
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True, slots=True)
class Addresses:
    """Connection strings of the three identities. `worker` and `admin` are None where the settings lack them."""

    app: str
    worker: str | None
    admin: str | None


def resolve(settings: DatabaseSettings) -> Addresses:
    """Return where to connect as whom; starts the embedded server where the settings say `embedded`.

    An embedded server without our schema is provisioned and migrated here, so that a first use needs no command.
    A server by URL never is: there `kosmos-rag migrate` is a decision of its operator.
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
    with translated(), psycopg.connect(conninfo) as connection:
        return connection.execute(statement("schema_exists")).fetchone() == (True,)


def _configure(connection: psycopg.Connection) -> None:
    register_vector(connection)
    register_arrays(connection)
    # Statements are planned for their values (see provision.py), and a pooler in transaction mode may stand between.
    connection.prepare_threshold = None
    connection.rollback()


def _configure_reader(connection: psycopg.Connection) -> None:
    _configure(connection)
    # One snapshot for the whole retrieval: a document published between its two rounds changes nothing in it.
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = True


_TRIES_FOR_S = 2.0


class Role:
    """A pool of connections that log in as one role. Opened, and the catalogue checked, on first use. Thread-safe."""

    def __init__(self, conninfo: str, *, role: str, settings: DatabaseSettings) -> None:
        self._conninfo = conninfo
        self._role = role
        self._settings = settings
        self._lock = threading.Lock()
        self._ready = False
        self._pool = ConnectionPool(
            conninfo,
            min_size=1,
            max_size=settings.pool_size,
            timeout=settings.connect_timeout_s,
            kwargs=self._connect_arguments(),
            configure=_configure_reader if role == APP else _configure,
            check=ConnectionPool.check_connection,
            # Tries to connect wait twice as long each time, and nobody else tries meanwhile: after a long absence the
            # server would be back for as long again before it is noticed. Given up, the next who asks tries at once.
            reconnect_timeout=_TRIES_FOR_S,
            open=False,
        )

    def _connect_arguments(self) -> dict[str, object]:
        return {
            "connect_timeout": max(2, round(self._settings.connect_timeout_s)),
            "options": f"-c statement_timeout={self._settings.statement_timeout_ms}"
            f" -c idle_in_transaction_session_timeout={self._settings.idle_transaction_timeout_ms}",
            "application_name": "kosmos-rag",
            # A peer that has gone without a word is found out in a minute, and not when the kernel gives up.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
        }

    def state(self) -> preflight.ServerState:
        """Look at server, role and catalogue over a connection of its own. Raises DatabaseUnavailable."""
        with translated(), psycopg.connect(self._conninfo, **self._connect_arguments()) as connection:  # type: ignore[arg-type]  # a dict of mixed values
            return preflight.inspect(connection, self._role)

    def _open(self) -> None:
        with self._lock:
            if self._ready:
                return
            # Connected by hand first: a pool would retry a wrong password until its timeout, and hide the reason.
            with translated(), psycopg.connect(self._conninfo, **self._connect_arguments()) as connection:  # type: ignore[arg-type]  # a dict of mixed values
                preflight.require(connection, self._role)
            self._pool.open()
            self._ready = True

    @contextmanager
    def transaction(
        self, tenant_id: uuid.UUID, principals: Sequence[str], *, appends: bool = False
    ) -> Iterator[psycopg.Connection]:
        """Open a transaction in which row-level security shows this tenant and these principals, nothing else.

        Statements of a reader travel in a pipeline: sent as they come, and waited for when a result is fetched. One
        that `appends` is for a reader to write to the log: what it wrote is on disk when the transaction has ended.
        Raises DatabaseUnavailable, DatabaseNotReady, StatementFailed.
        """
        if not self._ready:
            self._open()
        # A read is a few statements known beforehand; a write needs each answer for the next, and sends megabytes.
        waiting = nullcontext if self._role == WORKER else psycopg.Connection.pipeline
        with translated(), self._borrowed() as connection, waiting(connection), connection.transaction():
            if appends:
                connection.execute(statement("set_append_transaction"))
                connection.execute(statement("set_synchronous_commit"))
            connection.execute(
                statement("set_tenant_context"), {"tenant_id": tenant_id, "principals": list(principals)}
            )
            yield connection

    @contextmanager
    def queue(self) -> Iterator[psycopg.Connection]:
        """Open a transaction in which no tenant is entered: a worker sees the queue, and no row of anything else.

        Raises DatabaseUnavailable, DatabaseNotReady, StatementFailed.
        """
        if not self._ready:
            self._open()
        with translated(), self._borrowed() as connection, connection.transaction():
            yield connection

    @contextmanager
    def queue_at_once(self) -> Iterator[psycopg.Connection]:
        """Open a connection on which each statement is such a transaction by itself: one round trip.

        Raises DatabaseUnavailable, DatabaseNotReady, StatementFailed.
        """
        if not self._ready:
            self._open()
        with translated(), self._borrowed() as connection:
            connection.autocommit = True
            try:
                yield connection
            finally:
                if not connection.closed:
                    connection.autocommit = False

    @contextmanager
    def _borrowed(self) -> Iterator[psycopg.Connection]:
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(self._pool.connection())
            except PoolTimeout:
                # All in use, or the server gone? A pool does not tell; a connection of our own says why it fails.
                psycopg.connect(self._conninfo, **self._connect_arguments()).close()  # type: ignore[arg-type]  # mixed
                raise
            yield connection

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """Open a connection of its own, outside transactions: for what a session holds, such as an advisory lock.

        Raises DatabaseUnavailable, DatabaseNotReady.
        """
        if not self._ready:
            self._open()
        with translated(), psycopg.connect(self._conninfo, autocommit=True, **self._connect_arguments()) as connection:  # type: ignore[arg-type]  # a dict of mixed values
            yield connection

    def tell(self, telemetry: Telemetry) -> None:
        """Have it watched how the connections are used."""

        def number(name: str) -> int:
            return self._pool.get_stats().get(name, 0)

        def used() -> int:
            return max(0, number("pool_size") - number("pool_available"))

        telemetry.gauge(POOL_CONNECTIONS, used, self._role, "used")
        telemetry.gauge(POOL_CONNECTIONS, lambda: number("pool_available"), self._role, "idle")
        telemetry.gauge(POOL_WAITING, lambda: number("requests_waiting"), self._role)
        telemetry.gauge(POOL_WAIT_SECONDS, lambda: number("requests_wait_ms") / 1000, self._role)

    def close(self) -> None:
        """Close the connections; the role cannot be used afterwards."""
        self._pool.close()


class Database:
    """The two roles that the library works as: the app role reads, the worker role writes."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self._addresses = resolve(settings)
        self.app = Role(self._addresses.app, role=APP, settings=settings)
        self._worker = Role(self._addresses.worker, role=WORKER, settings=settings) if self._addresses.worker else None

    @property
    def worker(self) -> Role:
        """The role that writes. Raises ConfigError where the settings give no way to log in as it."""
        if self._worker is None:
            raise ConfigError(
                f"database.worker_url is not set, and writing needs the role {WORKER}; "
                "set KOSMOS_DATABASE__WORKER_URL=postgresql://kosmos_worker:…@host/database"
            )
        return self._worker

    def urls(self) -> dict[str, str | None]:
        """Return the addresses in use, by their keys in the settings: an embedded server's too."""
        addresses = self._addresses
        return {"url": addresses.app, "worker_url": addresses.worker, "admin_url": addresses.admin}

    @property
    def admin_conninfo(self) -> str:
        """Where to connect as the administrator. Raises ConfigError where the settings do not say."""
        if self._addresses.admin is None:
            raise ConfigError(
                "database.admin_url is not set, and building a vector index needs an administrator; "
                "set KOSMOS_DATABASE__ADMIN_URL=postgresql://postgres:…@host/database, or indexes.vector=none"
            )
        return self._addresses.admin

    def tell(self, telemetry: Telemetry) -> None:
        """Have it watched how the connections of each role are used."""
        for role in (self.app, self._worker):
            if role is not None:
                role.tell(telemetry)

    def close(self) -> None:
        """Close both pools."""
        self.app.close()
        if self._worker is not None:
            self._worker.close()
