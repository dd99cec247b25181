"""Work of a process that never comes to ask for jobs: its model takes for ever to load."""

import time

from kosmos_rag.apps.worker.channel import JobRunner
from kosmos_rag.core.config import Settings


def create_runner(settings: Settings) -> JobRunner:
    time.sleep(3600)
    raise AssertionError(f"nobody waited for {settings}")
