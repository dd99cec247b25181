"""An action that is repeated until its block ends."""

import errno
import threading

import pytest

from kosmos_rag.core.periodic import run_periodically


def test_action__runs_at_once_and_again() -> None:
    calls = threading.Semaphore(0)
    with run_periodically(calls.release, interval_s=0.01, delay_s=0, thread_name="test-periodic"):
        assert all(calls.acquire(timeout=10) for _ in range(3))
    assert "test-periodic" not in {thread.name for thread in threading.enumerate()}


def test_action__does_not_run_before_its_delay() -> None:
    calls: list[int] = []
    with run_periodically(lambda: calls.append(1), interval_s=0, delay_s=60, thread_name="test-periodic"):
        pass
    assert calls == []


def test_thread__ends_where_the_block_fails() -> None:
    with (
        pytest.raises(ValueError, match="x"),
        run_periodically(lambda: None, interval_s=60, delay_s=60, thread_name="test-periodic"),
    ):
        raise ValueError("x")
    assert "test-periodic" not in {thread.name for thread in threading.enumerate()}


def test_action__that_fails_is_repeated_and_logged_once_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = iter([OSError(errno.EMFILE, "x"), OSError(errno.EMFILE, "x"), None, OSError(errno.EMFILE, "x")])
    calls = threading.Semaphore(0)

    def act() -> None:
        calls.release()
        if (error := next(outcomes, None)) is not None:
            raise error

    with run_periodically(act, interval_s=0.01, delay_s=0, thread_name="test-periodic"):
        assert all(calls.acquire(timeout=10) for _ in range(6))
    assert [getattr(record, "action", None) for record in caplog.records] == ["thread_failed"] * 2
