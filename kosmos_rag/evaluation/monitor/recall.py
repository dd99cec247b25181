"""Recall of live queries: samples searched again, by index and exactly.

Runs as the role that answers queries, as the reader of the sample, in one read-only snapshot a sample, on one
connection, and pauses after each sample as long as the sample took.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.errors import DatabaseUnavailable, StatementFailed
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.indexes import Recall, summarise_comparisons
from kosmos_rag.evaluation.settings import MonitorSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A live query: its vector, collection and reader."""

    id: uuid.UUID
    collection: str | None
    principals: tuple[str, ...]
    vector: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRecall:
    """Recall of a run over live samples."""

    recall: Recall | None
    """None if no sample could be searched."""
    samples: int
    """Number of samples that were searched and have neighbours."""
    timed_out: int
    """Number of samples whose search reached the statement timeout."""
    incomplete: int
    """Number of samples for which the index returned fewer hits than exist, so that the search fell back to a scan."""
    scores: tuple[float, ...]
    """The best score of each sample, ascending."""
    milliseconds: float


def measure_live_recall(
    engine: Engine,
    name: str,
    samples: Sequence[Sample],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> LiveRecall:
    """Search samples again, by the index and exactly.

    Args:
        name: Name of the tenant.
        samples: Live queries of that tenant.
        pause: Waits that many seconds after each sample.

    Raises DatabaseError; a statement that the server cancels is counted.
    """
    timeout_ms = engine.settings.section(MonitorSettings).statement_timeout_ms
    comparisons, timed_out, elapsed_s = [], 0, 0.0
    for sample in samples:
        started = time.perf_counter()
        try:
            reader = engine.tenant(name, principals=sample.principals, collection=sample.collection)
            comparisons.append(reader.indexes.compare(sample.vector, statement_timeout_ms=timeout_ms))
        except DatabaseUnavailable:
            raise
        except StatementFailed as error:
            if not error.is_cancelled:
                raise
            timed_out += 1
        sample_s = time.perf_counter() - started
        elapsed_s += sample_s
        pause(sample_s)
    measured = [comparison for comparison in comparisons if comparison is not None and comparison.nearest]
    return LiveRecall(
        recall=summarise_comparisons(measured) if measured else None,
        samples=len(measured),
        timed_out=timed_out,
        incomplete=sum(comparison.incomplete for comparison in measured),
        scores=tuple(sorted(comparison.nearest[0][1] for comparison in measured)),
        milliseconds=round(elapsed_s * 1000, 1),
    )
