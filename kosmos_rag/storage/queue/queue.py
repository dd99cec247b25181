"""The queue: jobs with leases and fencing tokens, taken by `FOR UPDATE SKIP LOCKED`, fair between tenants.

Work may run twice, its effect is had once: who finishes a job must hold its token, in the transaction that writes the
result. docs/decisions/0012-own-queue.md says why this is no library.
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
from kosmos_rag.core.errors import RETRY_ON_NEXT_SYNC, RETRY_WITH_BACKOFF, IngestionError, KosmosError, LeaseLost
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.types import Job, JobCount, JobInfo, JobState, Outcome, storable
from kosmos_rag.storage.pool import Database, Role
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

CHANNEL = "kosmos_jobs"
WAKE_S = 0.5
FIRST_DELAY_S, LONGEST_DELAY_S = 5.0, 900.0


def retry_delay(attempt: int) -> float:
    """Return the seconds before the attempt after this one, which counts from 1.

    Doubled each time up to a quarter of an hour, and spread by half either way, so that what failed together does not
    come back together.
    """
    doubled = FIRST_DELAY_S * 2.0 ** min(attempt - 1, 16)
    return min(LONGEST_DELAY_S, doubled) * random.uniform(0.5, 1.5)  # noqa: S311 — a spread, not a secret


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
) -> list[int]:
    """Put work into the queue, by key, in the caller's transaction: rolled back, it was never there. Returns job ids.

    A key has one unfinished job at most. Work on a key that waits takes the newer payload; on one that is being worked
    on, it is done again afterwards.
    """
    if not jobs:
        return []
    connection.execute(statement("replace_dead_jobs"), {"tenant_id": owner.id, "keys": list(jobs)})
    # What is done again and again belongs to no request.
    traceparent = None if every is not None else tracing.current_traceparent()
    traced = {} if traceparent is None else {"traceparent": traceparent}
    values = {
        "tenant_id": owner.id,
        "tenant": owner.name,
        "collection": collection,
        "kind": kind,
        "keys": list(jobs),
        "payloads": [Jsonb({**payload, **traced}) for payload in jobs.values()],
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
    """Have work of these kinds done for a tenant again and again, where it is not already."""
    values = {
        "tenant_id": owner.id,
        "tenant": owner.name,
        "collection": collection,
        "kinds": list(every),
        "every_s": [pause.total_seconds() for pause in every.values()],
    }
    connection.execute(statement("enqueue_periodic"), values)


def permanently_failed(
    connection: psycopg.Connection, owner: TenantRef, source_etags: Mapping[str, str | None]
) -> dict[str, tuple[str, str]]:
    """Return why jobs on these keys failed for good on content with the same source etag.

    By key, error code and message. A failure whose reason may have passed is left out.
    """
    values = {
        "tenant_id": owner.id,
        "keys": list(source_etags),
        "source_etags": Jsonb(dict(source_etags)),
        "retryable": sorted(RETRY_WITH_BACKOFF | RETRY_ON_NEXT_SYNC),
    }
    return {key: (code, error) for key, code, error in connection.execute(statement("permanently_failed_jobs"), values)}


def lock_leases(connection: psycopg.Connection, tokens: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Return which of the jobs are still held, and keep them so until the caller's transaction ends."""
    with connection.cursor(row_factory=scalar_row) as cursor:
        return set(cursor.execute(statement("lock_leases"), {"tokens": list(tokens)}).fetchall())


def finish(
    connection: psycopg.Connection, outcomes: Mapping[uuid.UUID, Outcome], chunks: Mapping[uuid.UUID, int] | None = None
) -> None:
    """Finish jobs by token in the caller's transaction, which is that of their result.

    Raises LeaseLost where one is no longer held: the transaction must not commit.
    """
    if not outcomes:
        return
    counted = chunks or {}
    values = {
        "tokens": list(outcomes),
        "outcomes": [str(outcome) for outcome in outcomes.values()],
        "chunks": [counted.get(token, 0) for token in outcomes],
    }
    row = connection.execute(statement("finish_jobs"), values).fetchone()
    if row != (len(outcomes),):
        raise LeaseLost("a job was given to another worker, or cancelled, before its result was written")


class Queue:
    """The queue as workers and operators use it, each call a transaction of its own. Thread-safe."""

    def __init__(self, role: Role, *, lease_s: float, max_attempts: int, max_lost: int) -> None:
        self._role = role
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._max_lost = max_lost
        self._wake_at = 0.0

    @classmethod
    def open(cls, database: Database, settings: WorkerSettings) -> Self:
        """Return the queue of a database, with the limits of the settings."""
        return cls(
            database.worker, lease_s=settings.lease_s, max_attempts=settings.max_attempts, max_lost=settings.max_lost
        )

    def claim(self, limit: int, *, kinds: Sequence[str], worker: str) -> list[Job]:
        """Take up to `limit` jobs and hold them for a lease.

        What has become due, and what other workers left behind, goes back into the queue here, where nothing else is
        to be done and every `WAKE_S` seconds: rescue needs no process of its own.
        """
        values = {"limit": limit, "kinds": list(kinds), "worker": worker, "lease_s": self._lease_s}
        rows = [] if time.monotonic() >= self._wake_at else self._claim(values)
        if not rows:
            self._wake()
            rows = self._claim(values)
        names = ("tenant_id", "id", "tenant", "collection", "kind", "key", "payload", "token", "attempt", "lost")
        return [
            Job(**dict(zip(names, row[:10], strict=True)), runs=tuple(row[10]), waited_s=max(0.0, row[11]))
            for row in rows
        ]

    def _claim(self, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._role.queue_at_once() as connection:
            return connection.execute(statement("claim_jobs"), values).fetchall()

    def _wake(self) -> None:
        self._wake_at = time.monotonic() + WAKE_S
        with self._role.queue() as connection:
            connection.execute(statement("requeue_due_jobs"), {"max_lost": self._max_lost})

    def renew(self, tokens: Sequence[uuid.UUID]) -> set[uuid.UUID]:
        """Hold jobs for another lease. Returns those that are still held."""
        with self._role.queue() as connection, connection.cursor(row_factory=scalar_row) as cursor:
            values = {"tokens": list(tokens), "lease_s": self._lease_s}
            return set(cursor.execute(statement("renew_leases"), values).fetchall())

    def finish(self, outcomes: Mapping[uuid.UUID, Outcome]) -> None:
        """Finish jobs that leave nothing behind. Raises LeaseLost."""
        with self._role.queue() as connection:
            finish(connection, outcomes)

    def fail(self, job: Job, error: KosmosError, *, source: str, retry: bool) -> JobState | None:
        """Record why a job failed; with `retry`, and attempts left, it runs again later. None: it was not held."""
        again = retry and job.attempt < self._max_attempts
        values = {
            "token": job.token,
            "delay_s": retry_delay(job.attempt) if again else None,
            "source": storable(source),
            "code": error.code if isinstance(error, IngestionError) else type(error).__name__,
            "error": storable(str(error)),
        }
        with self._role.queue() as connection:
            row = connection.execute(statement("fail_job"), values).fetchone()
        return JobState(row[0]) if row else None

    def release(self, tokens: Sequence[uuid.UUID]) -> None:
        """Return jobs that were taken and not begun."""
        with self._role.queue() as connection:
            connection.execute(statement("release_jobs"), {"tokens": list(tokens)})

    def expire_leases(self, tokens: Sequence[uuid.UUID]) -> None:
        """End the leases of a process that is gone, without waiting for them to run out."""
        with self._role.queue() as connection:
            connection.execute(statement("expire_leases"), {"tokens": list(tokens)})

    def cancel(self, owner: TenantRef, ids: Sequence[int]) -> list[int]:
        """Cancel unfinished jobs; one that runs will not write its result. Returns those that were unfinished."""
        with self._role.queue() as connection, connection.cursor(row_factory=scalar_row) as cursor:
            return cursor.execute(statement("cancel_jobs"), {"tenant_id": owner.id, "ids": list(ids)}).fetchall()

    def retry(self, owner: TenantRef, ids: Sequence[int] | None = None) -> list[int]:
        """Put dead and cancelled jobs back into the queue, all of the tenant where none is named. Returns which."""
        values = {"tenant_id": owner.id, "ids": None if ids is None else list(ids)}
        with self._role.queue() as connection, connection.cursor(row_factory=scalar_row) as cursor:
            found = cursor.execute(statement("retry_jobs"), values).fetchall()
            connection.execute(statement("notify_workers"))
        return found

    def jobs(
        self,
        owner: TenantRef,
        *,
        ids: Sequence[int] | None = None,
        states: Sequence[JobState] | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[JobInfo]:
        """List a tenant's jobs, newest first; `before` is the last id of the page before."""
        values = {
            "tenant_id": owner.id,
            "ids": None if ids is None else list(ids),
            "states": None if states is None else [str(state) for state in states],
            "before": before,
            "limit": limit,
        }
        with self._role.queue() as connection, connection.cursor(row_factory=kwargs_row(_job_info)) as cursor:
            return cursor.execute(statement("list_jobs"), values).fetchall()

    def counts(self) -> list[JobCount]:
        """Count the jobs of all tenants by kind and state."""
        with self._role.queue() as connection:
            rows = connection.execute(statement("count_jobs")).fetchall()
        return [JobCount(kind=kind, state=JobState(state), count=n, oldest_s=age) for kind, state, n, age in rows]

    def unfinished(self, kinds: Sequence[str]) -> int:
        """Count the jobs that run or will: periodic ones that wait for their next time are not among them."""
        with self._role.queue() as connection:
            row = connection.execute(statement("unfinished_jobs"), {"kinds": list(kinds)}).fetchone()
        assert row is not None
        count: int = row[0]
        return count

    def now(self) -> datetime:
        """Return the server's time."""
        with self._role.queue() as connection:
            row = connection.execute(statement("server_time")).fetchone()
        assert row is not None
        time: datetime = row[0]
        return time

    def dead_since(self, since: datetime, kinds: Sequence[str]) -> int:
        """Count the jobs of all tenants that have failed for good since a time of the server's."""
        with self._role.queue() as connection:
            row = connection.execute(statement("dead_since"), {"since": since, "kinds": list(kinds)}).fetchone()
        assert row is not None
        count: int = row[0]
        return count

    def prune(self, *, keep_days: int, keep_dead_days: int) -> int:
        """Delete finished jobs older than that, up to ten thousand. Returns how many there were."""
        values = {"keep_days": keep_days, "keep_dead_days": keep_dead_days}
        with self._role.queue() as connection:
            return connection.execute(statement("prune_jobs"), values).rowcount


def _job_info(**columns: Any) -> JobInfo:
    return JobInfo(**{**columns, "state": JobState(columns["state"])})
