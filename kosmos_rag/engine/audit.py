"""The log of one tenant, for those who may read it: what was asked, who saw what, what found nothing."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import (
    EVALUATOR,
    EVERYONE,
    AuditKind,
    AuditOutcome,
    AuditRecord,
    AuditReport,
    FailedQuestion,
    Sighting,
)
from kosmos_rag.storage.audit import seals
from kosmos_rag.storage.audit.log import load_records, min_event_id
from kosmos_rag.storage.audit.partitions import PartitionRotation
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.publish import text_hash
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 1, 1, tzinfo=UTC)
_MOST = 10_000
"""Rows of an answer at most."""


class TenantAudit:
    """The log of a tenant's retrievals, read as the worker role: for auditors, and not for who asks.

    Times without a time zone are refused; `since` is included, `until` is not. A `limit` is 1 to 10,000.
    """

    def __init__(self, database: Database, owner: TenantRef, months: PartitionRotation) -> None:
        self._database = database
        self._owner = owner
        self._months = months

    def find(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        subject: str | None = None,
        outcomes: Sequence[AuditOutcome] | None = None,
        before: uuid.UUID | None = None,
        limit: int = 50,
    ) -> list[AuditRecord]:
        """List records, the newest first.

        `before` is the last id of the page before. Raises RequestError, ConfigError without `database.worker_url`,
        DatabaseError.
        """
        first, last = _span(since, until)
        values = {
            "tenant_id": self._owner.id,
            "since": first,
            "until": last,
            "first_id": min_event_id(first),
            # Of the millisecond that `until` is in, some may be before it.
            "before_id": before or min_event_id(last + timedelta(milliseconds=1)),
            "subject": subject,
            "outcomes": None if outcomes is None else [str(outcome) for outcome in outcomes],
            "limit": _checked(limit),
        }
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            rows = connection.execute(statement("list_audit_events"), values).fetchall()
            return load_records(connection, self._owner.id, rows)

    def get(self, record_id: uuid.UUID) -> AuditRecord | None:
        """Return one record; None where the log has none of that id.

        Raises ConfigError, DatabaseError.
        """
        values = {"tenant_id": self._owner.id, "id": record_id}
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            rows = connection.execute(statement("audit_event_by_id"), values).fetchall()
            return next(iter(load_records(connection, self._owner.id, rows)), None)

    def who_saw(
        self,
        document: str | uuid.UUID,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 1000,
    ) -> list[Sighting]:
        """Return who was given passages of a document, by its id or its source, the newest first.

        A document that is gone is told of as well. Raises RequestError, ConfigError, DatabaseError.
        """
        first, last = _span(since, until)
        source = document if isinstance(document, str) else None
        values = {
            "tenant_id": self._owner.id,
            "document_id": None if isinstance(document, str) else document,
            "source": source,
            "source_hash": None if source is None else text_hash(source),
            "since": first,
            "until": last,
            "limit": _checked(limit),
        }
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            return [_sighting(row) for row in connection.execute(statement("audit_document_access"), values).fetchall()]

    def failed(
        self, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
    ) -> list[FailedQuestion]:
        """Return what found nothing, was refused or rated down, the most frequent first: work for content owners.

        Ratings are here whether a log is kept or not; what evaluations asked is left out.
        Raises RequestError, ConfigError, DatabaseError.
        """
        first, last = _span(since, until)
        values = {
            "tenant_id": self._owner.id,
            "since": first,
            "until": last,
            "limit": _checked(limit),
            "evaluator": EVALUATOR,
        }
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            rows = connection.execute(statement("failed_questions"), values).fetchall()
        return [
            FailedQuestion(
                question=row[0],
                question_sha256=row[1],
                times=row[2],
                refused=row[3],
                disliked=row[4],
                subjects=row[5],
                last_at=row[6],
                comments=tuple(row[7]),
            )
            for row in rows
        ]

    def unsealed_since(self) -> datetime | None:
        """Return when the oldest record was written that has no seal yet.

        Raises ConfigError, DatabaseError.
        """
        return seals.oldest_unsealed_at(self._database.worker, self._owner)

    def seal(self) -> int:
        """Seal what is not sealed, and look after the months of the log. Returns how many seals were made.

        The worker does it for each tenant every `worker.maintenance_every_s`. Raises ConfigError where months are due
        and `database.admin_url` is not set: what was sealed stays sealed. Raises DatabaseError.
        """
        made = seals.seal_events(self._database.worker, self._owner)
        self._months.rotate(self._owner, now=datetime.now(UTC))
        return len(made)

    def verify(self) -> AuditReport:
        """Recompute every seal, and name the first one that does not hold.

        Raises ConfigError, DatabaseError.
        """
        return seals.verify_seals(self._database.worker, self._owner)


def _checked(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST:
        raise RequestError(f"limit is {limit!r}; ask for 1 to {_MOST}")
    return limit


def _span(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    for given in (since, until):
        if given is not None and given.tzinfo is None:
            raise RequestError(f"the time {given.isoformat()} has no time zone; write {given.isoformat()}Z for UTC")
    return max(since or _FIRST, _FIRST), min(until or _LAST, _LAST)


def _sighting(row: Sequence[Any]) -> Sighting:
    return Sighting(
        at=row[0],
        retrieval_id=row[1],
        kind=AuditKind(row[2]),
        subject=row[3],
        principals=tuple(row[4]),
        question=row[5],
        source=row[6],
        document_id=row[7],
        version=row[8],
        chunk_ids=tuple(row[9]),
        rank=row[10],
        shown=row[11],
    )
