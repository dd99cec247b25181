"""Runs actors a statement at a time, in an order that a seed decides.

An actor is a thread that runs the project's own code. It pauses before each statement, and runs only while the
scheduler lets it: no two actors run at the same time. A statement that waits for a lock is recognised by
`pg_blocking_pids`; the scheduler continues with another actor, and the blocked one pauses again once it has its answer.

A seed decides all of it. The server does not decide who of two goes on where both wait for a transaction that ends: a
blocked backend is suspended, and they are resumed in the order in which they came. Nor does it choose the victim of a
deadlock: that is the statement that closes the circle.
"""

import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

ANSWER_S = 0.004
"""Seconds without an answer after which the server is asked whether the statement is blocked."""
LIMIT_S = 30.0
"""Seconds after which a statement that is neither answered nor blocked fails the run."""
MAX_STEPS = 2_000
"""Steps of a run: an actor that repeats a statement for ever fails it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What happens to a statement."""

    name: str
    needs_write: bool = False
    """Whether it happens only to statements of a transaction that writes."""
    kills: bool = False
    """Whether the process of the actor ends before the statement."""


class Killed(BaseException):
    """Ends the thread of an actor whose process was killed."""


class Actor:
    """A thread of the project's code."""

    def __init__(self, name: str, script: Callable[[], None]) -> None:
        self.name = name
        self.pid = 0
        """Backend of the next statement."""
        self.label = "start"
        """Name of the next statement."""
        self.in_write = False
        """Whether the next statement belongs to a transaction that writes."""
        self.fault: Fault | None = None
        """What happens to the next statement."""
        self.backends: set[int] = set()
        """Backends of the connections that the actor uses."""
        self.faults = 0
        """How many faults it has had."""
        self.is_blocked = self.is_deadlocked = self.is_killed = self.has_ended = False
        self.error: BaseException | None = None
        """What the script raised."""
        self._script = script
        self._resume = threading.Semaphore(0)
        self._settled = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"simulated-{name}", daemon=True)
        self._thread.start()

    def pause(self, pid: int, label: str, *, in_write: bool) -> None:
        """Wait in the actor's thread until the scheduler lets the next statement run. Raises Killed."""
        if self.is_killed:
            raise Killed
        self.pid, self.label, self.in_write = pid, label, in_write
        self._settled.release()
        self._resume.acquire()
        if self.is_killed:
            raise Killed

    def advance(self) -> None:
        """Let the next statement run."""
        self._resume.release()

    def settle(self, timeout_s: float) -> bool:
        """Return whether the actor has paused again, or ended, within this time."""
        return self._settled.acquire(timeout=timeout_s)

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join(LIMIT_S)

    def _run(self) -> None:
        self._resume.acquire()
        _running.actor = self
        try:
            self._script()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 — the run reports it
            self.error = error
        self.has_ended = True
        self._settled.release()


class _Running(threading.local):
    actor: Actor | None = None


_running = _Running()


def find_actor() -> Actor | None:
    """Return the actor whose thread this is; None outside the simulation."""
    return _running.actor


_WAITS_FOR = """
WITH RECURSIVE waits_for (pid) AS (
    SELECT unnest(pg_blocking_pids(%(pid)s))
    UNION SELECT b.pid FROM waits_for w, unnest(pg_blocking_pids(w.pid)) AS b (pid)
)
SELECT EXISTS (SELECT FROM waits_for WHERE pid = %(pid)s)
"""
_SESSIONS = """
SELECT s.pid, coalesce(s.state, s.backend_type), pg_blocking_pids(s.pid),
       left(regexp_replace(s.query, '\\s+', ' ', 'g'), 200)
  FROM pg_stat_activity s
 WHERE s.datname = current_database()
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observer:
    """The server as its administrator sees it, on a connection of its own."""

    connection: psycopg.Connection
    is_local: bool
    """Whether the processes of the server are on this machine. Else its own scheduling decides some races."""

    def is_blocked(self, pid: int) -> bool:
        """Return whether a backend waits for a lock."""
        row = self.connection.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone()
        return row == (True,)

    def is_deadlocked(self, pid: int) -> bool:
        """Return whether a backend waits, over others, for itself."""
        return self.connection.execute(_WAITS_FOR, {"pid": pid}).fetchone() == (True,)

    def list_sessions(self) -> list[str]:
        """Return who waits for whom, and the last statement of each."""
        rows = self.connection.execute(_SESSIONS).fetchall()
        return [f"{pid} ({state}) waits for {pids}: {text}" for pid, state, pids, text in rows]

    def cancel(self, pid: int) -> None:
        """Cancel the statement of a backend."""
        self.connection.execute("SELECT pg_cancel_backend(%s)", [pid])

    def suspend(self, pid: int) -> None:
        """Stop a backend that is blocked: it sleeps, and holds nothing that another one needs for its own locks."""
        if self.is_local:
            os.kill(pid, signal.SIGSTOP)

    def resume(self, pid: int) -> None:
        """Let a suspended backend continue."""
        if self.is_local:
            os.kill(pid, signal.SIGCONT)

    def terminate(self, pids: Sequence[int]) -> None:
        """Terminate backends, and wait until their locks are released."""
        self.connection.execute("SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s::integer[]) AS p (pid)", [pids])


class Scheduler:
    """Decides which actor runs its next statement."""

    def __init__(self, dice: random.Random, observer: Observer, choose_fault: Callable[[Actor], Fault | None]) -> None:
        """Create a scheduler.

        Args:
            dice: Decides.
            observer: Sees which statements are blocked.
            choose_fault: Returns what happens to the next statement of an actor.
        """
        self._dice = dice
        self._observer = observer
        self._choose_fault = choose_fault
        self._ready: list[Actor] = []
        self._blocked: list[Actor] = []
        # Long runs of one actor reach states that a fair choice does not reach, and the reverse.
        self._stickiness = dice.choice((0.2, 0.6, 0.85, 0.95))
        self._last: Actor | None = None
        self.trace: list[str] = []
        """Each step: actor, statement, what happened."""

    def run(self, actors: Sequence[Actor], has_failed: Callable[[], bool]) -> None:
        """Run actors until all have ended, or the run has failed."""
        self._ready = list(actors)
        try:
            while (self._ready or self._blocked) and not has_failed():
                if len(self.trace) >= MAX_STEPS:
                    raise RuntimeError(
                        "\n".join([f"the run has not ended after {MAX_STEPS} steps:", *self.trace[-40:]])
                    )
                if not self._ready:
                    waiting = ", ".join(f"{actor.name} ({actor.pid})" for actor in self._blocked)
                    lines = [*self._observer.list_sessions(), *self.trace[-40:]]
                    raise RuntimeError("\n".join([f"{waiting} wait for a lock that nobody releases:", *lines]))
                self._step(self._choose())
        finally:
            self._stop()

    def _choose(self) -> Actor:
        if self._last not in self._ready or self._dice.random() > self._stickiness:
            self._last = self._dice.choice(self._ready)
        assert self._last is not None
        return self._last

    def _step(self, actor: Actor) -> None:
        actor.fault = fault = self._choose_fault(actor)
        self.trace.append(f"{actor.name}: {actor.label}" + (f" [{fault.name}]" if fault else ""))
        actor.faults += fault is not None
        if fault is not None and fault.kills:
            actor.is_killed = True
            self._observer.terminate(sorted(actor.backends))
        actor.advance()
        if self._await(actor):
            self._settle_blocked()
        else:
            self.trace[-1] += " (blocked)"
            actor.is_blocked = True
            self._observer.suspend(actor.pid)
            self._ready.remove(actor)
            self._blocked.append(actor)

    def _await(self, actor: Actor) -> bool:
        """Return whether an actor has paused again or ended; False if its statement waits for a lock."""
        for _ in range(int(LIMIT_S / ANSWER_S)):
            if actor.settle(ANSWER_S):
                if actor.has_ended and actor in self._ready:
                    self._ready.remove(actor)
                return True
            # Asked again, a victim may be blocked still by the first answer, and in no circle any more by the second.
            if actor.is_deadlocked or not self._observer.is_blocked(actor.pid):
                continue
            if not self._observer.is_deadlocked(actor.pid):
                return False
            actor.is_deadlocked = True
            self._observer.cancel(actor.pid)
        raise RuntimeError(f"{actor.name}: {actor.label} is neither answered nor blocked after {LIMIT_S:g} s")

    def _settle_blocked(self) -> None:
        """Resume the blocked statements in turn: each is answered, or is known to be blocked still."""
        for actor in list(self._blocked):
            self._observer.resume(actor.pid)
            if self._await(actor):
                self._release(actor)
            else:
                self._observer.suspend(actor.pid)

    def _release(self, actor: Actor) -> None:
        self._blocked.remove(actor)
        if not actor.has_ended:
            self._ready.append(actor)
            self._ready.sort(key=lambda ready: ready.name)

    def _stop(self) -> None:
        """End the actors that have not ended."""
        actors = [*self._ready, *self._blocked]
        for actor in self._blocked:
            self._observer.resume(actor.pid)
        for actor in actors:
            actor.is_killed = True
        if backends := sorted({pid for actor in actors for pid in actor.backends}):
            self._observer.terminate(backends)
        for actor in actors:
            actor.advance()
            actor.join()
