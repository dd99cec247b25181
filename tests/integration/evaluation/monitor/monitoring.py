"""Rounds of the monitor as a worker makes them, and a model that is not there."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kosmos_rag import Engine
from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.engine.job_kinds import JobCounts
from kosmos_rag.evaluation.jobs import MonitorMaintenance
from tests.integration.indexing.ann.worlds import WORLD
from tests.integration.worker.working import open_channel, receive_all


class Mute(type(WORLD)):
    """A model that is not there."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        raise ModelUnavailable("the model has gone to lunch; wait")

    def embed_query(self, question: str) -> Any:
        raise ModelUnavailable("the model has gone to lunch; wait")


def run_round(engine: Engine) -> tuple[dict[tuple[str, str], tuple[float, float]], JobCounts]:
    """A round of the monitor within maintenance of the tenant: what is measured and shown for how long, and counts."""
    supervisor, channel = open_channel(engine.tenant("acme").jobs._queue)
    MonitorMaintenance(engine, interval_s=0.0).run("acme", channel)
    gauges: dict[tuple[str, str], tuple[float, float]] = {}
    counts = Counter[tuple[str, str]]()
    for message in receive_all(supervisor):
        gauges |= message.gauges
        counts.update(message.counts)
    return gauges, counts
