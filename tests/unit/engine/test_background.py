"""The background queue: a full queue refuses at once, and tasks that hang or fail disturb nothing else."""

import threading

from kosmos_rag.engine.background import BackgroundQueue


def test_calls__run_one_after_the_other_in_their_order() -> None:
    background, ran = BackgroundQueue(capacity=10), list[int]()
    assert all(background.submit(lambda number=number: ran.append(number)) for number in range(10))
    assert background.drain(10)
    assert ran == list(range(10))
    background.close()


def test_full_line__refuses_while_a_call_hangs() -> None:
    background, goes_on, event = BackgroundQueue(capacity=2), threading.Event(), threading.Event()

    def hangs() -> None:
        event.set()
        goes_on.wait(30)

    assert background.submit(hangs)
    assert event.wait(10)
    assert [background.submit(lambda: None) for _ in range(4)] == [True, True, False, False]
    assert not background.drain(0.01)
    goes_on.set()
    assert background.drain(10)
    assert background.submit(lambda: None)
    background.close()


def test_call_that_fails__holds_up_no_other() -> None:
    background, ran = BackgroundQueue(capacity=10), threading.Event()

    def fails() -> None:
        raise ValueError("on purpose")

    assert background.submit(fails)
    assert background.submit(ran.set)
    assert ran.wait(10)
    background.close()


def test_closed__takes_nothing_and_drops_what_waits() -> None:
    background, goes_on, event, ran = (
        BackgroundQueue(capacity=5),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )
    assert background.submit(lambda: (event.set(), goes_on.wait(30))[0])
    assert event.wait(10)
    assert background.submit(ran.set)
    background.close()
    goes_on.set()
    assert not background.submit(ran.set)
    assert background.drain(10)
    assert not ran.is_set()


def test_close__lets_waiting_tasks_run_for_the_time_given() -> None:
    background, ran = BackgroundQueue(capacity=5), list[int]()
    assert all(background.submit(lambda number=number: ran.append(number)) for number in range(5))
    background.close(timeout_s=10)
    assert ran == list(range(5))
    assert not background.submit(lambda: None)
