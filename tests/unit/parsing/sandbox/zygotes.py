"""The zygote of this process as /proc shows it."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kosmos_rag.parsing.sandbox import fork_server

T = TypeVar("T")


def zygote() -> int:
    """The pid of the zygote that serves this process."""
    return fork_server.current()._process.pid


def children(pid: int) -> list[int]:
    """The children of a process of one thread, zombies too."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def busy_child() -> int:
    """A child of the zygote, as soon as there is one that has begun to parse."""
    return until(lambda: next((pid for pid in children(zygote()) if _cpu_seconds(pid) > 0.05), None))


def until(condition: Callable[[], T | None], seconds: float = 20) -> T:
    """Wait for a condition to give something."""
    deadline = time.monotonic() + seconds
    while (result := condition()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return result


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
