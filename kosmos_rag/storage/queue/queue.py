"""The queue: jobs with leases and fencing tokens, fair between tenants.

They are claimed with `FOR UPDATE SKIP LOCKED`.

A job may run twice, but its effect is committed once: a worker finishes a job in the transaction that writes the
result, and that transaction verifies the token. docs/decisions/0012-own-queue.md has the reasons against a library.
"""

import random
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

import psycopg
from psycopg.rows import kwargs_row, scalar_row
from psycopg.types.json import Jsonb

from kosmos_rag.core.config import WorkerSettings
from kosmos_rag.core.errors import (
    RETRY_WITH_BACKOFF,
    IngestionError,
    KosmosError,
    LeaseLost,
    NodeUnavailable,
    is_disk_full,
)
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.types import EVERYONE, Job, JobCount, JobInfo, JobState, Outcome, storable
from kosmos_rag.storage.binary import array_literal
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.events import FAILED, record_events
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, read_server_time

CHANNEL = "kosmos_jobs"
REQUEUE_INTERVAL_S = 0.5
FIRST_DELAY_S, LONGEST_DELAY_S = 5.0, 900.0
OUTAGE_DELAY_S = 60.0
"""Seconds until a job that a full disk or a lost node stopped is tried again, on average."""
OUTAGE_DAYS = 7
"""Age of a job from which on these use up attempts too."""
UNCLAIMED_S = 30.0
"""Seconds that a due job waits, and that no job ends, before no worker is taken to run."""
_RETRY_ON_NEXT_SYNC = frozenset({"not_found", "no_permission", "not_a_file", "duplicate", "refused", "preset_missing"})
"""Codes not worth an immediate retry but worth one at the next sync: the document may be present, readable and unique
then, with an unchanged etag."""
_PASSES: tuple[list[str] | None, ...] = ([kinds.SYNC], None)
"""Kinds of the jobs of a collection in the order of their locks: those that enqueue others, then all."""


def retry_delay(attempt: int) -> float:
    """Return the delay in seconds before the next attempt.

    The first attempt is 1. The delay doubles with each attempt up to 15 minutes. Jitter of ±50 % keeps jobs that failed
    together apart.
    """
    doubled = FIRST_DELAY_S * 2.0 ** min(attempt - 1, 16)
    return _jitter(min(LONGEST_DELAY_S, doubled))


def _jitter(delay_s: float) -> float:
    return delay_s * random.uniform(0.5, 1.5)  # noqa: S311 — jitter, not a secret


def _costs_no_attempt(error: BaseException) -> bool:
    """Return whether the error uses up no attempt of a job.

    A disk or a node has to be repaired, and no attempt helps before.
    """
    return is_disk_full(error) or isinstance(error, NodeUnavailable)


def enqueue(
    connection: psycopg.Connection,
    owner: TenantRef,
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

    In the caller's transaction.

    A key has one unfinished job at most: a waiting job takes the newer payload, a running one runs again afterwards.

    Args:
        connection: connection of the worker role, with the tenant set.
        owner: tenant of the jobs.
        collection: collection that the jobs work on.
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
    connection.execute(statement("replace_dead_jobs"), {"tenant_id": owner.id, "keys": list(jobs)})
    # A periodic job belongs to no request.
    traceparent = None if every is not None else tracing.current_traceparent()
    added = {"traceparent": traceparent, "preset": preset}
    common = {name: value for name, value in added.items() if value is not None}
    values = {
        "tenant_id": owner.id,
        "tenant": owner.name,
        "collection": collection,
        "kind": kind,
        "keys": list(jobs),
        "payloads": [Jsonb({**payload, **common}) for payload in jobs.values()],
        "priority": priority,
        "delay_s": delay.total_seconds(),
        "every_s": None if every is None else every.total_seconds(),
        "sync_run_ids": [] if run is None else [run],
    }
    ids = [job_id for (job_id,) in connection.execute(statement("enqueue_jobs"), values).fetchall()]
    connection.execute(statement("notify_workers"))
    return ids


def enqueue_periodic(
    connection: psycopg.Connection, owner: TenantRef, collection: str, every: Mapping[str, timedelta]
) -> None:
    """Add one periodic job of each missing kind to the tenant.

    Args:
        connection: connection of the worker role, with the tenant set.
        owner: tenant of the jobs.
        collection: collection that the jobs belong to.
        every: interval by kind.
    """
    values = {
        "tenant_id": owner.id,
        "tenant": owner.name,
        "collection": collection,
        "kinds": list(every),
        "every_s": [pause.total_seconds() for pause in every.values()],
    }
    connection.execute(statement("enqueue_periodic"), values)


def cancel_collection_jobs(connection: psycopg.Connection, owner: TenantRef, collection: str) -> None:
    """Cancel unfinished jobs that write documents of a collection.

    In the caller's transaction.

    The jobs that enqueue others come first: once they are locked, no pass adds a job that the second statement misses.
    """
    for kind in _PASSES:
        values = {"tenant_id": owner.id, "ids": None, "keys": None, "collection": collection, "kinds": kind}
        others = {"kept": list(kinds.UPKEEP), "reason": "the collection was deleted"}
        connection.execute(statement("cancel_jobs"), values | others)


def cancel_document_jobs(connection: psycopg.Connection, owner: TenantRef, document_ids: Sequence[uuid.UUID]) -> None:
    """Cancel unfinished jobs that write these documents.

    In the caller's transaction, before it locks the collection.
    """
    values = {"tenant_id": owner.id, "ids": None, "keys": [str(key) for key in document_ids], "collection": None}
    others: dict[str, Any] = {"kinds": None, "kept": [], "reason": "the document was deleted"}
    connection.execute(statement("cancel_jobs"), values | others)


def change_jobs_preset(
    connection: psycopg.Connection, owner: TenantRef, collection: str, *, before: str, after: str
) -> None:
    """Assign a collection's new preset to its jobs.

    In the transaction that changes it.

    Args:
        connection: connection of the worker role, with the tenant set.
        owner: tenant of the collection.
        before: version of the preset that the jobs were enqueued under.
        after: version of the new preset.
    """
    for kind in _PASSES:
        values = {"tenant_id": owner.id, "collection": collection, "kinds": kind, "kept": list(kinds.UPKEEP)}
        connection.execute(statement("change_preset_of_jobs"), {**values, "before": before, "after": after})


def permanently_failed(
    connection: psycopg.Connection, owner: TenantRef, source_etags: Mapping[str, str | None]
) -> dict[str, tuple[str, str]]:
    """Return the errors of permanently failed jobs with the same etag.

    By key, error code and message. A failure whose reason may have passed is left out.

    Args:
        connection: Within a transaction of the tenant.
        source_etags: Source etag by job key.
    """
    values = {
        "tenant_id": owner.id,
        "keys": list(source_etags),
        "source_etags": Jsonb(dict(source_etags)),
        "retryable": sorted(RETRY_WITH_BACKOFF | _RETRY_ON_NEXT_SYNC),
    }
    return {key: (code, error) for key, code, error in connection.execute(statement("permanently_failed_jobs"), values)}


def lock_leases(connection: psycopg.Connection, tokens: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Return the tokens with valid leases, and lock these jobs.

    Until the transaction ends.
    """
    with connection.cursor(row_factory=scalar_row) as cursor:
        return set(cursor.execute(statement("lock_leases"), {"tokens": list(tokens)}).fetchall())


def finish(
    connection: psycopg.Connection, outcomes: Mapping[uuid.UUID, Outcome], chunks: Mapping[uuid.UUID, int] | None = None
) -> None:
    """Finish jobs in the caller's transaction, which writes their results.

    Args:
        connection: connection of the worker role.
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
    row = connection.execute(statement("finish_jobs"), values).fetchone()
    if row != (len(outcomes),):
        raise LeaseLost("a job was claimed by another worker, or cancelled, before its result was written")


class Queue:
    """Claims, finishes and inspects jobs. Thread-safe.

    Each call has a transaction of its own.
    """

    def __init__(self, pool: ConnectionPool, *, lease_s: float, max_attempts: int, max_lost: int) -> None:
        self._pool = pool
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._max_lost = max_lost
        self._requeue_at = 0.0

    @classmethod
    def open(cls, database: Database, settings: WorkerSettings) -> Self:
        """Return the queue of a database with the limits of the settings."""
        return cls(
            database.worker, lease_s=settings.lease_s, max_attempts=settings.max_attempts, max_lost=settings.max_lost
        )

    def claim(self, limit: int, *, kinds: Sequence[str], worker: str) -> list[Job]:
        """Claim up to `limit` jobs for the length of a lease.

        Due jobs and jobs with expired leases return to the queue here, every `REQUEUE_INTERVAL_S` seconds and when no
        job is queued: no separate process is needed for that.

        Args:
            limit: maximum number of jobs.
            worker: name of the worker, for operators.
        """
        values = {"limit": limit, "kinds": list(kinds), "worker": worker, "lease_s": self._lease_s}
        jobs = [] if time.monotonic() >= self._requeue_at else self._claim(values)
        if not jobs:
            self._requeue_due()
            jobs = self._claim(values)
        return jobs

    def _claim(self, values: Mapping[str, Any]) -> list[Job]:
        with self._pool.autocommit() as connection, connection.cursor(row_factory=kwargs_row(_job)) as cursor:
            return cursor.execute(statement("claim_jobs"), values).fetchall()

    def _requeue_due(self) -> None:
        self._requeue_at = time.monotonic() + REQUEUE_INTERVAL_S
        with self._pool.untenanted() as connection:
            connection.execute(statement("requeue_due_jobs"), {"max_lost": self._max_lost})

    def renew(self, tokens: Sequence[uuid.UUID]) -> set[uuid.UUID]:
        """Renew leases, and return the tokens whose leases are still valid."""
        with self._pool.untenanted() as connection, connection.cursor(row_factory=scalar_row) as cursor:
            values = {"tokens": list(tokens), "lease_s": self._lease_s}
            return set(cursor.execute(statement("renew_leases"), values).fetchall())

    def finish(self, outcomes: Mapping[uuid.UUID, Outcome]) -> None:
        """Finish jobs that write no result.

        Raises:
            LeaseLost: a lease is no longer valid.
        """
        with self._pool.untenanted() as connection:
            finish(connection, outcomes)

    def fail(self, job: Job, error: KosmosError, *, source: str, retry: bool) -> JobState | None:
        """Record a failure, and return the new state.

        The result is None if the lease was no longer valid. A full disk or a lost node is no fault of the job, and
        costs no attempt.

        Args:
            job: the claimed job.
            error: reason of the failure.
            source: source of the document, for the failures of the sync run.
            retry: run the job again later, as long as it has attempts left.
        """
        requeue = retry and job.attempt < self._max_attempts
        values = {
            "token": job.token,
            "delay_s": retry_delay(job.attempt) if requeue else None,
            "wait_s": _jitter(OUTAGE_DELAY_S) if _costs_no_attempt(error) else None,
            "wait_days": OUTAGE_DAYS,
            "source": storable(source),
            "code": error.code if isinstance(error, IngestionError) else type(error).__name__,
            "error": storable(str(error)),
        }
        with self._pool.untenanted() as connection:
            row = connection.execute(statement("fail_job"), values).fetchone()
            state = JobState(row[0]) if row else None
            # A lost node may hold the events too.
            if state is JobState.DEAD and job.kind == kinds.DOCUMENT and not isinstance(error, NodeUnavailable):
                context = {"tenant_id": job.tenant_id, "principals": array_literal([EVERYONE])}
                connection.execute(statement("set_tenant_context"), context)
                entry = {"document_id": job.key, "source": values["source"], "code": values["code"]}
                with record_events(connection, job.tenant_id) as events:
                    events.add(job.collection, FAILED, [entry])
        return state

    def release(self, tokens: Sequence[uuid.UUID]) -> None:
        """Return claimed jobs that were not started to the queue."""
        with self._pool.untenanted() as connection:
            connection.execute(statement("release_jobs"), {"tokens": list(tokens)})

    def expire_leases(self, tokens: Sequence[uuid.UUID]) -> None:
        """Expire the leases of a process that has ended."""
        with self._pool.untenanted() as connection:
            connection.execute(statement("expire_leases"), {"tokens": list(tokens)})

    def cancel(self, owner: TenantRef, ids: Sequence[uuid.UUID]) -> list[uuid.UUID]:
        """Cancel unfinished jobs, and return their ids.

        A running job cannot write its result.
        """
        values = {"tenant_id": owner.id, "ids": list(ids), "keys": None, "collection": None, "kinds": None, "kept": []}
        with self._pool.untenanted() as connection, connection.cursor(row_factory=scalar_row) as cursor:
            return cursor.execute(statement("cancel_jobs"), values | {"reason": "cancelled by request"}).fetchall()

    def retry(self, owner: TenantRef, ids: Sequence[uuid.UUID] | None = None) -> list[uuid.UUID]:
        """Requeue dead and cancelled jobs, and return their ids.

        Without `ids` all of the tenant.
        """
        values = {"tenant_id": owner.id, "ids": None if ids is None else list(ids)}
        with self._pool.untenanted() as connection, connection.cursor(row_factory=scalar_row) as cursor:
            requeued = cursor.execute(statement("retry_jobs"), values).fetchall()
            connection.execute(statement("notify_workers"))
        return requeued

    def jobs(
        self,
        owner: TenantRef,
        *,
        ids: Sequence[uuid.UUID] | None = None,
        states: Sequence[JobState] | None = None,
        kinds: Sequence[str] | None = None,
        collection: str | None = None,
        before: uuid.UUID | None = None,
        limit: int = 50,
    ) -> list[JobInfo]:
        """List the jobs of a tenant, newest first.

        Args:
            ids: only these jobs.
            states: only jobs in these states.
            kinds: only jobs of these kinds.
            collection: only jobs of this collection.
            before: last id of the previous page.
            limit: maximum number of jobs.
        """
        values = {
            "tenant_id": owner.id,
            "ids": None if ids is None else list(ids),
            "states": None if states is None else [str(state) for state in states],
            "kinds": None if kinds is None else list(kinds),
            "collection": collection,
            "before": before,
            "limit": limit,
        }
        with self._pool.untenanted() as connection, connection.cursor(row_factory=kwargs_row(_job_info)) as cursor:
            return cursor.execute(statement("list_jobs"), values).fetchall()

    def count_jobs(self) -> list[JobCount]:
        """Count the jobs of all tenants by kind and state."""
        with self._pool.untenanted() as connection:
            rows = connection.execute(statement("count_jobs")).fetchall()
        return [JobCount(kind=kind, state=JobState(state), count=n, oldest_s=age) for kind, state, n, age in rows]

    def count_unclaimed(self, owner: TenantRef | None = None) -> int:
        """Count the due jobs that no worker claims, because none runs.

        0 while a worker runs. Without `owner` those of all tenants.
        """
        values = {"tenant_id": None if owner is None else owner.id, "wait_s": UNCLAIMED_S}
        with self._pool.untenanted() as connection:
            row = connection.execute(statement("unclaimed_jobs"), values).fetchone()
        assert row is not None
        count: int = row[0]
        return count

    def list_tenants(self, kinds: Sequence[str]) -> list[TenantRef]:
        """Return the tenants with jobs of these kinds, by name."""
        with self._pool.untenanted() as connection:
            rows = connection.execute(statement("tenants_of_jobs"), {"kinds": list(kinds)}).fetchall()
        return [TenantRef(id=tenant_id, name=name) for tenant_id, name in rows]

    def count_unfinished(self, kinds: Sequence[str]) -> int:
        """Count queued and running jobs.

        A periodic job that waits for its next time is not counted.
        """
        with self._pool.untenanted() as connection:
            row = connection.execute(statement("unfinished_jobs"), {"kinds": list(kinds)}).fetchone()
        assert row is not None
        count: int = row[0]
        return count

    def read_server_time(self) -> datetime:
        """Return the time of the server."""
        with self._pool.untenanted() as connection:
            return read_server_time(connection)

    def count_dead_since(self, since: datetime, kinds: Sequence[str]) -> int:
        """Count the permanently failed jobs of all tenants since a time.

        The time is the server's.
        """
        with self._pool.untenanted() as connection:
            row = connection.execute(statement("dead_since"), {"since": since, "kinds": list(kinds)}).fetchone()
        assert row is not None
        count: int = row[0]
        return count

    def prune(self, *, keep_days: int, keep_dead_days: int) -> int:
        """Delete up to 10,000 old finished jobs, and return how many.

        Args:
            keep_days: days to keep done and cancelled jobs.
            keep_dead_days: days to keep dead jobs.
        """
        values = {"keep_days": keep_days, "keep_dead_days": keep_dead_days}
        with self._pool.untenanted() as connection:
            return connection.execute(statement("prune_jobs"), values).rowcount


def _job(*, sync_run_ids: list[uuid.UUID], waited_s: float, **columns: Any) -> Job:
    return Job(runs=tuple(sync_run_ids), waited_s=max(0.0, waited_s), **columns)


def _job_info(**columns: Any) -> JobInfo:
    return JobInfo(**{**columns, "state": JobState(columns["state"])})
