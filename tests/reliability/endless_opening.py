"""Work of a process that never comes to ask for jobs: its model takes for ever to load."""

import time

from kosmos_rag.config import Settings
from kosmos_rag.worker.desk import Work


def open_work(settings: Settings) -> Work:
    time.sleep(3600)
    raise AssertionError(f"nobody waited for {settings}")
