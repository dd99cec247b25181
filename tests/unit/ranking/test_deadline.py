"""A deadline is kept whatever the call does."""

import threading
import time

from kosmos_rag.ranking.deadline import Deadline


def test_run__returns_the_value_in_time() -> None:
    outcome = Deadline(concurrency=1).run(lambda: 42, timeout_ms=1000)
    assert (outcome.value, outcome.reason) == (42, None)


def test_run__gives_up_at_the_deadline() -> None:
    free = threading.Event()
    started = time.monotonic()
    outcome = Deadline(concurrency=1).run(free.wait, timeout_ms=50)
    assert time.monotonic() - started < 2
    free.set()
    assert (outcome.value, outcome.reason) == (None, "the deadline of 50 ms passed")


def test_run__returns_the_error_as_a_reason() -> None:
    def call() -> None:
        raise ValueError("no such model")

    assert Deadline(concurrency=1).run(call, timeout_ms=1000).reason == "no such model"


def test_run__waits_for_a_place_within_the_deadline() -> None:
    deadline = Deadline(concurrency=1)
    outcomes = []
    call = lambda: outcomes.append(deadline.run(lambda: time.sleep(0.05), timeout_ms=5000))  # noqa: E731
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.reason for outcome in outcomes] == [None] * 4


def test_run__gives_up_waiting_for_a_place_at_the_deadline() -> None:
    free = threading.Event()
    deadline = Deadline(concurrency=1)
    deadline.run(free.wait, timeout_ms=10)
    outcome = deadline.run(lambda: 1, timeout_ms=50)
    assert outcome.reason == "the deadline of 50 ms passed while earlier calls ran"
    free.set()
    while (again := deadline.run(lambda: 1, timeout_ms=1000)).value is None:
        time.sleep(0.01)
    assert again.value == 1
