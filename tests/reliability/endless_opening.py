"""Work of a process that never comes to ask for jobs: its model takes for ever to load."""

import time

from kosmos_rag.core.config import Settings
from kosmos_rag.worker.channel import JobRunner


def create_runner(settings: Settings) -> JobRunner:
    time.sleep(3600)
    raise AssertionError(f"nobody waited for {settings}")
