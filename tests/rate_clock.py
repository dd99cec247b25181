"""The clock that requests a minute are counted by."""

import pytest


class RateClock:
    """A clock that stands still, except when it is advanced."""

    def __init__(self) -> None:
        self._now = 1_000_000_000.0

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


def stop_rate_clock(monkeypatch: pytest.MonkeyPatch) -> RateClock:
    """Stop the clock of rate limits: with each second a sliding window may give a request back."""
    clock = RateClock()
    monkeypatch.setattr("kosmos_rag.apps.http.toolkit.rate_limit.time", clock)
    return clock
