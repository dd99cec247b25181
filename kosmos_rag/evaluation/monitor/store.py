"""Samples and runs of the recall monitor in the database.

Reads and writes as the worker role.
"""

import uuid
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.monitor.recall import Sample
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorRun, MonitorState
from kosmos_rag.evaluation.sql import statement

_MAX_SAMPLE_AGE = timedelta(days=1)


class MonitorStore:
    """Samples and runs of one tenant. Every method raises DatabaseError."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._transaction = tenant.sessions.write

    def list_samples(self, space_id: uuid.UUID, *, limit: int) -> list[Sample]:
        """Return up to `limit` samples of a space, at random."""
        values = {"tenant_id": self._tenant.id, "space_id": space_id, "limit": limit}
        with self._transaction() as connection:
            rows = connection.execute(statement("monitor_samples"), values).fetchall()
        return [
            Sample(
                id=sample_id,
                collection=collection,
                principals=tuple(principals),
                vector=np.asarray(vector.to_numpy(), dtype=np.float32),
            )
            for sample_id, collection, principals, vector in rows
        ]

    def delete_samples(self, space_id: uuid.UUID, measured: Collection[Sample]) -> None:
        """Delete measured samples, and obsolete ones.

        Those older than a day or of another space than this one.
        """
        values = {
            "tenant_id": self._tenant.id,
            "space_id": space_id,
            "ids": [sample.id for sample in measured],
            "before": datetime.now(UTC) - _MAX_SAMPLE_AGE,
        }
        with self._transaction() as connection:
            connection.execute(statement("delete_monitor_samples"), values)

    def read_baseline(self, index_id: uuid.UUID, since: datetime) -> list[float]:
        """Return the best scores of the first run over an index.

        The result is empty if there was none since then.
        """
        values = {"tenant_id": self._tenant.id, "index_id": index_id, "at": since}
        with self._transaction() as connection:
            row = connection.execute(statement("monitor_baseline"), values).fetchone()
        return [] if row is None else list(row[0])

    def add_run(self, run: MonitorRun, scores: Sequence[float], *, keep_days: int) -> None:
        """Store a run, and delete the runs that are older than `keep_days`.

        Args:
            scores: The best score of each sample, ascending: the baseline of later runs.
            keep_days: Retention of runs.
        """
        values: dict[str, Any] = {
            "tenant_id": self._tenant.id,
            "id": run.id,
            "at": run.at,
            "kind": str(run.kind),
            "state": str(run.state),
            "reason": run.reason,
            "index_id": run.index_id,
            "figures": Jsonb(dict(run.figures)),
            "scores": list(scores),
            "milliseconds": run.milliseconds,
        }
        with self._transaction() as connection:
            connection.execute(statement("insert_monitor_run"), values)
            before = run.at - timedelta(days=keep_days)
            connection.execute(statement("prune_monitor_runs"), {"tenant_id": self._tenant.id, "before": before})

    def list_runs(self, kind: MonitorKind | None = None, *, limit: int, with_unknown: bool = True) -> list[MonitorRun]:
        """Return the latest runs, the newest first.

        Args: with_unknown: Those too that measured nothing.
        """
        values = {
            "tenant_id": self._tenant.id,
            "kind": None if kind is None else str(kind),
            "with_unknown": with_unknown,
            "limit": limit,
        }
        with self._transaction() as connection, connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(statement("list_monitor_runs"), values).fetchall()
        return [
            MonitorRun(**{**row, "kind": MonitorKind(row["kind"]), "state": MonitorState(row["state"])}) for row in rows
        ]

    def count_vector_indexes(self) -> int:
        """Count the vector indexes of all tenants."""
        with self._transaction() as connection:
            row = connection.execute(statement("count_vector_indexes")).fetchone()
        return int(row[0]) if row else 0
