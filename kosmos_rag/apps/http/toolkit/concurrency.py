"""Shares the slots for calls of the library among tenants."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from kosmos_rag.apps.errors import Overloaded, TimedOut
from kosmos_rag.core.config import Settings
from kosmos_rag.engine.aio import AsyncEngine

P = ParamSpec("P")
R = TypeVar("R")

SEARCH, ANSWER = 1, 2
"""Slots of a short question: an answer also scores the sentences of its evidence."""
SEARCHES = {"low": 1, "high": 6}
"""Searches of a question by its effort, at most."""
_CHARS_OF_ONE_SLOT, _PASSAGES_OF_ONE_SLOT, _TOKENS_OF_ONE_SLOT = 1000, 100, 4000


def question_cost(
    base: int, question: str | Sequence[str], *, k: int | None = None, max_tokens: int | None = None
) -> int:
    """Return the slots of a call about a question.

    Its time grows with each of the arguments.

    Args:
        base: `SEARCH` or `ANSWER`.
        question: every 1,000 characters cost one slot more; several questions cost the sum.
        k: number of passages; every 100 cost one slot more.
        max_tokens: budget of the evidence; every 4,000 tokens cost one slot more.
    """
    if not isinstance(question, str):
        return sum(question_cost(base, text, k=k, max_tokens=max_tokens) for text in question)
    passages, tokens = (k or 0) // _PASSAGES_OF_ONE_SLOT, (max_tokens or 0) // _TOKENS_OF_ONE_SLOT
    return base + len(question) // _CHARS_OF_ONE_SLOT + passages + tokens


@dataclass(slots=True)
class _Tenant:
    """The calls of one tenant, in flight and waiting.

    Waiting calls are oldest first.
    """

    weight: float
    in_flight: int = 0
    waiting: deque["_Call"] = field(default_factory=deque)

    @property
    def share(self) -> float:
        return self.in_flight / self.weight


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A call that waits for its slots.

    `admitted` is done when it has them.
    """

    number: int
    cost: int
    admitted: asyncio.Future[None]


class FairSlots:
    """Slots that tenants share by weight.

    Unused ones go to any tenant that waits.

    A free slot goes to the waiting tenant with the lowest cost in flight by its weight (max-min fairness), then to the
    call that has waited longest. Calls cost one slot or more. Together they cost at most `capacity`, except that a
    tenant with nothing in flight may always start a call while fewer than `capacity` calls run: a tenant with costly
    calls delays no other one. One event loop uses it.
    """

    def __init__(self, capacity: int, weights: Mapping[str, float]) -> None:
        self._capacity = capacity
        self._weights = weights
        self._tenants: dict[str, _Tenant] = {}
        self._calls = 0
        self._cost = 0
        self._number = 0

    @property
    def in_flight(self) -> int:
        """Number of calls that hold slots."""
        return self._calls

    async def acquire(self, tenant: str, cost: int) -> None:
        """Wait for slots. A cancelled wait takes none."""
        entry = self._tenants.setdefault(tenant, _Tenant(self._weights.get(tenant, 1.0)))
        self._number += 1
        call = _Call(self._number, cost, asyncio.get_running_loop().create_future())
        entry.waiting.append(call)
        self._admit()
        try:
            await call.admitted
        except asyncio.CancelledError:
            if call.admitted.cancelled():
                self._withdraw(tenant, call)
            else:
                self.release(tenant, cost)
            raise

    def _withdraw(self, tenant: str, call: _Call) -> None:
        entry = self._tenants.get(tenant)
        if entry is not None and call in entry.waiting:
            entry.waiting.remove(call)
            self._forget(tenant)
            self._admit()

    def release(self, tenant: str, cost: int) -> None:
        """Return the slots of a call."""
        self._calls -= 1
        self._cost -= cost
        self._tenants[tenant].in_flight -= cost
        self._forget(tenant)
        self._admit()

    def _forget(self, tenant: str) -> None:
        entry = self._tenants[tenant]
        if not entry.in_flight and not entry.waiting:
            del self._tenants[tenant]

    def _admit(self) -> None:
        while self._calls < self._capacity:
            waiting = [entry for entry in self._tenants.values() if entry.waiting]
            if not waiting:
                return
            entry = min(waiting, key=lambda entry: (entry.share, entry.waiting[0].number))
            call = entry.waiting[0]
            if call.admitted.cancelled():
                entry.waiting.popleft()
                continue
            if entry.in_flight and self._cost + call.cost > self._capacity:
                return  # the call waits for its slots: cheaper ones do not pass it for ever
            entry.waiting.popleft()
            entry.in_flight += call.cost
            self._calls += 1
            self._cost += call.cost
            call.admitted.set_result(None)


class ConcurrencyLimiter:
    """Runs calls of the library in threads.

    At most `database.pool_size` calls run at once: each needs a connection. Tenants share the slots by
    `service.tenant_weights`. Callers wait at most `service.queue_timeout_s` to start and `service.timeout_s` for the
    result.
    """

    def __init__(self, engine: AsyncEngine, settings: Settings) -> None:
        self._engine = engine
        self._queue_timeout_s = settings.service.queue_timeout_s
        self._timeout_s = settings.service.timeout_s
        self._limit = settings.database.pool_size
        self._slots = FairSlots(self._limit, settings.service.tenant_weights)

    @property
    def in_flight(self) -> int:
        """Number of calls that run."""
        return self._slots.in_flight

    async def run(self, tenant: str, cost: int, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call for a tenant and return its value.

        An error of the call is raised.

        A call whose caller has disconnected keeps its slots until it ends: a thread cannot be stopped.

        Args:
            tenant: name of the tenant whose slots it takes.
            cost: number of slots, see `question_cost`.
            call: the function; further arguments are passed to it.

        Raises:
            Overloaded: no slot was free within `service.queue_timeout_s`.
            TimedOut: the call took longer than `service.timeout_s`.
        """
        try:
            async with asyncio.timeout(self._queue_timeout_s):
                await self._slots.acquire(tenant, cost)
        except TimeoutError:
            raise Overloaded(
                f"the service is at capacity: no slot of {self._limit} was free for {self._queue_timeout_s:g} seconds; "
                "try again"
            ) from None
        task = asyncio.ensure_future(self._engine.run(call, *args, **kwargs))
        task.add_done_callback(lambda _: self._slots.release(tenant, cost))
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                return await asyncio.shield(task)
        except TimeoutError:
            if deadline.expired():
                raise TimedOut(f"the call took longer than {self._timeout_s:g} seconds; request less") from None
            raise
