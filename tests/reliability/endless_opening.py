"""Work of a process that never comes to ask for jobs: its model takes for ever to load."""

import time

from kosmos_rag.apps.worker.channel import Work
from kosmos_rag.core.config import Settings


def open_work(settings: Settings) -> Work:
    time.sleep(3600)
    raise AssertionError(f"nobody waited for {settings}")
