"""Connections whose statements are steps of the scheduler.

The pools of an engine are replaced by ones without threads. Pipelines are replaced too: each of their statements is a
step, which allows every interleaving that a pipeline allows, and more.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import psycopg
import psycopg_pool
import pytest
from psycopg.pq import TransactionStatus

from kosmos_rag import Engine
from kosmos_rag.storage.errors import translate_errors
from kosmos_rag.storage.pool import ConnectionPool
from tests.simulation.faults import LOST_ANSWER, SERIALIZATION_FAILURE, TERMINATED
from tests.simulation.scheduler import Actor, Observer, find_actor
from tests.statements import TEXTS

_NAMES = {text: name for name, text in TEXTS.items()}
_ENDS = {"_commit_gen", "_rollback_gen"}
_STEPS = {"_execute_gen", "_stream_send_gen", "_enter_gen", "_exit_gen", *_ENDS}
"""The generators of psycopg that send a statement. Those below have no cursor that names it."""
_LABELS = {"_enter_gen": "begin", "_exit_gen": "end", "_commit_gen": "end", "_rollback_gen": "end"}
_READS = {name for name, text in TEXTS.items() if not re.search(r"\b(?:INSERT|UPDATE|DELETE|claim_jobs)\b", text)}
_RAISE = b"DO $$ BEGIN RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001'; END $$"


@dataclass(kw_only=True, slots=True)
class Stage:
    """What the connections of a simulation share."""

    observer: Observer
    on_commit: Callable[[], None]
    """Called after each statement that may have committed a change, before its caller has the answer."""


class SimulatedConnection(psycopg.Connection):
    """Pauses before each statement that an actor executes."""

    stage: Stage | None = None
    """None until the connection is configured: how many were opened depends on earlier runs."""
    label = ""
    """Name of the next statement."""
    has_written = False
    """Whether the transaction may have changed something."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cursor_factory = SimulatedCursor

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        kind, stage = gen.gi_code.co_name, self.stage
        if stage is None or kind not in _STEPS or (kind in _ENDS and self._is_idle()):
            return super().wait(gen, *args, **options)
        actor, label = find_actor(), _LABELS.get(kind, self.label)
        if actor is None:
            answer = super().wait(gen, *args, **options)
            self._observe(stage)
            return answer
        actor.pause(self.info.backend_pid, label, in_write=not self._is_idle() and not self.read_only)
        return self._run(actor, stage, label, gen)

    def _run(self, actor: Actor, stage: Stage, label: str, gen: Any) -> Any:
        """Execute a statement, with its fault."""
        fault, actor.fault = actor.fault, None
        if fault is TERMINATED:
            stage.observer.terminate([self.info.backend_pid])
        elif fault is SERIALIZATION_FAILURE:
            self.pgconn.exec_(_RAISE)
            if label == "end":
                super().wait(gen)  # rolls back: the transaction has failed
            else:
                gen.close()
            raise psycopg.errors.SerializationFailure("could not serialize access")
        try:
            return super().wait(gen)
        except psycopg.errors.QueryCanceled as error:
            if actor.is_deadlocked:
                actor.is_deadlocked = False
                raise psycopg.errors.DeadlockDetected("deadlock detected") from error
            raise
        finally:
            self._observe(stage)
            if actor.is_blocked:
                # Others have run meanwhile, and one of them runs now.
                actor.is_blocked = False
                actor.pause(0 if self.closed else self.info.backend_pid, f"answer to {label}", in_write=False)
            if fault is LOST_ANSWER:
                self._lose_answer(stage)

    def _lose_answer(self, stage: Stage) -> None:
        if not self.closed:
            stage.observer.terminate([self.info.backend_pid])
            self.pgconn.finish()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def _observe(self, stage: Stage) -> None:
        if self.has_written and self._is_idle():
            self.has_written = False
            stage.on_commit()

    def _is_idle(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.IDLE


class SimulatedCursor(psycopg.Cursor):
    """Names the statement that it executes."""

    def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        self._name(query)
        return super().execute(query, *args, **options)

    def stream(self, query: Any, *args: Any, **options: Any) -> Any:
        self._name(query)
        return super().stream(query, *args, **options)

    def _name(self, query: Any) -> None:
        text = query if isinstance(query, str) else query.as_string()
        connection = cast("SimulatedConnection", self.connection)
        connection.label = _NAMES.get(text) or " ".join(text.split()[:3])
        connection.has_written |= connection.label not in _READS


class SimulatedPool:
    """Connections with the arguments of a pool, without its threads. They outlive a run."""

    def __init__(self, pool: psycopg_pool.ConnectionPool[Any], stage: Stage) -> None:
        self._pool = pool
        self._stage = stage
        self._free: list[SimulatedConnection] = []

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[psycopg.Connection]:
        """Check out a connection, as the pool of psycopg does."""
        connection = self._take()
        try:
            with _register_backend(connection):
                try:
                    yield connection
                except Exception:
                    if not connection.closed:
                        connection.rollback()
                    raise
                connection.commit()
        finally:
            if not connection.closed:
                self._free.append(connection)

    def _take(self) -> SimulatedConnection:
        while self._free:
            connection = self._free.pop()
            if not connection.closed:
                return connection
        assert isinstance(self._pool.kwargs, dict)
        connection = SimulatedConnection.connect(str(self._pool.conninfo), **self._pool.kwargs)
        assert self._pool._configure is not None
        self._pool._configure(connection)
        connection.stage = self._stage
        return connection

    def get_stats(self) -> dict[str, int]:
        """Return no figures."""
        return {}

    def close(self) -> None:
        """Close the connections."""
        for connection in self._free:
            connection.close()


@contextmanager
def _register_backend(connection: psycopg.Connection) -> Iterator[None]:
    """Note that this actor uses a connection. Where its process is killed, the server gets no other word from it."""
    actor, pid = find_actor(), connection.info.backend_pid
    if actor is not None:
        actor.backends.add(pid)
    try:
        yield
    finally:
        if actor is not None:
            actor.backends.discard(pid)
            if actor.is_killed:
                connection.pgconn.finish()


def simulate_connections(engine: Engine, pools: dict[str, SimulatedPool], stage: Stage) -> None:
    """Replace the pools of an engine.

    Args:
        engine: Of the simulation.
        pools: Those of earlier engines, by role.
        stage: What the connections share.
    """
    for pool in (engine.database.app, engine.database.worker, engine._background_pool):
        pool._open()
        pool._pool.close()
        pool._pool = pools.setdefault(pool.role, SimulatedPool(pool._pool, stage))  # type: ignore[assignment]


@contextmanager
def simulated_driver(stage: Stage) -> Iterator[None]:
    """Replace pipelines and sessions of the driver within a block."""

    @contextmanager
    def open_session(pool: ConnectionPool) -> Iterator[psycopg.Connection]:
        arguments = pool._connect_arguments()
        opened = SimulatedConnection.connect(pool._conninfo, autocommit=True, **arguments)
        with translate_errors(), opened as connection:
            connection.stage = stage
            with _register_backend(connection):
                yield connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Connection, "pipeline", lambda _connection: nullcontext())
        patch.setattr(ConnectionPool, "session", open_session)
        yield
