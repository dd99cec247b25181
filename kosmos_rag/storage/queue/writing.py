"""Jobs and leases in the transaction of the caller."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import scalar_row
from psycopg.types.json import Jsonb

from kosmos_rag.core.errors import RETRY_WITH_BACKOFF, LeaseLost
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.types import Outcome
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_RETRY_ON_NEXT_SYNC = frozenset({"not_found", "no_permission", "not_a_file", "duplicate", "refused", "preset_missing"})
"""Codes not worth an immediate retry but worth one at the next sync: the document may be present, readable and unique
then, with an unchanged etag."""
_WITH_DOCUMENTS = (False, True)
"""The jobs of a collection in the order of their locks: those that may enqueue others, then all."""
_COLLECTION_DELETED, _DOCUMENT_DELETED = "the collection was deleted", "the document was deleted"


class JobWriter:
    """Adds, changes and cancels the jobs of a tenant, in the caller's transaction."""

    def __init__(self, connection: psycopg.Connection, owner: TenantRef) -> None:
        """Write by a connection of the worker role, with the tenant set."""
        self._connection = connection
        self._owner = owner
        self._cancelled_runs: list[uuid.UUID] = []
        """Runs that wait for cancelled jobs, one for each job."""

    def enqueue(
        self,
        collection: str,
        kind: str,
        jobs: Mapping[str, Mapping[str, Any]],
        *,
        priority: int = 0,
        delay: timedelta = timedelta(),
        every: timedelta | None = None,
        run: uuid.UUID | None = None,
        preset: str | None = None,
    ) -> list[uuid.UUID]:
        """Add jobs to the queue, and return their ids.

        A key has one unfinished job at most: a waiting job takes the newer payload, a running one runs again
        afterwards.

        Args:
            kind: one of `kinds.KERNEL`, or one that a wing adds.
            jobs: payload by key.
            priority: jobs with a higher priority are claimed first.
            delay: earliest start, from now.
            every: interval of a periodic job.
            run: sync run whose counts the outcome adds to.
            preset: version of the preset that the collection has now; the jobs fail once it has none.
        """
        if not jobs:
            return []
        self._replace_dead(keys=list(jobs))
        # A periodic job belongs to no request.
        traceparent = None if every is not None else tracing.current_traceparent()
        added = {"traceparent": traceparent, "preset": preset}
        common = {name: value for name, value in added.items() if value is not None}
        values = {
            "tenant_id": self._owner.id,
            "tenant": self._owner.name,
            "collection": collection,
            "kind": kind,
            "keys": list(jobs),
            "payloads": [Jsonb({**payload, **common}) for payload in jobs.values()],
            "priority": priority,
            "delay_s": delay.total_seconds(),
            "every_s": None if every is None else every.total_seconds(),
            "sync_run_ids": [] if run is None else [run],
        }
        ids = [job_id for (job_id,) in self._connection.execute(statement("enqueue_jobs"), values).fetchall()]
        self._connection.execute(statement("notify_workers"))
        return ids

    def enqueue_periodic(self, collection: str, every: Mapping[str, timedelta]) -> None:
        """Add one periodic job of each missing kind.

        Args:
            every: interval by kind.
        """
        values = {
            "tenant_id": self._owner.id,
            "tenant": self._owner.name,
            "collection": collection,
            "kinds": list(every),
            "every_s": [pause.total_seconds() for pause in every.values()],
        }
        self._connection.execute(statement("enqueue_periodic"), values)

    def cancel_collection(self, collection: str) -> None:
        """Cancel unfinished jobs that write documents of a collection, and delete those that failed.

        Call `count_cancelled` afterwards.

        The jobs that enqueue others come first: once they are locked, no pass adds a job that the second statement
        misses. Those that failed come last: a job may fail while its cancellation waits for it.
        """
        for documents in _WITH_DOCUMENTS:
            values = {"tenant_id": self._owner.id, "ids": None, "keys": None, "collection": collection}
            others = {"documents": documents, "kept": list(kinds.UPKEEP), "reason": _COLLECTION_DELETED}
            self._cancel(values | others)
        self._replace_dead(collection=collection, kept_reason=_COLLECTION_DELETED)

    def cancel_documents(self, document_ids: Sequence[uuid.UUID]) -> None:
        """Cancel unfinished jobs that write these documents, before the transaction locks the collection.

        Call `count_cancelled` afterwards.
        """
        keys = [str(key) for key in document_ids]
        values = {"tenant_id": self._owner.id, "ids": None, "keys": keys, "collection": None}
        others: dict[str, Any] = {"documents": True, "kept": [], "reason": _DOCUMENT_DELETED}
        self._cancel(values | others)

    def count_cancelled(self) -> None:
        """Count the cancelled jobs in their runs, after the transaction has locked the collection."""
        count_cancelled_jobs(self._connection, self._owner.id, self._cancelled_runs)
        self._cancelled_runs = []

    def _cancel(self, values: Mapping[str, Any]) -> None:
        for _, run_ids in self._connection.execute(statement("cancel_jobs"), values).fetchall():
            self._cancelled_runs += run_ids

    def delete_documents(self, document_ids: Sequence[uuid.UUID]) -> None:
        """Cancel unfinished jobs of documents that are deleted, as `cancel_documents`, and delete those that failed.

        A failed job that is retried would bring its document back. A job may fail while its cancellation waits for it.
        """
        self.cancel_documents(document_ids)
        self._replace_dead(keys=[str(key) for key in document_ids], kept_reason=_DOCUMENT_DELETED)

    def _replace_dead(
        self, *, keys: Sequence[str] = (), collection: str | None = None, kept_reason: str | None = None
    ) -> None:
        values = {"tenant_id": self._owner.id, "keys": list(keys), "collection": collection, "kept_reason": kept_reason}
        self._connection.execute(statement("replace_dead_jobs"), values | {"kept": list(kinds.UPKEEP)})

    def find_other_readers(self, readers: Mapping[uuid.UUID, Sequence[str]]) -> list[uuid.UUID]:
        """Return the documents with an unfinished job that was enqueued with other readers; nothing is locked."""
        values = {
            "tenant_id": self._owner.id,
            "readers": Jsonb({str(key): list(principals) for key, principals in readers.items()}),
            "keys": [str(key) for key in readers],
        }
        rows = self._connection.execute(statement("jobs_with_other_readers"), values) if readers else ()
        return [uuid.UUID(key) for (key,) in rows]

    def change_preset(self, collection: str, *, before: str, after: str) -> None:
        """Assign a collection's new preset to its jobs, in the transaction that changes it.

        Args:
            before: version of the preset that the jobs were enqueued under.
            after: version of the new preset.
        """
        for documents in _WITH_DOCUMENTS:
            values = {"tenant_id": self._owner.id, "collection": collection, "documents": documents}
            others = {"kept": list(kinds.UPKEEP), "before": before, "after": after}
            self._connection.execute(statement("change_preset_of_jobs"), values | others)

    def find_permanent_failures(self, source_etags: Mapping[str, str | None]) -> dict[str, tuple[str, str]]:
        """Return the errors of permanently failed jobs with the same etag.

        By key, error code and message. A failure whose reason may have passed is left out.

        Args:
            source_etags: Source etag by job key.
        """
        values = {
            "tenant_id": self._owner.id,
            "keys": list(source_etags),
            "source_etags": Jsonb(dict(source_etags)),
            "retryable": sorted(RETRY_WITH_BACKOFF | _RETRY_ON_NEXT_SYNC),
        }
        rows = self._connection.execute(statement("permanently_failed_jobs"), values)
        return {key: (code, error) for key, code, error in rows}


def count_cancelled_jobs(connection: psycopg.Connection, tenant_id: uuid.UUID, run_ids: Sequence[uuid.UUID]) -> None:
    """Count jobs that will have no outcome in the sync runs that wait for them.

    Args:
        run_ids: A run is in it once for each of its jobs.
    """
    if run_ids:
        values = {"tenant_id": tenant_id, "run_ids": list(run_ids)}
        connection.execute(statement("count_cancelled_jobs"), values)


class JobLeases:
    """Leases of claimed jobs, in the caller's transaction."""

    def __init__(self, connection: psycopg.Connection) -> None:
        """Verify them by a connection of the worker role."""
        self._connection = connection

    def lock(self, tokens: Sequence[uuid.UUID]) -> set[uuid.UUID]:
        """Return the tokens with valid leases, and lock these jobs until the transaction ends."""
        with self._connection.cursor(row_factory=scalar_row) as cursor:
            return set(cursor.execute(statement("lock_leases"), {"tokens": list(tokens)}).fetchall())

    def run_again(self, token: uuid.UUID) -> None:
        """Queue a running job again once it ends."""
        self._connection.execute(statement("run_job_again"), {"token": token})

    def finish(self, outcomes: Mapping[uuid.UUID, Outcome], chunks: Mapping[uuid.UUID, int] | None = None) -> None:
        """Finish jobs in the transaction that writes their results.

        Args:
            outcomes: outcome by token.
            chunks: number of written chunks by token, for the counts of the sync run.

        Raises:
            LeaseLost: a lease is no longer valid; the transaction must not commit.
        """
        if not outcomes:
            return
        chunk_counts = chunks or {}
        values = {
            "tokens": list(outcomes),
            "outcomes": [str(outcome) for outcome in outcomes.values()],
            "chunks": [chunk_counts.get(token, 0) for token in outcomes],
        }
        row = self._connection.execute(statement("finish_jobs"), values).fetchone()
        if row != (len(outcomes),):
            raise LeaseLost("a job was claimed by another worker, or cancelled, before its result was written")
