"""Rounds of the monitor as a worker makes them, and a model that is not there."""

import multiprocessing
from collections.abc import Sequence
from typing import Any

from kosmos_rag import Engine
from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.engine.job_kinds import JobCounts
from kosmos_rag.evaluation.jobs import MonitorMaintenance
from kosmos_rag.worker.channel import SupervisorChannel
from tests.integration.indexing.ann.worlds import WORLD


class Mute(type(WORLD)):
    """A model that is not there."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        raise ModelUnavailable("the model has gone to lunch; wait")

    def embed_query(self, question: str) -> Any:
        raise ModelUnavailable("the model has gone to lunch; wait")


def run_round(engine: Engine) -> tuple[dict[tuple[str, str], tuple[float, float]], JobCounts]:
    """A round of the monitor within maintenance of the tenant: what is measured and shown for how long, and counts."""
    parent_end, child_end = multiprocessing.Pipe()
    _KEPT.append(parent_end)
    counts = MonitorMaintenance(engine, interval_s=0.0).run(
        "acme", SupervisorChannel(child_end, engine.tenant("acme").jobs._queue)
    )
    gauges: dict[tuple[str, str], tuple[float, float]] = {}
    while parent_end.poll(0):
        gauges |= parent_end.recv().gauges
    return gauges, counts


_KEPT: list[object] = []
"""Ends of pipes: a channel takes the end of its own for the end of its supervisor, and exits."""
