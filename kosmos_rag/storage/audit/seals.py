"""Seals over the log: a chain of hashes, so that a record that was changed, removed or put in later shows.

Records are sealed in batches, by their positions. Who writes one holds the tenant's log, shared, from before it gets
its position until it is committed; who seals takes it alone for a moment. All positions given out by then are those of
records that are there, or never will be, and questions wait for nothing else.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

import psycopg

from kosmos_rag.core.types import EVERYONE, AuditRecord
from kosmos_rag.storage.audit.log import records
from kosmos_rag.storage.pool import Role
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

# Which fields are hashed, and in which order, is for good: other ones would break every seal there is.
_RECORD = attrgetter(
    *("id", "at", "kind", "outcome", "collection", "subject", "principals", "question", "question_sha256"),
    *("search_query", "settings", "cached", "milliseconds", "follows"),
)
_PASSAGE = attrgetter("rank", "shown", "document_id", "version_id", "version", "source", "chunk_ids", "score")
Placed = tuple[int, AuditRecord]
"""A record with its position, which seals go by. It is of one sequence for all tenants, and shown to none of them."""

_BATCH = 5_000
"""Records of a seal at most: they are hashed in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    """What the records after the seal before are, up to a position."""

    number: int
    at: datetime
    month: date
    """The first day of the month that all of its records are of: months are dropped as a whole."""
    last_position: int
    rows: int
    rows_sha256: str
    sha256: str

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "Seal":
        """Return a seal as the table has it."""
        number, at, month, last_position, rows, rows_sha256, sha256 = row
        return cls(
            number=number,
            at=at.astimezone(UTC),
            month=month,
            last_position=last_position,
            rows=rows,
            rows_sha256=rows_sha256,
            sha256=sha256,
        )


def month_of(at: datetime | date) -> date:
    """Return the first day of the month, in UTC, of a point in time."""
    day = at.astimezone(UTC).date() if isinstance(at, datetime) else at
    return day.replace(day=1)


def hash_of(rows: Iterable[Placed]) -> str:
    """Return the SHA-256 of records in order, each a line of JSON."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(_line(row))
    return digest.hexdigest()


def chained(tenant_id: uuid.UUID, before: Seal | None, seal: Seal) -> str:
    """Return the SHA-256 that a seal must have: of what it says and of the seal before it."""
    told = [before.sha256 if before else "", str(tenant_id), seal.number, seal.at, seal.month, seal.last_position]
    return hashlib.sha256(_json([*told, seal.rows, seal.rows_sha256])).hexdigest()


def _line(row: Placed) -> bytes:
    position, record = row
    return _json([position, *_RECORD(record), [_PASSAGE(passage) for passage in record.passages]]) + b"\n"


def _json(value: Any) -> bytes:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return str(value)


def last_seal(connection: psycopg.Connection, tenant_id: uuid.UUID) -> Seal | None:
    """Return the newest seal of a tenant."""
    row = connection.execute(statement("last_seal"), {"tenant_id": tenant_id}).fetchone()
    return None if row is None else Seal.from_row(row)


def seal(worker: Role, owner: TenantRef) -> list[Seal]:
    """Seal all records of a tenant that are not sealed yet. Returns the new seals; beside another, what is left to it.

    Raises DatabaseError.
    """
    upto = _given_out(worker, owner)
    done: list[Seal] = []
    while new := _seal_batch(worker, owner, upto):
        done += new
    return done


def unsealed_since(worker: Role, owner: TenantRef) -> datetime | None:
    """Return when the oldest record was written that has no seal yet. Raises DatabaseError."""
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        before = last_seal(connection, owner.id)
        values = {"tenant_id": owner.id, "after": before.last_position if before else 0}
        row = connection.execute(statement("oldest_unsealed_event"), values).fetchone()
    assert row is not None, "an aggregate has one row"
    at: datetime | None = row[0]
    return at


def _given_out(worker: Role, owner: TenantRef) -> int:
    """Return a position such that all records of the tenant up to it are committed, and none of them will come."""
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        # Two statements: the second one sees what was given out while the first one waited.
        connection.execute(statement("lock_audit_log"), {"tenant_id": owner.id})
        row = connection.execute(statement("last_audit_position")).fetchone()
    assert row is not None, "a sequence has one row"
    return int(row[0])


def _seal_batch(worker: Role, owner: TenantRef, upto: int) -> list[Seal]:
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        before = last_seal(connection, owner.id)
        after = before.last_position if before else 0
        done = []
        for month, rows in groupby(
            sealed(connection, owner.id, after, upto, _BATCH), key=lambda row: month_of(row[1].at)
        ):
            made = _made(owner, before, month, list(rows))
            if connection.execute(statement("insert_seal"), {"tenant_id": owner.id, **asdict(made)}).fetchone() is None:
                return []  # another process seals this tenant
            done.append(made)
            before = made
    return done


def sealed(connection: psycopg.Connection, tenant_id: uuid.UUID, after: int, upto: int, limit: int) -> list[Placed]:
    """Return the records behind one position up to another, so many at most, in the order of positions."""
    values = {"tenant_id": tenant_id, "after": after, "upto": upto, "limit": limit}
    rows = connection.execute(statement("audit_events_by_position"), values).fetchall()
    return list(zip((row[-1] for row in rows), records(connection, tenant_id, rows), strict=True))


def _made(owner: TenantRef, before: Seal | None, month: date, rows: Sequence[Placed]) -> Seal:
    draft = Seal(
        number=before.number + 1 if before else 1,
        at=datetime.now(UTC),
        month=month,
        last_position=rows[-1][0],
        rows=len(rows),
        rows_sha256=hash_of(rows),
        sha256="",
    )
    return replace(draft, sha256=chained(owner.id, before, draft))
