"""Experiments and their results in the database, with their tenant's other rows."""

import json
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from psycopg.rows import kwargs_row

from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.types import EVERYONE, Arm, ExperimentInfo, ExperimentMode
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, create_tenant

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


def start(worker: ConnectionPool, owner: TenantRef, info: ExperimentInfo, preset: Preset) -> bool:
    """Store an experiment.

    Returns False if one of its name exists, or one that runs for the same questions.

    Args:
        worker: connections of the worker role.
        owner: the tenant.
        info: the experiment.
        preset: configuration of the treatment.
    """
    values = {
        "tenant_id": owner.id,
        "id": info.id,
        "name": info.name,
        "collection": info.collection,
        "mode": str(info.mode),
        "share": info.share,
        "content": preset.content,
        "now": info.started_at,
    }
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        create_tenant(connection, owner, now=info.started_at)
        return connection.execute(statement("start_experiment"), values).fetchone() is not None


def stop(worker: ConnectionPool, owner: TenantRef, name: str, *, now: datetime) -> bool:
    """End an experiment. Returns whether it was running.

    Args:
        worker: connections of the worker role.
        owner: the tenant.
        name: name of the experiment.
        now: time of the end.
    """
    values = {"tenant_id": owner.id, "name": name, "now": now}
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        return connection.execute(statement("stop_experiment"), values).rowcount == 1


def list_experiments(worker: ConnectionPool, owner: TenantRef) -> list[ExperimentInfo]:
    """Return the tenant's experiments, those that run first, then the latest."""
    with (
        worker.transaction(owner.id, [EVERYONE]) as connection,
        connection.cursor(row_factory=kwargs_row(_experiment_info)) as cursor,
    ):
        return cursor.execute(statement("list_experiments"), {"tenant_id": owner.id}).fetchall()


def _experiment_info(*, mode: str, content: str, **columns: Any) -> ExperimentInfo:
    return ExperimentInfo(mode=ExperimentMode(mode), settings=json.loads(content), **columns)


def add(worker: ConnectionPool, owner: TenantRef, experiment_id: uuid.UUID, result: Result) -> None:
    """Store a result. Does nothing if the experiment has been stopped.

    Args:
        worker: connections of the worker role.
        owner: the tenant.
        experiment_id: the experiment.
        result: the result.
    """
    values = {
        **asdict(result),
        "arm": str(result.arm),
        "tenant_id": owner.id,
        "experiment_id": experiment_id,
        "id": uuid.uuid4(),
        "at": datetime.now(UTC),
    }
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        connection.execute(statement("insert_experiment_result"), values)


def results(worker: ConnectionPool, owner: TenantRef, experiment_id: uuid.UUID) -> list[Rated]:
    """Return the newest results of an experiment, at most `NEWEST`.

    Args:
        worker: connections of the worker role.
        owner: the tenant.
        experiment_id: the experiment.
    """
    values = {"tenant_id": owner.id, "experiment_id": experiment_id, "limit": NEWEST}
    with (
        worker.transaction(owner.id, [EVERYONE]) as connection,
        connection.cursor(row_factory=kwargs_row(Rated), binary=True) as cursor,
    ):
        return cursor.execute(statement("results_of_experiment"), values).fetchall()


def prune(worker: ConnectionPool, owner: TenantRef, *, keep_days: int) -> int:
    """Remove old results, and experiments that were stopped long ago.

    Returns the number of removed results.

    Args:
        worker: connections of the worker role.
        owner: the tenant.
        keep_days: age in days from which rows are removed.
    """
    values = {"tenant_id": owner.id, "before": datetime.now(UTC) - timedelta(days=keep_days)}
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        removed = connection.execute(statement("prune_experiment_results"), values).rowcount
        connection.execute(statement("prune_experiments"), values)
    return removed
