"""Experiments and their results in the database.

Each function runs in a transaction of the worker role.
"""

import json
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import kwargs_row

from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.types import Arm, ExperimentMode
from kosmos_rag.evaluation.experiments.records import ExperimentInfo
from kosmos_rag.evaluation.sql import statement

NEWEST = 10_000
"""Results that a report is of, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The result of one question.

    Of a configuration that did not run there are no hits, and no milliseconds.
    """

    retrieval_id: uuid.UUID | None
    arm: Arm
    """Which one was served."""
    requested: int
    control_ms: float | None = None
    treatment_ms: float | None = None
    control_hits: int | None = None
    treatment_hits: int | None = None
    overlap: float | None = None
    rbo: float | None = None
    degraded: bool = False
    error: str | None = None


class Rated(NamedTuple):
    """A stored result with its feedback, in the order of the columns.

    It is a tuple, because a report reads thousands.
    """

    at: datetime
    arm: str
    requested: int
    control_ms: float | None
    treatment_ms: float | None
    control_hits: int | None
    treatment_hits: int | None
    overlap: float | None
    rbo: float | None
    degraded: bool
    error: str | None
    up: int
    down: int
    clicks: int


def start(connection: psycopg.Connection, tenant_id: uuid.UUID, info: ExperimentInfo, preset: Preset) -> bool:
    """Store an experiment.

    Returns False if one of its name exists, or one that runs for the same questions.

    Args:
        connection: a transaction; the tenant's row exists.
        preset: configuration of the treatment.
    """
    values = {
        "tenant_id": tenant_id,
        "id": info.id,
        "name": info.name,
        "collection": info.collection,
        "mode": str(info.mode),
        "share": info.share,
        "content": preset.content,
        "now": info.started_at,
    }
    return connection.execute(statement("start_experiment"), values).fetchone() is not None


def stop(connection: psycopg.Connection, tenant_id: uuid.UUID, name: str, *, now: datetime) -> bool:
    """End an experiment. Returns whether it was running."""
    values = {"tenant_id": tenant_id, "name": name, "now": now}
    return connection.execute(statement("stop_experiment"), values).rowcount == 1


def list_experiments(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[ExperimentInfo]:
    """Return the tenant's experiments, those that run first, then the latest."""
    with connection.cursor(row_factory=kwargs_row(_experiment_info)) as cursor:
        return cursor.execute(statement("list_experiments"), {"tenant_id": tenant_id}).fetchall()


def _experiment_info(*, mode: str, content: str, **columns: Any) -> ExperimentInfo:
    return ExperimentInfo(mode=ExperimentMode(mode), settings=json.loads(content), **columns)


def add(connection: psycopg.Connection, tenant_id: uuid.UUID, experiment_id: uuid.UUID, result: Result) -> None:
    """Store a result. Does nothing if the experiment has been stopped."""
    values = {
        **asdict(result),
        "arm": str(result.arm),
        "tenant_id": tenant_id,
        "experiment_id": experiment_id,
        "id": uuid.uuid4(),
        "at": datetime.now(UTC),
    }
    connection.execute(statement("insert_experiment_result"), values)


def list_results(connection: psycopg.Connection, tenant_id: uuid.UUID, experiment_id: uuid.UUID) -> list[Rated]:
    """Return the newest results of an experiment, at most `NEWEST`."""
    values = {"tenant_id": tenant_id, "experiment_id": experiment_id, "limit": NEWEST}
    with connection.cursor(row_factory=kwargs_row(Rated), binary=True) as cursor:
        return cursor.execute(statement("results_of_experiment"), values).fetchall()


def prune(connection: psycopg.Connection, tenant_id: uuid.UUID, *, keep_days: int) -> int:
    """Remove results older than `keep_days`, and experiments that were stopped before.

    Returns the number of removed results.
    """
    values = {"tenant_id": tenant_id, "before": datetime.now(UTC) - timedelta(days=keep_days)}
    removed = connection.execute(statement("prune_experiment_results"), values).rowcount
    connection.execute(statement("prune_experiments"), values)
    return removed
