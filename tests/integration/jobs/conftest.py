"""What the tests of the queue share."""

import pytest

from kosmos_rag.jobs import queue


@pytest.fixture(autouse=True)
def woken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every taking look for what is due, so that a test need not wait; one test is about the pause itself."""
    monkeypatch.setattr(queue, "WAKE_S", 0.0)
