"""A deadline is kept whatever the call does."""

import threading
import time
from collections.abc import Sequence

import pytest

from kosmos_rag.core.config import RerankingSettings
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.retrieval.rerank import CallOutcome, DeadlineExecutor, RerankStage


def test_run__returns_the_value_in_time() -> None:
    outcome = DeadlineExecutor(slots=1).run(lambda: 42, deadline_ms=1000)
    assert (outcome.value, outcome.message) == (42, None)


def test_run__gives_up_at_the_deadline() -> None:
    free = threading.Event()
    started = time.monotonic()
    outcome = DeadlineExecutor(slots=1).run(free.wait, deadline_ms=50)
    assert 0.05 <= time.monotonic() - started < 20
    free.set()
    assert (outcome.value, outcome.message) == (None, "the deadline of 50 ms passed")


@pytest.mark.parametrize("spent_ms", [50.0, 80.0])
def test_run__does_not_begin_what_has_no_time_left(spent_ms: float) -> None:
    began: list[int] = []
    outcome = DeadlineExecutor(slots=1).run(lambda: began.append(1), deadline_ms=50, spent_ms=spent_ms)
    assert outcome == CallOutcome(value=None, message="the deadline of 50 ms passed before", error_kind="deadline")
    assert began == []


def test_run__waits_only_for_what_is_left_of_the_deadline() -> None:
    free = threading.Event()
    started = time.monotonic()
    outcome = DeadlineExecutor(slots=1).run(free.wait, deadline_ms=20_050, spent_ms=20_000)
    assert time.monotonic() - started < 15
    free.set()
    assert outcome.message == "the deadline of 20050 ms passed"


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError("no such model"), "no such model"), (KeyError(), "KeyError"), (MemoryError(), "MemoryError")],
)
def test_run__returns_the_error_as_a_reason(error: Exception, reason: str) -> None:
    def call() -> None:
        raise error

    assert DeadlineExecutor(slots=1).run(call, deadline_ms=10_000).message == reason


def test_run__gives_the_place_back_after_an_error() -> None:
    def call() -> None:
        raise ValueError

    deadline = DeadlineExecutor(slots=1)
    for _ in range(3):
        assert deadline.run(call, deadline_ms=10_000).message == "ValueError"
    assert deadline.run(lambda: 1, deadline_ms=10_000).value == 1


def test_run__waits_for_a_place_within_the_deadline() -> None:
    deadline = DeadlineExecutor(slots=1)
    outcomes = []
    call = lambda: outcomes.append(deadline.run(lambda: time.sleep(0.05), deadline_ms=5000))  # noqa: E731
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.message for outcome in outcomes] == [None] * 4


@pytest.mark.parametrize("concurrency", [1, 3])
def test_run__lets_so_many_in_at_once_and_no_more(concurrency: int) -> None:
    deadline = DeadlineExecutor(slots=concurrency)
    together = threading.Barrier(concurrency)
    inside: list[int] = []
    most: list[int] = []

    def call() -> None:
        inside.append(1)
        together.wait(timeout=10)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        together.wait(timeout=10)

    threads = [threading.Thread(target=lambda: deadline.run(call, deadline_ms=10_000)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [concurrency] * 6


def test_run__gives_up_waiting_for_a_place_at_the_deadline() -> None:
    free, event = threading.Event(), threading.Event()
    deadline = DeadlineExecutor(slots=1)
    earlier = threading.Thread(
        target=deadline.run, args=(lambda: (event.set(), free.wait()),), kwargs={"deadline_ms": 1e6}
    )
    earlier.start()
    event.wait()
    outcome = deadline.run(lambda: 1, deadline_ms=50)
    assert outcome.message == "the deadline of 50 ms passed while earlier calls ran"
    free.set()
    earlier.join()
    assert deadline.run(lambda: 1, deadline_ms=1000).value == 1


def test_run__does_not_wait_for_places_of_calls_that_are_late() -> None:
    free = threading.Event()
    deadline = DeadlineExecutor(slots=1)
    deadline.run(free.wait, deadline_ms=10)
    started = time.monotonic()
    outcome = deadline.run(lambda: 1, deadline_ms=60_000)
    assert time.monotonic() - started < 30
    assert outcome.message == "1 earlier calls are past their deadline and have not ended"
    free.set()
    while (again := deadline.run(lambda: 1, deadline_ms=1000)).value is None:
        time.sleep(0.01)
    assert again.value == 1


def test_warm_up__gives_up_a_model_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()

    class Hanging:
        name = "hanging"

        def score(self, question: str, passages: Sequence[str]) -> list[float]:
            free.wait()
            return [0.0 for _ in (question, *passages)]

    monkeypatch.setattr("kosmos_rag.retrieval.rerank._WARM_UP_MS", 20)
    RerankStage(Hanging(), RerankingSettings(), Telemetry()).warm_up()
    free.set()
