"""Seals of the audit log: a hash chain that reveals changes.

It reveals changed, removed and inserted records.

Records are sealed in batches, in the order of their positions. A writer holds a shared lock on the log of its tenant
from before it draws a position until it commits. The sealer takes this lock exclusively for a moment: every position
drawn before that is of a committed record, or of none. Searches wait for nothing else.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

import psycopg
from psycopg.rows import dict_row, kwargs_row

from kosmos_rag.core.types import EVERYONE, AuditRecord, AuditReport
from kosmos_rag.storage.audit.log import load_records
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

# The hashed fields and their order never change: other fields would break every existing seal.
_RECORD = attrgetter(
    *("id", "at", "kind", "outcome", "collection", "subject", "principals", "question", "question_sha256"),
    *("search_query", "settings", "cached", "milliseconds", "follows"),
)
_PASSAGE = attrgetter("rank", "shown", "document_id", "version_id", "version", "source", "chunk_ids", "score")
PositionedRecord = tuple[int, AuditRecord]
"""Position and record. One sequence numbers the records of all tenants, and no tenant sees the positions."""

_BATCH_SIZE = 5_000
"""Maximum number of records in a seal: they are hashed in memory."""
_PAGE_SIZE = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    """A link of the hash chain over records up to a position."""

    number: int
    at: datetime
    month: date
    """First day of the month of all its records: retention drops whole months."""
    last_position: int
    rows: int
    rows_sha256: str
    sha256: str

    @classmethod
    def from_row(cls, *, at: datetime, **columns: Any) -> "Seal":
        """Build a seal from the columns of `audit_seals`."""
        return cls(at=at.astimezone(UTC), **columns)


def month_start(at: datetime | date) -> date:
    """Return the first day of the month of a time, in UTC."""
    day = at.astimezone(UTC).date() if isinstance(at, datetime) else at
    return day.replace(day=1)


def hash_records(rows: Iterable[PositionedRecord]) -> str:
    """Return the SHA-256 of records, each written as a line of JSON."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(_line(row))
    return digest.hexdigest()


def hash_seal(tenant_id: uuid.UUID, previous: Seal | None, seal: Seal) -> str:
    """Return the SHA-256 of a seal's fields and the previous hash.

    Args:
        previous: The previous seal; None for the first one.
    """
    fields = [previous.sha256 if previous else "", str(tenant_id), seal.number, seal.at, seal.month, seal.last_position]
    return hashlib.sha256(_json([*fields, seal.rows, seal.rows_sha256])).hexdigest()


def _line(row: PositionedRecord) -> bytes:
    position, record = row
    return _json([position, *_RECORD(record), [_PASSAGE(passage) for passage in record.passages]]) + b"\n"


def _json(value: Any) -> bytes:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return str(value)


def find_last_seal(connection: psycopg.Connection, tenant_id: uuid.UUID) -> Seal | None:
    """Return the newest seal of a tenant; None if it has none."""
    with connection.cursor(row_factory=kwargs_row(Seal.from_row)) as cursor:
        return cursor.execute(statement("last_seal"), {"tenant_id": tenant_id}).fetchone()


def seal_events(worker: ConnectionPool, owner: TenantRef) -> list[Seal]:
    """Seal all unsealed records of a tenant, and return the new seals.

    If another process seals the same tenant, the rest is left to it. Raises DatabaseError.
    """
    last = _read_committed_position(worker, owner)
    created: list[Seal] = []
    while batch := _seal_batch(worker, owner, last):
        created += batch
    return created


def find_oldest_unsealed(worker: ConnectionPool, owner: TenantRef) -> datetime | None:
    """Return the time of the oldest unsealed record.

    The result is None if all are sealed. Raises DatabaseError.
    """
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        before = find_last_seal(connection, owner.id)
        values = {"tenant_id": owner.id, "after": before.last_position if before else 0}
        row = connection.execute(statement("oldest_unsealed_event"), values).fetchone()
    assert row is not None, "an aggregate has one row"
    at: datetime | None = row[0]
    return at


def _read_committed_position(worker: ConnectionPool, owner: TenantRef) -> int:
    """Return a position before which no record is uncommitted.

    Every record of the tenant up to it is committed or never will be.
    """
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        # Two statements: the second one sees the positions that were drawn while the first one waited.
        connection.execute(statement("lock_audit_log"), {"tenant_id": owner.id})
        row = connection.execute(statement("last_audit_position")).fetchone()
    assert row is not None, "a sequence has one row"
    return int(row[0])


def _seal_batch(worker: ConnectionPool, owner: TenantRef, last: int) -> list[Seal]:
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        previous = find_last_seal(connection, owner.id)
        after = previous.last_position if previous else 0
        records = read_records(connection, owner.id, after=after, last=last, limit=_BATCH_SIZE)
        created = []
        for month, rows in groupby(records, key=lambda row: month_start(row[1].at)):
            seal = _build_seal(owner, previous, month, list(rows))
            if connection.execute(statement("insert_seal"), {"tenant_id": owner.id, **asdict(seal)}).fetchone() is None:
                return []  # another process seals this tenant
            created.append(seal)
            previous = seal
    return created


def read_records(
    connection: psycopg.Connection, tenant_id: uuid.UUID, *, after: int, last: int, limit: int
) -> list[PositionedRecord]:
    """Return records in the order of their positions.

    Args:
        connection: connection of the worker role, with the tenant set.
        after: position before the first record.
        last: position of the last record.
    """
    values = {"tenant_id": tenant_id, "after": after, "last": last, "limit": limit}
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(statement("audit_events_by_position"), values).fetchall()
    return list(zip((row["position"] for row in rows), load_records(connection, tenant_id, rows), strict=True))


def _build_seal(owner: TenantRef, previous: Seal | None, month: date, rows: Sequence[PositionedRecord]) -> Seal:
    draft = Seal(
        number=previous.number + 1 if previous else 1,
        at=datetime.now(UTC),
        month=month,
        last_position=rows[-1][0],
        rows=len(rows),
        rows_sha256=hash_records(rows),
        sha256="",
    )
    return replace(draft, sha256=hash_seal(owner.id, previous, draft))


def verify_seals(worker: ConnectionPool, owner: TenantRef) -> AuditReport:
    """Verify a tenant's seals, and report the first broken one.

    Records of expired months may be gone: retention writes its limit into the database, where no serving role may
    change it. Raises DatabaseError.
    """
    report = AuditReport(seals=0, rows=0, expired=0, unsealed=0, head=None, broken=None, problem=None, failing=0)
    for previous, seal in pairwise([None, *_read_seals(worker, owner)]):
        assert seal is not None, "only the first seal has no previous one"
        rows, problem = _verify_seal(worker, owner, previous, seal)
        report = _add_valid(report, seal, rows) if problem is None else _add_broken(report, seal, problem)
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        last = find_last_seal(connection, owner.id)
        values = {"tenant_id": owner.id, "after": last.last_position if last else 0}
        row = connection.execute(statement("count_unsealed_events"), values).fetchone()
    return replace(report, unsealed=row[0] if row else 0)


def _add_valid(report: AuditReport, seal: Seal, rows: int) -> AuditReport:
    return replace(
        report,
        seals=report.seals + 1,
        rows=report.rows + rows,
        expired=report.expired + (rows == 0),
        head=seal.sha256,
    )


def _add_broken(report: AuditReport, seal: Seal, problem: str) -> AuditReport:
    return replace(
        report,
        broken=report.broken or seal.number,
        problem=report.problem or problem,
        failing=report.failing + 1,
    )


def _read_expiry(worker: ConnectionPool, owner: TenantRef) -> date:
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        ((expired_before,),) = connection.execute(statement("audit_expired_before")).fetchall()
    return date.min if expired_before is None else expired_before.astimezone(UTC).date()


def _read_seals(worker: ConnectionPool, owner: TenantRef) -> Iterator[Seal]:
    after = 0
    while True:
        values = {"tenant_id": owner.id, "after": after, "limit": _PAGE_SIZE}
        with (
            worker.transaction(owner.id, [EVERYONE]) as connection,
            connection.cursor(row_factory=kwargs_row(Seal.from_row)) as cursor,
        ):
            page = cursor.execute(statement("seals"), values).fetchall()
        yield from page
        if len(page) < _PAGE_SIZE:
            return
        after = page[-1].number


def _verify_seal(worker: ConnectionPool, owner: TenantRef, previous: Seal | None, seal: Seal) -> tuple[int, str | None]:
    """Return the number of records of a seal, and its problem.

    The result is None if it is valid.
    """
    if seal.number != (previous.number if previous else 0) + 1:
        return 0, f"seal {seal.number} does not follow the one before it: seals are missing"
    if seal.sha256 != hash_seal(owner.id, previous, seal):
        return 0, f"seal {seal.number} of {seal.at:%Y-%m-%d %H:%M} was changed, or the one before it"
    after = previous.last_position if previous else 0
    # One more than the seal has: an inserted record must not be cut off.
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        rows = read_records(connection, owner.id, after=after, last=seal.last_position, limit=seal.rows + 1)
    # Read after the records: a concurrent rotation writes its limit before it drops records.
    if len(rows) < seal.rows and seal.month < _read_expiry(worker, owner):
        return 0, None
    return len(rows), _difference(seal, rows)


def _difference(seal: Seal, rows: list[PositionedRecord]) -> str | None:
    when = f"under seal {seal.number} of {seal.at:%Y-%m-%d %H:%M}"
    if len(rows) < seal.rows:
        return f"{seal.rows - len(rows)} of {seal.rows} records {when} were removed"
    if len(rows) > seal.rows:
        return f"records were put in later {when}, which is of {seal.rows}"
    if hash_records(rows) != seal.rows_sha256:
        return f"a record of the {seal.rows} {when} was changed"
    return None
