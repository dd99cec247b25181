"""The clock that requests a minute are counted by."""

from types import SimpleNamespace

import pytest

_NOW = 1_000_000_000.0


def stop_rate_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of rate limits: with each second a sliding window may give a request back."""
    clock = SimpleNamespace(time=lambda: _NOW)
    for module in ("kosmos_rag.apps.http.rate_limit", "limits.storage.memory", "limits.strategies"):
        monkeypatch.setattr(f"{module}.time", clock)
