"""The audit log of one tenant, for its auditors."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import (
    EVALUATOR,
    EVERYONE,
    AuditKind,
    AuditOutcome,
    AuditRecord,
    AuditReport,
    DocumentAccess,
)
from kosmos_rag.core.types.serialize import Serializable
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.storage.audit import seals
from kosmos_rag.storage.audit.log import build_min_event_id, load_records
from kosmos_rag.storage.audit.partitions import PartitionRotation
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.erasure import verify_erasures
from kosmos_rag.storage.publish import text_hash
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_MIN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIME = datetime(9999, 1, 1, tzinfo=UTC)
_MAX_LIMIT = 10_000
"""Rows of an answer at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedQuestion(Serializable):
    """A question that the documents did not answer."""

    question: str | None
    """The search query, after the rewriting of a conversation."""
    question_sha256: str
    times: int
    """Number of results without hits or refused."""
    refused: int
    """Number of refusals; the others had no hits."""
    disliked: int
    """Number of down ratings of answers and passages."""
    subjects: int
    """Number of named readers."""
    last_at: datetime
    comments: tuple[str, ...]
    """Comments of ratings, the newest first; five at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureRecord(Serializable):
    """The record of an erasure, without the name of what was erased."""

    number: int
    at: datetime
    kind: str
    """What was erased: `tenant`, `subject`, `source` or `metadata`."""
    selector_sha256: str
    erased: Mapping[str, Any]
    """Rows by table."""
    retained: Mapping[str, Any]
    """Rows that are kept until their retention ends, by table."""
    sha256: str
    """Of this record and the one before it."""


@name_wrong_arguments()
class TenantAudit:
    """The audit log of a tenant, for auditors.

    Reads as the worker role. Times without a time zone are refused; `since` is included, `until` is not. A `limit` is 1
    to 10,000.
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

        Args:
            since: Earliest time.
            until: Latest time, excluded.
            subject: Restricts to one reader.
            outcomes: Restricts to these outcomes.
            before: Last id of the previous page.

        Raises:
            RequestError: A parameter is invalid.
            ConfigError: `database.worker_url` is not set.
            DatabaseError: The database cannot be read.
        """
        first, last = _span(since, until)
        values = {
            "tenant_id": self._owner.id,
            "since": first,
            "until": last,
            "first_id": build_min_event_id(first),
            # Of the millisecond that `until` is in, some may be before it.
            "before_id": before or build_min_event_id(last + timedelta(milliseconds=1)),
            "subject": subject,
            "outcomes": None if outcomes is None else [str(outcome) for outcome in outcomes],
            "limit": _check_limit(limit),
        }
        with self._rows_by_column() as (connection, cursor):
            rows = cursor.execute(statement("list_audit_events"), values).fetchall()
            return load_records(connection, self._owner.id, rows)

    def get(self, record_id: uuid.UUID) -> AuditRecord | None:
        """Return one record; None where the log has none of that id.

        Raises ConfigError, DatabaseError.
        """
        values = {"tenant_id": self._owner.id, "id": record_id}
        with self._rows_by_column() as (connection, cursor):
            rows = cursor.execute(statement("audit_event_by_id"), values).fetchall()
            return next(iter(load_records(connection, self._owner.id, rows)), None)

    def list_document_access(
        self,
        document: str | uuid.UUID,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 1000,
    ) -> list[DocumentAccess]:
        """List the results with passages of a document, the newest first.

        A deleted document is included.

        Args:
            document: Source or id of the document.
            since: Earliest time.
            until: Latest time, excluded.

        Raises:
            RequestError: A parameter is invalid.
            ConfigError: `database.worker_url` is not set.
            DatabaseError: The database cannot be read.
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
            "limit": _check_limit(limit),
        }
        with self._rows_by_column() as (_, cursor):
            return [_document_access(**row) for row in cursor.execute(statement("audit_document_access"), values)]

    def list_failed_questions(
        self, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
    ) -> list[FailedQuestion]:
        """List questions without answer or rated down, most frequent first.

        Ratings are included whether a log is kept or not; the queries of evaluations are left out.

        Args:
            since: Earliest time.
            until: Latest time, excluded.

        Raises:
            RequestError: A parameter is invalid.
            ConfigError: `database.worker_url` is not set.
            DatabaseError: The database cannot be read.
        """
        first, last = _span(since, until)
        values = {
            "tenant_id": self._owner.id,
            "since": first,
            "until": last,
            "limit": _check_limit(limit),
            "evaluator": EVALUATOR,
        }
        with self._rows_by_column() as (_, cursor):
            rows = cursor.execute(statement("failed_questions"), values).fetchall()
        return [FailedQuestion(**row | {"comments": tuple(row["comments"])}) for row in rows]

    def list_sealed(self, *, after: int = 0, limit: int = 500) -> list[tuple[int, AuditRecord]]:
        """List sealed records with their positions, in the order of the positions.

        No record gets a position below that of a seal later, so an export that continues after the last position
        loses none.

        Args:
            after: The last position of the previous page.

        Raises ConfigError where `database.worker_url` is not set, DatabaseError.
        """
        with self._rows_by_column() as (connection, cursor):
            seal = seals.find_last_seal(connection, self._owner.id)
            if seal is None:
                return []
            values = {
                "tenant_id": self._owner.id, "after": after, "last": seal.last_position, "limit": _check_limit(limit)
            }  # fmt: skip
            rows = cursor.execute(statement("audit_events_by_position"), values).fetchall()
            positions = [row["position"] for row in rows]
            return list(zip(positions, load_records(connection, self._owner.id, rows), strict=True))

    def list_erasures(self, *, after: int = 0) -> list[ErasureRecord]:
        """List the records of erasures whose number is above `after`.

        Raises ConfigError where `database.worker_url` is not set, DatabaseError.
        """
        with self._rows_by_column() as (_, cursor):
            records = cursor.execute(statement("erasures"), {"tenant_id": self._owner.id}).fetchall()
        return [ErasureRecord(**record) for record in records if record["number"] > after]

    @contextmanager
    def _rows_by_column(self) -> Iterator[tuple[psycopg.Connection, psycopg.Cursor[dict[str, Any]]]]:
        with (
            self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            yield connection, cursor

    def find_oldest_unsealed(self) -> datetime | None:
        """Return the time of the oldest unsealed record; None without one.

        Raises ConfigError, DatabaseError.
        """
        return seals.find_oldest_unsealed(self._database.worker, self._owner)

    def seal(self) -> int:
        """Seal new records and rotate the monthly partitions.

        Returns the number of new seals. The worker does it for each tenant every `worker.maintenance_every_s`. Raises
        ConfigError if partitions are due and `database.admin_url` is not set: what was sealed stays sealed. Raises
        DatabaseError.
        """
        new_seals = seals.seal_events(self._database.worker, self._owner)
        self._months.rotate(self._owner, now=datetime.now(UTC))
        return len(new_seals)

    def verify(self) -> AuditReport:
        """Verify all seals and erasure records; report the first invalid one.

        Raises ConfigError, DatabaseError.
        """
        report = seals.verify_seals(self._database.worker, self._owner)
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            erasures, head, problem = verify_erasures(connection, self._owner.id)
        return replace(report, erasures=erasures, erasure_head=head, problem=report.problem or problem)


def _check_limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_LIMIT:
        raise RequestError(f"limit is {limit!r}; ask for 1 to {_MAX_LIMIT}")
    return limit


def _span(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    for time in (since, until):
        if time is not None and time.tzinfo is None:
            raise RequestError(f"the time {time.isoformat()} has no time zone; write {time.isoformat()}Z for UTC")
    return max(since or _MIN_TIME, _MIN_TIME), min(until or _MAX_TIME, _MAX_TIME)


def _document_access(*, kind: str, principals: list[str], chunk_ids: list[uuid.UUID], **columns: Any) -> DocumentAccess:
    return DocumentAccess(kind=AuditKind(kind), principals=tuple(principals), chunk_ids=tuple(chunk_ids), **columns)
