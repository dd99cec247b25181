"""The queue: jobs with leases and fencing tokens, fair between tenants.

They are claimed with `FOR UPDATE SKIP LOCKED`.

A job may run twice, but its effect is committed once: a worker finishes a job in the transaction that writes the
result, and that transaction verifies the token. docs/decisions/0012-own-queue.md has the reasons against a library.
"""

import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from psycopg.rows import kwargs_row, scalar_row

from kosmos_rag.core.config import WorkerSettings
from kosmos_rag.core.errors import (
    IngestionError,
    KosmosError,
    NodeUnavailable,
    is_disk_full,
)
from kosmos_rag.core.types import EVERYONE, EventType, Job, JobCount, JobInfo, JobState, Outcome, storable
from kosmos_rag.storage.binary import array_literal
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.events import record_events
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.writing import JobLeases, count_cancelled_jobs
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, read_server_time

_BY_REQUEST = "cancelled by request"
REQUEUE_INTERVAL_S = 0.5
FIRST_DELAY_S, LONGEST_DELAY_S = 5.0, 900.0
OUTAGE_DELAY_S = 60.0
"""Seconds until a job that a full disk or a lost node stopped is tried again, on average."""
OUTAGE_DAYS = 7
"""Age of a job from which on these use up attempts too."""
UNCLAIMED_S = 30.0
"""Seconds that a due job waits, and that no job ends, before no worker is taken to run."""


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


class Queue:
    """Claims, finishes and inspects jobs. Thread-safe.

    Each call has a transaction of its own.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        lease_s: float,
        max_attempts: int,
        max_lost: int,
        on_expired: Callable[[int], None] | None = None,
    ) -> None:
        self._pool = pool
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._max_lost = max_lost
        self._on_expired = on_expired
        self._requeue_at = 0.0

    @classmethod
    def open(
        cls, database: Database, settings: WorkerSettings, on_expired: Callable[[int], None] | None = None
    ) -> Self:
        """Return the queue of a database with the limits of the settings.

        Args:
            on_expired: Called with the number of expired leases whose jobs `claim` has returned to the queue.
        """
        return cls(
            database.worker,
            lease_s=settings.lease_s,
            max_attempts=settings.max_attempts,
            max_lost=settings.max_lost,
            on_expired=on_expired,
        )

    def claim(self, limit: int, *, kinds: Sequence[str], worker: str) -> list[Job]:
        """Claim up to `limit` jobs for the length of a lease.

        Due jobs and jobs with expired leases return to the queue here, every `REQUEUE_INTERVAL_S` seconds and when no
        job is queued: no separate process is needed for that.

        Args:
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
            ((_, expired),) = connection.execute(statement("requeue_due_jobs"), {"max_lost": self._max_lost}).fetchall()
        if expired and self._on_expired is not None:
            self._on_expired(expired)

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
            JobLeases(connection).finish(outcomes)

    def fail(self, job: Job, error: KosmosError, *, source: str, retry: bool) -> JobState | None:
        """Record a failure, and return the new state.

        The result is None if the lease was no longer valid. A full disk or a lost node is no fault of the job, and
        costs no attempt.

        Args:
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
                    events.add(job.collection, EventType.FAILED, [entry])
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
        values = {"tenant_id": owner.id, "ids": list(ids), "keys": None, "collection": None}
        others = {"documents": True, "kept": [], "reason": _BY_REQUEST}
        with self._pool.untenanted() as connection:
            cancelled = connection.execute(statement("cancel_jobs"), values | others).fetchall()
            count_cancelled_jobs(connection, owner.id, [run_id for _, run_ids in cancelled for run_id in run_ids])
        return [job_id for job_id, _ in cancelled]

    def retry(self, owner: TenantRef, ids: Sequence[uuid.UUID] | None = None) -> list[uuid.UUID]:
        """Requeue dead and cancelled jobs, and return their ids.

        Without `ids` all dead ones of the tenant. Of a key the last one is queued, unless newer work has replaced it.
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
            before: last id of the previous page.
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

    def count_dead(self, limit: int = 20) -> list[tuple[str, int, str | None]]:
        """Return tenants with dead jobs, how many, and their most frequent code.

        Those with most of them first.
        """
        with self._pool.untenanted() as connection:
            return connection.execute(statement("count_dead_jobs"), {"limit": limit}).fetchall()

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

    def list_followed_syncs(self) -> list[tuple[TenantRef, str, str, Mapping[str, Any]]]:
        """Return owner, collection, key and payload of the periodic syncs whose sources know their changes."""
        with self._pool.untenanted() as connection:
            rows = connection.execute(statement("list_followed_syncs"), {"kind": kinds.SYNC}).fetchall()
        return [(TenantRef(id=row[0], name=row[1]), *row[2:]) for row in rows]

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

        Recurring passes that were cancelled by request stay: `retry` resumes them.

        Args:
            keep_days: days to keep done and cancelled jobs.
            keep_dead_days: days to keep dead jobs.
        """
        values = {"keep_days": keep_days, "keep_dead_days": keep_dead_days}
        paused = {"passes": list(kinds.PASSES), "by_request": _BY_REQUEST}
        with self._pool.untenanted() as connection:
            return connection.execute(statement("prune_jobs"), values | paused).rowcount


def _job(*, sync_run_ids: list[uuid.UUID], waited_s: float, **columns: Any) -> Job:
    return Job(runs=tuple(sync_run_ids), waited_s=max(0.0, waited_s), **columns)


def _job_info(**columns: Any) -> JobInfo:
    return JobInfo(**{**columns, "state": JobState(columns["state"])})
