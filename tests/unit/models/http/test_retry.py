"""Retries of requests to model servers: pauses, attempts, what servers ask for."""

import asyncio

import pytest

from kosmos_rag.core.errors import ModelError, ModelUnavailable
from kosmos_rag.models.http import retry
from kosmos_rag.models.http.retry import Retry, RetryPolicy, request_with_retry

BUSY = ModelUnavailable("busy")


class _Clock:
    """The clock of an event loop, on which a pause takes no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        monkeypatch.setattr(retry, "asyncio", self)

    def get_running_loop(self) -> "_Clock":
        return self

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def _run(*outcomes: Retry | str, attempts: int = 5, limit_s: float = 60.0) -> str:
    remaining = list(outcomes)

    async def request() -> str:
        outcome = remaining.pop(0)
        if isinstance(outcome, Retry):
            raise outcome
        return outcome

    policy = RetryPolicy(attempts=attempts, statuses=frozenset())
    return asyncio.run(request_with_retry(request, policy, until=100.0 + limit_s))


def test_pauses__double_with_jitter_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    assert _run(*[Retry(BUSY)] * 7, "done", attempts=8) == "done"
    for pause, expected in zip(clock.pauses, [0.5, 1, 2, 4, 8, 8, 8], strict=True):
        assert 0.75 * expected <= pause <= 1.25 * expected
    assert len(set(clock.pauses)) == 7


def test_pause__is_what_the_server_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    assert _run(Retry(BUSY, after_s=21.0), "done") == "done"
    assert clock.pauses == [21.0]


def test_error__is_raised_after_the_last_attempt_and_before_a_late_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    with pytest.raises(ModelUnavailable, match="busy"):
        _run(*[Retry(BUSY)] * 3, attempts=3)
    assert len(clock.pauses) == 2
    clock.pauses.clear()
    with pytest.raises(ModelUnavailable, match="busy"):
        _run(Retry(BUSY, after_s=61.0), "too late")
    assert clock.pauses == []


def test_other_errors__are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> str:
        raise ModelError("broken")

    clock = _Clock(monkeypatch)
    with pytest.raises(ModelError, match="broken"):
        asyncio.run(request_with_retry(fails, RetryPolicy(attempts=5, statuses=frozenset()), until=1000.0))
    assert clock.pauses == []
