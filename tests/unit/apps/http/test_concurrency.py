"""FairSlots: who gets a free slot, and what a costly call delays."""

import asyncio
from collections import Counter

from kosmos_rag.apps.http.toolkit.concurrency import ANSWER, SEARCH, FairSlots, question_cost
from kosmos_rag.apps.http.toolkit.streaming import has_room


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Queue:
    """Acquires slots in the background and lists the tenants that have got them."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.admitted: list[str] = []
        self.waiting: list[asyncio.Task[None]] = []

    def ask(self, tenant: str, cost: int = 1, times: int = 1) -> None:
        for _ in range(times):
            self.waiting.append(asyncio.ensure_future(self._acquire(tenant, cost)))

    async def _acquire(self, tenant: str, cost: int) -> None:
        await self.slots.acquire(tenant, cost)
        self.admitted.append(tenant)


def test_free_slot__goes_to_the_tenant_with_least_in_flight() -> None:
    async def run() -> list[str]:
        queue = Queue(FairSlots(2, {}))
        queue.ask("loud", times=30)
        await _settle()
        queue.ask("quiet", times=2)
        await _settle()
        for tenant in ("loud", "loud", "quiet"):
            queue.slots.release(tenant, 1)
            await _settle()
        for task in queue.waiting:
            task.cancel()
        return queue.admitted

    assert asyncio.run(run()) == ["loud", "loud", "quiet", "loud", "quiet"]


def test_slots__are_all_used_by_one_tenant_that_is_alone() -> None:
    async def run() -> list[str]:
        queue = Queue(FairSlots(4, {}))
        queue.ask("loud", times=4)
        await _settle()
        return queue.admitted

    assert asyncio.run(run()) == ["loud"] * 4


def test_slots__are_shared_by_weight() -> None:
    async def run() -> Counter[str]:
        queue = Queue(FairSlots(8, {"large": 3.0}))
        queue.ask("first", cost=8)
        await _settle()
        queue.ask("small", times=8)
        queue.ask("large", times=8)
        await _settle()
        queue.slots.release("first", 8)
        await _settle()
        for task in queue.waiting:
            task.cancel()
        return Counter(queue.admitted)

    assert asyncio.run(run()) == {"first": 1, "large": 6, "small": 2}


def test_costly_call__delays_no_other_tenant_and_is_not_passed_by_its_own() -> None:
    """Costly calls of one tenant delay no other tenant."""

    async def run() -> list[list[str]]:
        queue = Queue(FairSlots(4, {}))
        admissions = []
        queue.ask("loud", cost=10)
        queue.ask("loud", cost=10)
        queue.ask("loud", cost=1)
        await _settle()
        admissions.append(list(queue.admitted))
        queue.ask("quiet")
        await _settle()
        admissions.append(list(queue.admitted))
        for task in queue.waiting:
            task.cancel()
        return admissions

    assert asyncio.run(run()) == [["loud"], ["loud", "quiet"]]


def test_cancelled_wait__takes_no_slot() -> None:
    async def run() -> tuple[int, list[str]]:
        queue = Queue(FairSlots(1, {}))
        queue.ask("a")
        await _settle()
        queue.ask("b")
        queue.ask("c")
        await _settle()
        queue.waiting[1].cancel()
        queue.slots.release("a", 1)  # before the cancelled task runs
        await _settle()
        queue.slots.release("c", 1)
        await _settle()
        return queue.slots.in_flight, queue.admitted

    assert asyncio.run(run()) == (0, ["a", "c"])


def test_cost__grows_with_the_question() -> None:
    assert question_cost(SEARCH, "Why?") == 1
    assert question_cost(ANSWER, "Why?") == 2
    assert question_cost(SEARCH, "x" * 9_000) == 10
    assert question_cost(SEARCH, "Why?", k=1_000, max_tokens=8_000) == 13


def test_room__is_left_for_a_tenant_below_its_share() -> None:
    """Streams and uploads of one tenant leave room for a tenant below its share."""
    slots = Counter({"loud": 4})
    assert not has_room(slots, "loud", 4)
    assert has_room(slots, "quiet", 4)
    slots["quiet"] = 2
    assert not has_room(slots, "quiet", 4)
    assert has_room(slots, "third", 4)
    assert has_room(Counter({"loud": 3}), "loud", 4)
