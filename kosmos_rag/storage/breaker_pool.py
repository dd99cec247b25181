"""Pool connections to one of several servers, with a circuit breaker.

While the server is down, calls fail at once. So threads that serve the tenants of other servers are not blocked.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import psycopg_pool

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import NodeUnavailable, first_line
from kosmos_rag.storage.pool import ConnectionPool, check

log = logging.getLogger(__name__)

_RETRY_S = 1.0
"""Seconds between two attempts to reach a server that is down."""
_PATIENCE_S = 1.0
"""Seconds that a call waits for a free connection before it asks whether the server answers at all."""
_CONNECT_TIMEOUT_S = 2
"""The minimum of libpq. Longer than a connection within a data centre takes."""


class BreakerPool(ConnectionPool):
    """Pool connections to one server; refuse calls while it is down.

    A closed or a silent connection makes the next call try a new one. If that fails, the breaker opens: calls raise
    NodeUnavailable at once, and a thread tries the server until it answers. There is no preflight, because that of the
    main server holds for the others.
    """

    _min_size = 0  # of many servers, most are not used now
    _replaces_closed = False  # the caller is not to wait: see `_enter`

    def __init__(self, conninfo: str, *, role: str, settings: DatabaseSettings, name: str, consequence: str) -> None:
        """Create the pool, without a connection.

        Args:
            role: That the connections log in as.
            settings: Limits of the connections.
            name: Of the server in messages: node db2:5432 of the cluster.
            consequence: What its loss means for other calls, for messages.
        """
        super().__init__(conninfo, role=role, settings=settings)
        self._name, self._consequence = name, consequence
        self._failure: NodeUnavailable | None = None
        self._is_suspect = True
        self._probing = threading.Lock()
        self._is_closed = threading.Event()

    @property
    def is_down(self) -> bool:
        """Whether calls are refused now."""
        return self._failure is not None

    @contextmanager
    def checkout(self) -> Iterator[psycopg.Connection]:
        """Check out a connection, outside transactions. Raises NodeUnavailable."""
        if not self._ready:
            self._open()
        with ExitStack() as stack:
            connection = self._enter(stack)
            try:
                yield connection
            except psycopg.OperationalError as error:
                if not connection.closed:
                    raise
                self._is_suspect = True
                raise self._create_error(error) from error

    def close(self) -> None:
        """Close all connections; the pool cannot be used afterwards."""
        self._is_closed.set()
        super().close()

    def _open(self) -> None:
        with self._lock:
            if not self._ready:
                self._require_server()
                self._pool.open()
                self._ready = True

    def _enter(self, stack: ExitStack) -> psycopg.Connection:
        """Return a connection that works; the stack gives it back."""
        patience = self._settings.connect_timeout_s
        deadline = time.monotonic() + patience
        while True:
            self._require_server()
            wait = min(_PATIENCE_S, max(0.0, deadline - time.monotonic()))
            try:
                connection = stack.enter_context(self._pool.connection(timeout=wait))
                check(connection)
                return connection
            except psycopg_pool.PoolTimeout as error:
                if time.monotonic() >= deadline:
                    raise NodeUnavailable(
                        f"{self._name} answers, but none of its {self._settings.pool_size} connections of this process "
                        f"was free for {patience:g} s; raise database.pool_size, or lower the load of its tenants"
                    ) from error
            except psycopg_pool.PoolClosed:
                raise
            except psycopg.OperationalError:
                stack.close()  # the pool replaces a closed connection
            self._is_suspect = True

    def _require_server(self) -> None:
        """Raise NodeUnavailable while the server is down.

        The server is asked only after a sign of a failure.
        """
        if self._failure is None and self._is_suspect:
            with self._probing:  # one call asks, and the others wait for its answer
                if self._failure is None and self._is_suspect:
                    self._probe()
        if self._failure is not None:
            raise NodeUnavailable(str(self._failure)) from self._failure

    def _probe(self) -> None:
        error = self._try_server()
        if error is None:
            self._is_suspect = False
            return
        failure = self._failure = self._create_error(error)
        try:
            threading.Thread(target=self._wait_for_server, name="kosmos-rag-breaker", daemon=True).start()
        except RuntimeError:  # no thread can be started: the next call tries the server itself
            self._failure = None
            raise failure from error
        log.warning("%s", failure, extra={"action": "server_lost"})

    def _wait_for_server(self) -> None:
        while not self._is_closed.wait(_RETRY_S):
            if self._try_server() is None:
                self._is_suspect, self._failure = False, None
                log.info("%s answers again", self._name, extra={"action": "server_found"})
                return

    def _try_server(self) -> Exception | None:
        arguments = self._connect_arguments() | {"connect_timeout": _CONNECT_TIMEOUT_S}
        try:
            psycopg.connect(self._conninfo, **arguments).close()
        except psycopg.OperationalError as error:
            return None if _is_full(error) else error
        except Exception as error:  # noqa: BLE001 — such as OSError where no descriptor is free; it is tried again
            return error
        return None

    def _create_error(self, error: Exception) -> NodeUnavailable:
        return NodeUnavailable(
            f"{self._name} cannot be reached: {first_line(error)}; start it, or look at its log; {self._consequence}"
        )


def _is_full(error: psycopg.OperationalError) -> bool:
    """Return whether a server that answers refused one more connection."""
    return "too many clients" in str(error) or "connection slots" in str(error)
