"""Threads that a process at its limit cannot start."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused_threads(name: str) -> Iterator[None]:
    """Refuse to start threads of a name, as Python does where the system has no more."""
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name == name:
            raise RuntimeError("can't start new thread")
        start(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield
