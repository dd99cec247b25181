"""The ledgers of passes over sources: seen = new + changed + unchanged + removed + failed, once a run has finished."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from kosmos_rag.core.types import IngestFailure, RunInfo, storable
from kosmos_rag.storage.pool import Role
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef


def open_run(connection: psycopg.Connection, owner: TenantRef, collection: str, source: Mapping[str, Any]) -> uuid.UUID:
    """Begin a run; one over the same source that never came to its end is closed as failed. Returns its id."""
    run_id = uuid.uuid4()
    values = {"tenant_id": owner.id, "run_id": run_id, "collection": collection, "source": Jsonb(source)}
    connection.execute(statement("fail_interrupted_sync_runs"), values)
    connection.execute(statement("insert_sync_run"), values)
    return run_id


def note(
    connection: psycopg.Connection,
    owner: TenantRef,
    run_id: uuid.UUID,
    *,
    seen: int = 0,
    unchanged: int = 0,
    removed: int = 0,
    failures: Sequence[IngestFailure] = (),
    state: str | None = None,
    error: str | None = None,
) -> None:
    """Add to a run what was found out without a job; each failure is one document that was seen, and failed."""
    values = {
        "tenant_id": owner.id,
        "run_id": run_id,
        "seen": seen + len(failures),
        "unchanged": unchanged,
        "removed": removed,
        "failed": len(failures),
        "failures": Jsonb([_plain(failure) for failure in failures[:100]]),
        "state": state,
        "error": error,
    }
    connection.execute(statement("add_sync_run_counts"), values)


def _plain(failure: IngestFailure) -> dict[str, str]:
    return {"source": storable(failure.source), "code": failure.code, "message": storable(failure.message)}


class Ledgers:
    """Reads and closes runs, each call a transaction of its own. Thread-safe."""

    def __init__(self, role: Role) -> None:
        self._role = role

    def runs(self, owner: TenantRef, *, run_id: uuid.UUID | None = None, limit: int = 20) -> list[RunInfo]:
        """List a tenant's runs, newest first."""
        values = {"tenant_id": owner.id, "run_id": run_id, "limit": limit}
        with self._role.queue() as connection:
            rows = connection.execute(statement("list_sync_runs"), values).fetchall()
        names = (
            "id",
            "collection",
            "source",
            "state",
            "seen",
            "new",
            "changed",
            "unchanged",
            "removed",
            "failed",
            "chunks",
        )
        return [
            RunInfo(
                **dict(zip(names, row[:11], strict=True)),
                failures=tuple(IngestFailure(**failure) for failure in row[11]),
                error=row[12],
                started_at=row[13],
                finished_at=row[14],
            )
            for row in rows
        ]

    def close(self) -> int:
        """Close the runs whose every document has an outcome. Returns how many there were."""
        with self._role.queue() as connection:
            return connection.execute(statement("finish_sync_runs")).rowcount

    def abandon(self, owner: TenantRef) -> int:
        """Close as failed the runs of a tenant whose pass will not be taken up again. Returns how many."""
        with self._role.queue() as connection:
            return connection.execute(statement("fail_abandoned_sync_runs"), {"tenant_id": owner.id}).rowcount

    def prune(self, *, keep_days: int) -> int:
        """Delete runs that finished longer ago. Returns how many there were."""
        with self._role.queue() as connection:
            return connection.execute(statement("prune_sync_runs"), {"keep_days": keep_days}).rowcount
