"""Faults of connections, processes and clocks, at steps that a seed decides."""

import random

from tests.simulation.scheduler import Actor, Fault

TERMINATED = Fault(name="the backend is terminated")
LOST_ANSWER = Fault(name="the answer is lost")
SERIALIZATION_FAILURE = Fault(name="serialization failure", needs_write=True)
KILLED = Fault(name="the process is killed", kills=True)
FAULTS = (TERMINATED, LOST_ANSWER, SERIALIZATION_FAILURE, KILLED)

MOST = 3
"""Faults of a run: each costs a connection or an operation, and a run of failures alone shows little."""


class FaultPlan:
    """The faults of one run."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._kinds = [fault for fault in FAULTS if dice.random() < 0.5]
        self._rate = dice.choice((0.0, 0.005, 0.02, 0.05))
        self._remaining = MOST

    def choose(self, actor: Actor) -> Fault | None:
        """Return what happens to the next statement of an actor."""
        if not self._kinds or not self._remaining or actor.label == "start":
            return None
        if actor.label.startswith("answer") or self._dice.random() >= self._rate:
            return None
        fault = self._dice.choice(self._kinds)
        if fault.needs_write and not actor.in_write:
            return None
        self._remaining -= 1
        return fault


class Clock:
    """The monotonic clock of the queue and of its workers: it moves when a run moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
