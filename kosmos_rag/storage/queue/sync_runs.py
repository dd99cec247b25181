"""Counts of sync runs.

Once a run has finished, seen = new + changed + unchanged + removed + failed + cancelled.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.rows import kwargs_row
from psycopg.types.json import Jsonb

from kosmos_rag.core.types import IngestFailure, RunInfo, storable
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

NO_PERMISSION = "no_permission"
"""Code of a source, or a document, that may not be read with the credentials it was asked with."""


class SyncRunWriter:
    """Starts sync runs of a tenant and counts, in the caller's transaction."""

    def __init__(self, connection: psycopg.Connection, owner: TenantRef) -> None:
        """Write by a connection of the worker role, with the tenant set."""
        self._connection = connection
        self._owner = owner

    def start(self, collection: str, source: Mapping[str, Any]) -> uuid.UUID:
        """Start a sync run, and return its id.

        An interrupted run of the same source is closed as failed.

        Args:
            source: specification of the source.
        """
        run_id = uuid.uuid4()
        values = {"tenant_id": self._owner.id, "run_id": run_id, "collection": collection, "source": Jsonb(source)}
        self._connection.execute(statement("fail_interrupted_sync_runs"), values)
        self._connection.execute(statement("insert_sync_run"), values)
        return run_id

    def add(
        self,
        run_id: uuid.UUID,
        *,
        documents: int = 0,
        unchanged: int = 0,
        removed: int = 0,
        failures: Sequence[IngestFailure] = (),
        state: str | None = None,
        error: str | None = None,
    ) -> None:
        """Add counts that the listing found without a job.

        Each failure is one document, seen and failed.

        Args:
            documents: documents listed, without the failures.
            unchanged: documents with an unchanged etag.
            removed: documents that the source no longer has.
            failures: documents that could not be listed; the first 100 are stored.
            state: new state of the run.
        """
        values = {
            "tenant_id": self._owner.id,
            "run_id": run_id,
            "seen": documents + len(failures),
            "unchanged": unchanged,
            "removed": removed,
            "failed": len(failures),
            "failures": Jsonb([_plain(failure) for failure in failures[:100]]),
            "state": state,
            "error": error,
        }
        self._connection.execute(statement("add_sync_run_counts"), values)


def _plain(failure: IngestFailure) -> dict[str, str]:
    return {"source": storable(failure.source), "code": failure.code, "message": storable(failure.message)}


def _run_info(*, failures: list[dict[str, str]], **columns: Any) -> RunInfo:
    return RunInfo(failures=tuple(IngestFailure(**failure) for failure in failures), **columns)


class SyncRuns:
    """Lists and closes sync runs. Thread-safe.

    Each call has a transaction of its own.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def list(self, owner: TenantRef, *, run_id: uuid.UUID | None = None, limit: int = 20) -> list[RunInfo]:
        """List the sync runs of a tenant, newest first."""
        values = {"tenant_id": owner.id, "run_id": run_id, "limit": limit}
        with self._pool.untenanted() as connection, connection.cursor(row_factory=kwargs_row(_run_info)) as cursor:
            return cursor.execute(statement("list_sync_runs"), values).fetchall()

    def list_refused(self, owner: TenantRef) -> Sequence[IngestFailure]:
        """Return why sources refused the credentials of their last pass, which listed nothing.

        Recurring passes that could not even begin are among them, and those of permission feeds that failed: readers
        stay as they were.
        """
        values = {"tenant_id": owner.id, "passes": list(kinds.PASSES)}
        with self._pool.untenanted() as connection:
            rows = connection.execute(statement("latest_failures_of_sources"), values).fetchall()
            jobs = connection.execute(statement("failing_passes"), values).fetchall()
        failures = [
            IngestFailure(**entries[0]) for documents, failed, entries in rows if entries and documents == failed
        ]
        refused = [failure for failure in failures if failure.code == NO_PERMISSION]
        return refused + [
            IngestFailure(source=_name_pass(payload), code=code, message=error) for payload, code, error in jobs
        ]

    def finish_completed(self) -> int:
        """Finish runs whose documents all have an outcome; return their number."""
        with self._pool.untenanted() as connection:
            return connection.execute(statement("finish_sync_runs")).rowcount

    def fail_abandoned(self, owner: TenantRef) -> int:
        """Fail runs whose sync job no longer exists; return their number."""
        with self._pool.untenanted() as connection:
            return connection.execute(statement("fail_abandoned_sync_runs"), {"tenant_id": owner.id}).rowcount

    def prune(self, *, keep_days: int) -> int:
        """Delete runs that finished more than `keep_days` ago, and return how many."""
        with self._pool.untenanted() as connection:
            return connection.execute(statement("prune_sync_runs"), {"keep_days": keep_days}).rowcount


def _name_pass(payload: Mapping[str, Any]) -> str:
    spec = payload.get("feed") or payload["spec"]
    name = next(spec[key] for key in ("name", "path", "url", "kind") if spec.get(key))
    return f"{name} (permission feed)" if "feed" in payload else str(name)
