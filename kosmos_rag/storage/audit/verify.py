"""Checking the log against its seals: those that do not hold are counted, and of the first it is said why."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date
from itertools import pairwise

from kosmos_rag.core.types import EVERYONE, AuditReport
from kosmos_rag.storage.audit.seals import Placed, Seal, chained, hash_of, last_seal, sealed
from kosmos_rag.storage.pool import Role
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_PAGE = 500


def check(worker: Role, owner: TenantRef) -> AuditReport:
    """Recompute the seals of a tenant, the first one first.

    Records of months that rotation has given up may be gone: it leaves the day in the database, where who serves cannot
    write it. Raises DatabaseError.
    """
    report = AuditReport(seals=0, rows=0, expired=0, unsealed=0, head=None, broken=None, problem=None, failing=0)
    for before, seal in pairwise([None, *_seals(worker, owner)]):
        assert seal is not None, "only the first of them has none before it"
        rows, problem = _check(worker, owner, before, seal)
        report = _holding(report, seal, rows) if problem is None else _failing(report, seal, problem)
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        last = last_seal(connection, owner.id)
        values = {"tenant_id": owner.id, "after": last.last_position if last else 0}
        row = connection.execute(statement("count_unsealed_events"), values).fetchone()
    return replace(report, unsealed=row[0] if row else 0)


def _holding(report: AuditReport, seal: Seal, rows: int) -> AuditReport:
    return replace(
        report,
        seals=report.seals + 1,
        rows=report.rows + rows,
        expired=report.expired + (rows == 0),
        head=seal.sha256,
    )


def _failing(report: AuditReport, seal: Seal, problem: str) -> AuditReport:
    return replace(
        report,
        broken=report.broken or seal.number,
        problem=report.problem or problem,
        failing=report.failing + 1,
    )


def _expired_before(worker: Role, owner: TenantRef) -> date:
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        ((told,),) = connection.execute(statement("audit_expired_before")).fetchall()
    return date.min if told is None else told.astimezone(UTC).date()


def _seals(worker: Role, owner: TenantRef) -> Iterator[Seal]:
    after = 0
    while True:
        values = {"tenant_id": owner.id, "after": after, "limit": _PAGE}
        with worker.transaction(owner.id, [EVERYONE]) as connection:
            page = [Seal.from_row(row) for row in connection.execute(statement("seals"), values).fetchall()]
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].number


def _check(worker: Role, owner: TenantRef, before: Seal | None, seal: Seal) -> tuple[int, str | None]:
    """Return how many records the seal still has, and what is wrong with it; None where it holds."""
    if seal.number != (before.number if before else 0) + 1:
        return 0, f"seal {seal.number} does not follow the one before it: seals are missing"
    if seal.sha256 != chained(owner.id, before, seal):
        return 0, f"seal {seal.number} of {seal.at:%Y-%m-%d %H:%M} was changed, or the one before it"
    after = before.last_position if before else 0
    # One more than there may be: a record that was put in must not be cut off.
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        rows = sealed(connection, owner.id, after, seal.last_position, seal.rows + 1)
    # Looked up behind the records: rotation, which may be at work, says first what it is about to drop.
    if len(rows) < seal.rows and seal.month < _expired_before(worker, owner):
        return 0, None
    return len(rows), _difference(seal, rows)


def _difference(seal: Seal, rows: list[Placed]) -> str | None:
    when = f"under seal {seal.number} of {seal.at:%Y-%m-%d %H:%M}"
    if len(rows) < seal.rows:
        return f"{seal.rows - len(rows)} of {seal.rows} records {when} were removed"
    if len(rows) > seal.rows:
        return f"records were put in later {when}, which is of {seal.rows}"
    if hash_of(rows) != seal.rows_sha256:
        return f"a record of the {seal.rows} {when} was changed"
    return None
