"""The queue as a test of it calls it, and as its administrator sees it."""

import uuid
from collections.abc import Callable

import psycopg

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import Job
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.tenants import TenantRef, tenant

ACME, BETA = tenant("acme"), tenant("beta")
KIND = "document"
LEASE_S = 60.0

Put = Callable[..., list[uuid.UUID]]


def take(queue: Queue, limit: int = 10, worker: str = "w") -> list[Job]:
    return queue.claim(limit, kinds=[KIND], worker=worker)


def claim_one(queue: Queue, worker: str = "w") -> Job:
    (job,) = take(queue, 1, worker)
    return job


def states(queue: Queue, owner: TenantRef = ACME) -> dict[str, str]:
    return {info.key: str(info.state) for info in reversed(queue.jobs(owner, limit=1000))}


def expire(database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET lease_until = now() - interval '1 second' WHERE state = 'running'")


def hasten(database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET run_at = now() WHERE state = 'scheduled'")
