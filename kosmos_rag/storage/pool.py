"""Connection pools and the tenant transaction."""

import logging
import select
import threading
import time
import uuid
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar, Protocol, cast

import psycopg
import psycopg_pool
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.sparsevec import register_sparsevec_info
from psycopg import IsolationLevel
from psycopg.abc import PQGen
from psycopg.pq.abc import PGconn
from psycopg.types import TypeInfo
from psycopg.types.json import set_json_loads
from psycopg.waiting import Ready, Wait
from pydantic_core import from_json

from kosmos_rag.core.config import EMBEDDED, DatabaseSettings
from kosmos_rag.core.errors import DatabaseUnavailable, KosmosError, first_line
from kosmos_rag.core.telemetry import metrics
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.storage import embedded, preflight
from kosmos_rag.storage.binary import array_literal, register_arrays
from kosmos_rag.storage.errors import translate_errors
from kosmos_rag.storage.events import EventBuffer, record_events
from kosmos_rag.storage.placement import cluster_nodes, is_distributed
from kosmos_rag.storage.provision import APP, WORKER
from kosmos_rag.storage.sql import statement

_REGISTER = {"halfvec": register_halfvec_info, "sparsevec": register_sparsevec_info}
"""Register the vectors of Python as parameters and results of a type."""


def _configure(connection: psycopg.Connection) -> None:
    connection.autocommit = True
    # One round trip, where `register_vector` of pgvector takes a transaction for each type.
    for info in connection.execute(statement("vector_types")).fetchall():
        _REGISTER[info[0]](connection, TypeInfo(*info[:3], regtype=info[3], delimiter=info[4]))
    connection.autocommit = False
    register_arrays(connection)
    set_json_loads(from_json, connection)
    # Statements are planned for their values (see provision.py), and a pooler in transaction mode keeps no statements.
    connection.prepare_threshold = None


def _configure_reader(connection: psycopg.Connection) -> None:
    _configure(connection)
    # For `Connection.transaction`; a transaction in a pipeline begins with a statement of its own (tenant.sql).
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    connection.autocommit = True


def flush(connection: psycopg.Connection) -> None:
    """Send what a pipeline holds back, so that the server works while the client continues.

    `execute` sends what the socket takes: of a large parameter the rest would wait for the next call.
    """
    connection.wait(_flush(connection.pgconn))


def _flush(pgconn: PGconn) -> PQGen[None]:
    while pgconn.flush():
        # It may have results to send before it reads on.
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()


_LOG = logging.getLogger(__name__)

_RECONNECT_TIMEOUT_S = 2.0
_NUDGE_S = 0.05
_REFUSED_PAUSE_S = 0.5


def check(connection: psycopg.Connection) -> None:
    """Raise OperationalError if the server has closed the connection.

    A server says so, which makes the socket readable. Only then is it asked, which takes a round trip.
    """
    socket = select.poll()  # `select.select` refuses descriptors above 1023
    socket.register(connection, select.POLLIN)
    if socket.poll(0):
        psycopg_pool.ConnectionPool.check_connection(connection)


class Router(Protocol):
    """Connects to the server that holds a tenant."""

    def checkout(self, tenant_id: uuid.UUID) -> AbstractContextManager[psycopg.Connection]:
        """Check out a connection to the server of a tenant."""

    def close(self) -> None:
        """Close all connections."""


class ReplicaChooser(Protocol):
    """Chooses a server for each reader."""

    def pick(self, reader: str) -> "ConnectionPool":
        """Return the pool of a server for a reader."""

    def close(self) -> None:
        """Close all connections to replicas."""


class _Connector:
    """Connects for the pool of psycopg, whose first connection may exist already."""

    def __init__(self) -> None:
        self._checked: list[psycopg.Connection] = []
        self._failure: tuple[float, psycopg.OperationalError] | None = None

    def keep(self, connection: psycopg.Connection) -> None:
        """Keep a connection for the next call of `connect`."""
        self._checked.append(connection)

    def connect(self, conninfo: str, **arguments: Any) -> psycopg.Connection:
        """Return the connection that is kept, or a new one."""
        with suppress(IndexError):  # another thread may be faster
            return self._checked.pop()
        try:
            return psycopg.connect(conninfo, **arguments)
        except psycopg.OperationalError as error:
            self._failure = time.monotonic(), error
            raise

    def find_failure(self, within_s: float) -> psycopg.OperationalError | None:
        """Return the last failure of `connect`, if it is recent."""
        if self._failure is not None and time.monotonic() - self._failure[0] <= within_s:
            return self._failure[1]
        return None

    def close(self) -> None:
        """Close the connection that is kept."""
        while self._checked:
            self._checked.pop().close()


class ConnectionPool:
    """Pool connections that log in as one role. Thread-safe.

    The first use opens the pool and checks the catalogue (preflight).
    """

    _min_size: ClassVar[int] = 1
    """Connections that stay open without use."""
    _replaces_closed: ClassVar[bool] = True
    """Whether a call waits for a new connection where the server has closed an idle one."""
    record_events = staticmethod(record_events)

    def __init__(self, conninfo: str, *, role: str, settings: DatabaseSettings) -> None:
        self.role = role
        self._conninfo = conninfo
        self._setting = "database.worker_url" if role == WORKER else "database.url"
        self._settings = settings
        self._lock = threading.Lock()
        self._reconnecting = threading.Lock()
        self._ready = False
        self._is_distributed = False
        self.router: Router | None = None
        """Connects to the node of a tenant; None where one server has all tenants. It is closed with the pool."""
        self.replicas: ReplicaChooser | None = None
        """Chooses a replica for searches; None without replicas. It is closed with the pool."""
        self._connector = _Connector()
        self._pool = psycopg_pool.ConnectionPool(
            conninfo,
            connection_class=cast("type[psycopg.Connection]", self._connector),
            min_size=self._min_size,
            max_size=settings.pool_size,
            timeout=settings.connect_timeout_s,
            kwargs=self._connect_arguments(),
            configure=_configure_reader if role == APP else _configure,
            check=check if self._replaces_closed else None,
            # The pool doubles its pause between attempts, and no caller tries meanwhile: after a long outage it would
            # notice the server as late again. With this limit the pool gives up, and the next caller tries at once.
            # An embedded server that is gone does not come back by itself.
            reconnect_timeout=0.0 if settings.url == EMBEDDED else _RECONNECT_TIMEOUT_S,
            reconnect_failed=self._reconnect if settings.url == EMBEDDED else None,
            open=False,
        )

    def _connect_arguments(self) -> dict[str, Any]:
        return {
            "connect_timeout": max(2, round(self._settings.connect_timeout_s)),
            "options": f"-c statement_timeout={self._settings.statement_timeout_ms}"
            f" -c idle_in_transaction_session_timeout={self._settings.idle_transaction_timeout_ms}",
            "application_name": "kosmos-rag",
            # A peer that vanished is detected within a minute, and not when the kernel gives up.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
        }

    def _connect(self) -> psycopg.Connection:
        """Return a connection outside the pool, also to an embedded server that was killed."""
        try:
            return psycopg.connect(self._conninfo, **self._connect_arguments())
        except psycopg.OperationalError:
            if self._settings.url != EMBEDDED:
                raise
            self._restart_server()
            return psycopg.connect(self._conninfo, **self._connect_arguments())

    def _restart_server(self) -> None:
        """Start the killed embedded server again: no other process may be there to do it."""
        try:
            was_lost = embedded.restart(self._settings.resolved_data_dir)
        except KosmosError as error:
            _LOG.warning("%s", error, extra={"action": "embedded_server_failed"})
        else:
            if was_lost:
                action = "embedded_server_restarted"
                _LOG.warning("the embedded server was gone and runs again", extra={"action": action})

    def _reconnect(self, _pool: object) -> None:
        """Connect for those who wait, after the pool has given up.

        The pool calls this in one of its threads, and connects for them when the next one asks. An embedded server that
        runs and refuses, as one with too many clients does, would be asked without a pause.
        """
        if not self._reconnecting.acquire(blocking=False):
            return
        try:
            if embedded.is_running(self._settings.resolved_data_dir):
                time.sleep(_REFUSED_PAUSE_S)
            if not embedded.is_running(self._settings.resolved_data_dir):
                self._restart_server()
            elif not self._pool.get_stats().get("requests_waiting"):
                return
        finally:
            self._reconnecting.release()
        with suppress(psycopg.OperationalError):
            self._pool.putconn(self._pool.getconn(timeout=_NUDGE_S))

    def inspect(self) -> preflight.ServerState:
        """Check server, role, catalogue and nodes on a connection of its own.

        Raises:
            DatabaseUnavailable: no connection to the server.
        """
        with translate_errors(self._setting), self._connect() as connection:
            return replace(preflight.inspect(connection, self.role), nodes=cluster_nodes(connection))

    def pick_reader(self, *reader: Hashable) -> "ConnectionPool":
        """Return the pool for reads of a reader that may be a few seconds old.

        It is this one where there is no replica that can be used. The same values return the same server.
        """
        return self if self.replicas is None else self.replicas.pick(str(reader))

    @property
    def sets_reader_in_statement(self) -> bool:
        """Whether a statement outside transactions can set the reader.

        The coordinator of Citus sends the settings of a transaction to a node, and none without one.
        """
        return self.router is not None or not self._is_distributed

    def _open(self) -> None:
        with self._lock:
            if self._ready:
                return
            # A plain connection first: a pool would retry a wrong password until its timeout, and hide the reason.
            with translate_errors(self._setting), ExitStack() as stack:
                connection = stack.enter_context(closing(self._connect()))
                preflight.require(connection, self.role)
                self._is_distributed = is_distributed(connection)
                connection.rollback()
                stack.pop_all()
            self._connector.keep(connection)
            self._pool.open()
            self._ready = True

    @contextmanager
    def transaction(
        self, tenant_id: uuid.UUID, principals: Sequence[str], *, append_only: bool = False, on_node: bool = False
    ) -> Iterator[psycopg.Connection]:
        """Open a transaction for one tenant and its principals.

        Statements of the app role travel in a pipeline: they are sent at once, and a fetch waits for its result.

        Args:
            tenant_id: tenant whose rows row-level security shows.
            principals: principals of the reader; the worker role sees the rows of all principals.
            append_only: for the app role to append to the audit log; its rows are on disk after the commit.
            on_node: the worker role needs no queue in it, so it may be on the tenant's node; the app role never does.

        Raises:
            DatabaseUnavailable: no connection to the server.
            DatabaseNotReady: the preflight refuses the server, the role or the catalogue.
            StatementFailed: the server refused a statement.
        """
        if not self._ready:
            self._open()
        # A read is a few statements known beforehand; a write needs each result for the next one, and sends megabytes.
        # psycopg itself waits in a pipeline for BEGIN, and in `Connection.transaction` before COMMIT and after it.
        pipelined = self.role != WORKER
        opened = psycopg.Connection.pipeline if pipelined else psycopg.Connection.transaction
        # The coordinator numbers the events of the audit log.
        router = self.router if not append_only and (on_node or self.role == APP) else None
        checkout = self.checkout() if router is None else router.checkout(tenant_id)
        with translate_errors(self._setting), checkout as connection, opened(connection):
            if pipelined:
                connection.execute(statement("begin_append") if append_only else statement("begin_read"))
            if append_only:
                connection.execute(statement("set_synchronous_commit"))
            connection.execute(
                statement("set_tenant_context"), {"tenant_id": tenant_id, "principals": array_literal(principals)}
            )
            yield connection
            if pipelined:
                connection.execute(statement("commit"))

    @contextmanager
    def transaction_with_events(
        self, tenant_id: uuid.UUID, principals: Sequence[str]
    ) -> Iterator[tuple[psycopg.Connection, EventBuffer]]:
        """Open a transaction as `transaction` does, and write the events of the block last."""
        with self.transaction(tenant_id, principals) as connection, record_events(connection, tenant_id) as events:
            yield connection, events

    @contextmanager
    def connection(self, tenant_id: uuid.UUID) -> Iterator[psycopg.Connection]:
        """Check out a connection for statements that set the reader themselves.

        Each of them is a transaction of its own, and one round trip.

        Args:
            tenant_id: The tenant of the reader.

        Raises DatabaseUnavailable, DatabaseNotReady, StatementFailed.
        """
        if not self._ready:
            self._open()
        checkout = self.checkout() if self.router is None else self.router.checkout(tenant_id)
        with translate_errors(self._setting), checkout as connection:
            yield connection

    @staticmethod
    @contextmanager
    def begin_read(connection: psycopg.Connection, tenant_id: uuid.UUID, principals: Sequence[str]) -> Iterator[None]:
        """Open a read-only transaction of a reader.

        The connection is of the app role, and outside transactions.
        Its statements travel in a pipeline.

        Args:
            connection: What `connection` returned.
        """
        values = {"tenant_id": tenant_id, "principals": array_literal(principals)}
        with connection.pipeline():
            connection.execute(statement("begin_read"))
            connection.execute(statement("set_tenant_context"), values)
            yield
            connection.execute(statement("commit"))

    @contextmanager
    def untenanted(self) -> Iterator[psycopg.Connection]:
        """Open a transaction without a tenant.

        The worker role sees the queue and nothing else.

        Raises DatabaseUnavailable, DatabaseNotReady, StatementFailed.
        """
        if not self._ready:
            self._open()
        with translate_errors(self._setting), self.checkout() as connection, connection.transaction():
            yield connection

    @contextmanager
    def autocommit(self) -> Iterator[psycopg.Connection]:
        """Check out a connection in autocommit mode, without a tenant.

        Each statement is one round trip.

        Raises DatabaseUnavailable, DatabaseNotReady, StatementFailed.
        """
        if not self._ready:
            self._open()
        with translate_errors(self._setting), self.checkout() as connection:
            before, connection.autocommit = connection.autocommit, True
            try:
                yield connection
            finally:
                if not connection.closed:
                    connection.autocommit = before

    @contextmanager
    def checkout(self) -> Iterator[psycopg.Connection]:
        """Check out a connection, outside transactions."""
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(self._pool.connection())
            except psycopg_pool.PoolTimeout as timeout:
                # The pool does not say whether all connections are in use or the server is gone; a plain one does.
                self._connect().close()
                if failure := self._connector.find_failure(self._settings.connect_timeout_s):
                    raise DatabaseUnavailable(
                        f"no free connection to PostgreSQL: it refused one a moment ago ({first_line(failure)}) and "
                        "answers again; try again"
                    ) from timeout
                raise
            yield connection

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """Open a dedicated connection outside transactions, for a lock or for notifications.

        Raises DatabaseUnavailable, DatabaseNotReady.
        """
        if not self._ready:
            self._open()
        with (
            translate_errors(self._setting),
            psycopg.connect(self._conninfo, autocommit=True, **self._connect_arguments()) as connection,
        ):
            yield connection

    def attach(self, telemetry: Telemetry) -> None:
        """Report the use of the pool as gauges."""

        def number(name: str) -> int:
            return self._pool.get_stats().get(name, 0)

        def count_used() -> int:
            return max(0, number("pool_size") - number("pool_available"))

        telemetry.gauge(metrics.POOL_CONNECTIONS, count_used, self.role, "used")
        telemetry.gauge(metrics.POOL_CONNECTIONS, lambda: number("pool_available"), self.role, "idle")
        telemetry.gauge(metrics.POOL_WAITING, lambda: number("requests_waiting"), self.role)
        telemetry.gauge(metrics.POOL_WAIT_SECONDS, lambda: number("requests_wait_ms") / 1000, self.role)

    def close(self) -> None:
        """Close all connections; the pool cannot be used afterwards."""
        for opened in (self.router, self.replicas):
            if opened is not None:
                opened.close()
        self._pool.close()
        self._connector.close()
