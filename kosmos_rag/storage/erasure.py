"""Erase documents, subjects and tenants, and record each erasure.

The records form a chain that `audit verify` checks.

An erasure is one transaction of the worker role. Its record has counts and the SHA-256 of the selector: it must not
repeat the name that was erased. The audit log is exempt, since nobody may change it: the record has its retention.
"""

import hashlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from types import MappingProxyType
from typing import Any, Protocol, Self

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from kosmos_rag.core.errors import RequestError, StatementFailed
from kosmos_rag.core.stored_files import uploader_principal
from kosmos_rag.core.types import EVERYONE, ErasureKind, ErasureReport, RetainedRows, hash_text, is_text
from kosmos_rag.storage.audit.partitions import add_months
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.errors import connect_administrator
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.publish import remove_documents
from kosmos_rag.storage.queue.uploads import UploadStore
from kosmos_rag.storage.queue.writing import count_cancelled_jobs
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, create_tenant

TENANT_TABLES = (
    *("vector_store_files", "file_batches", "vector_stores", "files", "usage"),
    *("jobs", "sync_runs", "uploads", "idempotency_keys", "api_keys", "feedback", "monitor_samples", "monitor_runs"),
    *("experiment_results", "experiments", "evaluation_results", "evaluations", "index_events", "postings"),
    *("segments", "indexes", "unsegmented_terms", "lexemes", "acl_statistics", "embeddings", "chunks", "filter_terms"),
    *(
        "unanswered_questions",
        "judged_questions",
        "answer_samples",
        "webhook_dead_letters",
        "webhook_subscribers",
        "scim_members",
        "scim_resources",
    ),
    *(
        "document_permissions",
        "permission_feeds",
        "document_versions",
        "documents",
        "collection_changes",
        "collection_statistics",
        "collection_presets",
        "embedding_spaces",
        "events",
        "event_streams",
        "tenants",
    ),
)
"""Tables of a tenant in an order that their references allow."""
EXEMPT_TABLES = ("audit_events", "audit_passages", "audit_seals", "erasures")
"""Tables that outlive a tenant: the audit log and the records of erasures."""

_ATTEMPTS = 3
"""Attempts to erase what is written to at the same time."""
_OVERLAPS = ("23001", "23503", "40P01")
"""Codes of violated foreign keys and of a deadlock: another transaction has written rows of the tenant."""
_RELOAD_POLL_S = 0.05
_ESCAPED = str.maketrans({"%": r"\%", "_": r"\_", "\\": r"\\", "*": "%", "?": "_"})
_WILDCARDS = {"*": ".*", "?": "."}


@dataclass(frozen=True, kw_only=True, slots=True)
class Selector:
    """What to erase of a tenant.

    Create it with `of_reader`, `of_sources` or `of_metadata`.
    """

    kind: ErasureKind
    text: str
    """The selector as requested."""
    subject: str | None = None
    pattern: str | None = None
    """Pattern of LIKE for sources."""
    key: str | None = None
    value: str | None = None

    @classmethod
    def of_reader(cls, subject: str) -> Self:
        """Select what is stored about a reader. Raises RequestError."""
        return cls(kind=ErasureKind.SUBJECT, text=_require_text("subject", subject), subject=subject)

    @classmethod
    def of_sources(cls, glob: str) -> Self:
        """Select documents by source.

        `*` is any text, `?` one character. Raises RequestError.
        """
        text = _require_text("source", glob)
        return cls(kind=ErasureKind.SOURCE, text=text, pattern=text.translate(_ESCAPED))

    @classmethod
    def of_metadata(cls, key: str, value: str) -> Self:
        """Select documents with this metadata value.

        A list that contains the value matches too. Raises RequestError.
        """
        _require_text("metadata key", key)
        text = f"{key}={_require_text('metadata value', value)}"
        return cls(kind=ErasureKind.METADATA, text=text, key=key, value=value)


def _build_mention(name: str, wildcards: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a regular expression for texts that have a name as a word of its own."""
    escaped = (wildcards.get(each, f"\\{each}" if each.isascii() and not each.isalnum() else each) for each in name)
    return rf"(?<![[:alnum:]]){''.join(escaped)}(?![[:alnum:]])"


def _require_text(kind: str, text: str) -> str:
    if not is_text(text) or not text:
        raise RequestError(f"the {kind} to erase is {str(text)[:80]!r}; give a text")
    return text


class _Rollback(Exception):
    """Ends the transaction of a preview."""


class _Removal(Protocol):
    """Removes the selected rows in a transaction."""

    def __call__(
        self, connection: psycopg.Connection, counts: Counter[str], events: EventBuffer
    ) -> tuple[Sequence[RetainedRows], str]:
        """Remove rows, count them by table, and add their events.

        Return retained rows and a warning, empty for none.
        """
        ...


class ErasureStore:
    """Erases rows of one tenant and records it. Thread-safe."""

    def __init__(self, database: Database, owner: TenantRef, *, keep_audit_months: int) -> None:
        self._database = database
        self._owner = owner
        self._keep_audit_months = keep_audit_months

    def erase(self, selector: Selector, *, preview: bool) -> ErasureReport:
        """Erase what the selector selects. Raises DatabaseError, and ConfigError without `database.worker_url`.

        Args:
            preview: Count only; nothing is changed.
        """

        def remove(
            connection: psycopg.Connection, counts: Counter[str], events: EventBuffer
        ) -> tuple[Sequence[RetainedRows], str]:
            if selector.kind is ErasureKind.SUBJECT:
                return self._erase_subject(connection, selector, counts), ""
            return self._erase_documents(connection, selector, counts, events)

        return self._run(selector.kind, selector.text, remove, preview=preview)

    def erase_tenant(self, *, preview: bool) -> ErasureReport:
        """Erase the tenant with everything but the audit log. Raises DatabaseError, ConfigError."""

        def remove(
            connection: psycopg.Connection,
            counts: Counter[str],
            events: EventBuffer,  # noqa: ARG001 — there is no reader left
        ) -> tuple[Sequence[RetainedRows], str]:
            values = {"tenant_id": self._owner.id}
            retained = self._count_retained(connection, subject=None, document_ids=None)
            # Jobs first: a running publication has locked its job, then its collection.
            counts["jobs"] += connection.execute(statement("erase_jobs"), values).rowcount
            connection.execute(statement("lock_collections"), values).fetchall()
            # A publication may be about to create the tenant: there must be a row to lock.
            created = create_tenant(connection, self._owner, now=datetime.now(UTC))
            connection.execute(statement("lock_tenant"), values)
            connection.execute(statement("clear_live_space"), values)
            for table in TENANT_TABLES:
                counts[table] += connection.execute(_delete_rows(table), values).rowcount
            counts["tenants"] -= created
            return retained, ""

        return self._run(ErasureKind.TENANT, self._owner.name, remove, preview=preview)

    def _run(self, kind: ErasureKind, selector: str, remove: _Removal, *, preview: bool) -> ErasureReport:
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._attempt(kind, selector, remove, preview=preview)
            except StatementFailed as error:
                # A publication has locked a collection that is newer than the lock of all collections, and waits for
                # the tenant: the next attempt locks it first. Or a deletion has locked failed jobs in another order.
                if error.sqlstate not in _OVERLAPS:
                    raise
        return self._attempt(kind, selector, remove, preview=preview)

    def _attempt(self, kind: ErasureKind, selector: str, remove: _Removal, *, preview: bool) -> ErasureReport:
        counts: Counter[str] = Counter()
        at = datetime.now(UTC)
        number, sha256 = None, None
        try:
            with self._database.worker.transaction_with_events(self._owner.id, [EVERYONE]) as (connection, events):
                connection.execute(statement("no_statement_timeout"))
                connection.execute(statement("lock_erasures"), {"tenant_id": self._owner.id})
                retained, warning = remove(connection, counts, events)
                counts = +counts
                if preview:
                    raise _Rollback
                number, sha256 = self._record(connection, kind, selector, at, counts, retained)
        except _Rollback:
            pass
        return ErasureReport(
            tenant=self._owner.name,
            kind=kind,
            selector=selector,
            at=at,
            erased=dict(counts),
            retained=tuple(retained),
            warnings=(warning,) if warning else (),
            number=number,
            sha256=sha256,
        )

    def _erase_subject(
        self, connection: psycopg.Connection, selector: Selector, counts: Counter[str]
    ) -> Sequence[RetainedRows]:
        values = {"tenant_id": self._owner.id, "subject": selector.subject}
        # Jobs first: what a job charges after this has no name.
        counts["jobs"] += connection.execute(statement("erase_subject_jobs"), values).rowcount
        counts["feedback"] += connection.execute(statement("erase_subject_feedback"), values).rowcount
        counts["monitor_samples"] += connection.execute(statement("erase_subject_samples"), values).rowcount
        counts["unanswered_questions"] += connection.execute(statement("erase_subject_questions"), values).rowcount
        counts["answer_samples"] += connection.execute(statement("erase_subject_answers"), values).rowcount
        for table, text in (
            ("evaluation_results", statement("erase_subject_results")),
            ("judged_questions", statement("erase_subject_judgements")),
            ("judged_questions", statement("erase_subject_of_judgements")),
        ):
            counts[table] += connection.execute(text, values).rowcount
        counts["usage"] += connection.execute(statement("erase_subject_usage"), values).rowcount
        uploader = {**values, "uploader": uploader_principal(selector.text)}
        counts["files"] += connection.execute(statement("erase_uploader"), uploader).rowcount
        return self._count_retained(connection, subject=selector.subject, document_ids=())

    def _erase_documents(
        self, connection: psycopg.Connection, selector: Selector, counts: Counter[str], events: EventBuffer
    ) -> tuple[Sequence[RetainedRows], str]:
        values: dict[str, Any] = {
            "tenant_id": self._owner.id,
            "pattern": selector.pattern,
            "key": selector.key,
            "value": selector.value,
        }
        connection.execute(statement("lock_job_errors"), values)
        rows, job_ids = self._erase_jobs(connection, values)
        mentions = {source: _build_mention(source) for source in values["sources"]}
        if selector.kind is ErasureKind.SOURCE:
            mentions[""] = _build_mention(selector.text, _WILDCARDS)
        values |= {"mentioned": list(mentions), "mentions": list(mentions.values())}
        # Before the locks of collections: a pass has locked its job, and waits for them.
        counts["jobs"] += connection.execute(statement("erase_job_errors"), values).rowcount
        retained = self._count_retained(connection, subject=None, document_ids=values["document_ids"])
        counts["jobs"] += len(job_ids)
        counts["idempotency_keys"] += connection.execute(
            statement("erase_idempotency_keys_of_jobs"), values | {"job_ids": job_ids}
        ).rowcount
        counts["files"] += connection.execute(statement("erase_files"), values).rowcount
        stored = connection.execute(statement("rows_of_documents"), values).fetchone()
        assert stored is not None, "a selection of counts has one row"
        counts.update(dict(zip(("document_versions", "chunks", "embeddings"), stored, strict=True)))
        for collection, group in groupby(rows, key=lambda row: row[1]):
            ids = [document_id for document_id, _, _ in group]
            counts["documents"] += remove_documents(
                connection, self._owner.id, ids, collection=collection, events=events
            )
        # After the locks of collections, as in publications.
        count_cancelled_jobs(connection, self._owner.id, values.get("run_ids", ()))
        counts["uploads"] += UploadStore(connection, self._owner.id).delete_abandoned(age=timedelta())
        for table, text in (
            ("document_permissions", statement("erase_document_permissions")),
            ("sync_runs", statement("erase_sync_failures")),
            ("sync_runs", statement("erase_sync_errors")),
            ("events", statement("erase_event_names")),
            ("events", statement("erase_event_errors")),
            ("feedback", statement("erase_document_feedback")),
            ("feedback", statement("erase_comments")),
            ("evaluation_results", statement("erase_results_of_documents")),
            ("judged_questions", statement("erase_judged_documents")),
            ("answer_samples", statement("erase_answers_from_documents")),
        ):
            counts[table] += connection.execute(text, values).rowcount
        self._erase_places(connection, selector, values, counts)
        ((mirrors,),) = connection.execute(statement("mirrors_of_tenant"), values).fetchall()
        warning = (
            f"{mirrors} sources are mirrored: a document that is still in one is ingested again; delete it there first"
        )
        return retained, warning if mirrors else ""

    @staticmethod
    def _erase_places(
        connection: psycopg.Connection, selector: Selector, values: dict[str, Any], counts: Counter[str]
    ) -> None:
        """Erase the names of erased documents in evaluations and in reasons of monitor runs."""
        sources = {*values["sources"]}
        if selector.kind is ErasureKind.SOURCE and not {"*", "?"} & {*selector.text}:
            # A document that was deleted before has no row.
            sources.add(selector.text)
        names = {name for source in sources for name in _list_names(source)}
        # What else is called so: a short name may be the whole source of another document.
        rows = connection.execute(statement("sources_in_use"), values | {"names": sorted(names)})
        values["names"] = sorted((names - {source for (source,) in rows}) | sources)
        values["places"] = [place for (place,) in connection.execute(statement("places_of_erased_documents"), values)]
        if values["places"]:
            for table, text in (
                ("evaluation_results", statement("erase_evaluated_places")),
                ("monitor_runs", statement("erase_places_of_reasons")),
            ):
                counts[table] += connection.execute(text, values).rowcount

    def _erase_jobs(
        self, connection: psycopg.Connection, values: dict[str, Any]
    ) -> tuple[list[tuple[uuid.UUID, str, str]], list[uuid.UUID]]:
        """Erase the jobs of the documents to erase.

        Returns id, collection and source of the documents, and the ids of the jobs.

        A running publication has locked its job, then its collection, so the jobs are first. To erase one may wait for
        a publication: what it has stored meanwhile is selected again.
        """
        job_ids: list[uuid.UUID] = []
        while True:
            rows = self._select_documents(connection, values)
            erased = connection.execute(statement("erase_document_jobs"), values).fetchall()
            if not erased:
                return rows, job_ids
            job_ids += [job_id for job_id, *_ in erased]
            # Of documents that failed before they had a row, too.
            values["job_keys"] = [*values.get("job_keys", ()), *[key for _, key, *_ in erased]]
            values["job_sources"] = [*values.get("job_sources", ()), *[source for _, _, source, _ in erased if source]]
            values["run_ids"] = [*values.get("run_ids", ()), *[run for *_, run_ids in erased for run in run_ids]]

    @staticmethod
    def _select_documents(connection: psycopg.Connection, values: dict[str, Any]) -> list[tuple[uuid.UUID, str, str]]:
        """Return id, collection and source of the documents to erase.

        Adds their ids and sources to `values`, and the stored files that they were made from. What was made from such a
        file in another collection has the same text, and is erased too.
        """
        rows = connection.execute(statement("documents_to_erase"), values).fetchall()
        values["document_ids"] = [document_id for document_id, _, _ in rows]
        of_jobs = connection.execute(statement("files_of_jobs_to_erase"), values).fetchall()
        # Jobs that were erased before name none any more.
        values["job_files"] = [*values.get("job_files", ()), *[file_id for (file_id,) in of_jobs]]
        values["file_ids"] = [file_id for (file_id,) in connection.execute(statement("files_to_erase"), values)]
        rows = sorted({*rows, *connection.execute(statement("documents_of_files"), values)}, key=lambda row: row[1:])
        ids = [document_id for document_id, _, _ in rows]
        attached = [document_id for (document_id,) in connection.execute(statement("attached_documents"), values)]
        values |= {
            "document_ids": ids,
            "keys": sorted({*map(str, (*ids, *attached)), *values.get("job_keys", ())}),
            "sources": sorted({*(source for _, _, source in rows), *values.get("job_sources", ())}),
        }
        return rows

    def _count_retained(
        self, connection: psycopg.Connection, *, subject: str | None, document_ids: Sequence[uuid.UUID] | None
    ) -> Sequence[RetainedRows]:
        """Count the rows of the audit log that an erasure leaves.

        Args:
            connection: Of the worker role.
            subject: Whose events; None for all.
            document_ids: Whose passages; None for all.
        """
        values = {
            "tenant_id": self._owner.id,
            "subject": subject,
            "document_ids": None if document_ids is None else list(document_ids),
        }
        retained = []
        tables = [("audit_passages", statement("retained_audit_passages"))]
        if subject is not None or document_ids is None:
            tables.insert(0, ("audit_events", statement("retained_audit_events")))
        for table, text in tables:
            ((rows, newest),) = connection.execute(text, values).fetchall()
            if rows:
                until = add_months(newest.astimezone(UTC).date(), self._keep_audit_months + 1)
                retained.append(RetainedRows(table=table, rows=rows, until=until))
        return retained

    def _record(
        self,
        connection: psycopg.Connection,
        kind: ErasureKind,
        selector: str,
        at: datetime,
        erased: Mapping[str, int],
        retained: Sequence[RetainedRows],
    ) -> tuple[int, str]:
        stored = _read_records(connection, self._owner.id)
        previous = stored[-1]["sha256"] if stored else ""
        record = {
            "number": len(stored) + 1,
            "at": at,
            "kind": str(kind),
            "selector_sha256": hash_text(selector),
            "erased": dict(erased),
            "retained": {rows.table: {"rows": rows.rows, "until": rows.until.isoformat()} for rows in retained},
        }
        sha256 = _hash(self._owner.id, previous, record)
        values = record | {"erased": Jsonb(record["erased"]), "retained": Jsonb(record["retained"]), "sha256": sha256}
        connection.execute(statement("insert_erasure"), {"tenant_id": self._owner.id, **values})
        return len(stored) + 1, sha256


def _list_names(source: str) -> Iterator[str]:
    """Return the names of a source in question files: it or its end, also without extension."""
    parts = source.split("/")
    for start in range(len(parts)):
        name = "/".join(parts[start:])
        stem, _, extension = name.rpartition(".")
        yield from filter(None, (name, "" if "/" in extension else stem))


def _delete_rows(table: str) -> sql.Composed:
    return sql.SQL("DELETE FROM {} t WHERE t.tenant_id = %(tenant_id)s").format(sql.Identifier("kosmos", table))


def _read_records(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[dict[str, Any]]:
    names = ("number", "at", "kind", "selector_sha256", "erased", "retained", "sha256")
    rows = connection.execute(statement("erasures"), {"tenant_id": tenant_id}).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]


def _hash(tenant_id: uuid.UUID, previous: str, record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record and the previous hash."""
    names = ("number", "kind", "selector_sha256", "erased", "retained")
    at = record["at"].astimezone(UTC).isoformat(timespec="microseconds")
    fields = [previous, str(tenant_id), at, *(record[name] for name in names)]
    text = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def verify_erasures(connection: psycopg.Connection, tenant_id: uuid.UUID) -> tuple[int, str | None, str | None]:
    """Recompute the chain of records.

    Return the number of valid records, the hash of the last one, and the first problem.
    """
    previous = ""
    for number, record in enumerate(_read_records(connection, tenant_id), start=1):
        if record["number"] != number:
            return number - 1, previous or None, f"the record of erasure {number} is missing"
        if record["sha256"] != _hash(tenant_id, previous, record):
            return number - 1, previous or None, f"the record of erasure {number} was changed, or the one before it"
        previous = record["sha256"]
    return number if previous else 0, previous or None, None


def rewrite_files(superuser_conninfo: str) -> None:
    """Rewrite all tables and the write-ahead log.

    No file of the server keeps erased rows then.

    DELETE and VACUUM leave the bytes of a row in its page until another row needs the space: VACUUM FULL writes each
    table again, under a lock that excludes readers. The statistics of the planner have values of columns, texts of
    chunks among them. They are deleted first: ANALYZE would keep those of a table that is empty now. The server also
    keeps old files of its log, under new names, for later use: with `wal_recycle` off it removes them instead, once all
    of them have been written over.

    Raises DatabaseError where a table cannot be rewritten.
    """
    with connect_administrator(superuser_conninfo, autocommit=True) as connection:
        connection.execute(sql.SQL("SET statement_timeout = 0"))
        connection.execute(statement("delete_planner_statistics"))
        for table in (*TENANT_TABLES, *EXEMPT_TABLES):
            connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier("kosmos", table)))
        connection.execute(sql.SQL("VACUUM (FULL) {}").format(sql.Identifier("pg_catalog", "pg_statistic")))
        connection.execute(sql.SQL("ALTER SYSTEM SET wal_recycle = off"))
        try:
            _reload(connection, "off")
            ((files,),) = connection.execute(statement("count_wal_files")).fetchall()
            for _ in range(files + 1):
                connection.execute(statement("switch_wal_file"))
            # The log since the last checkpoint but one stays for a recovery.
            for _ in range(2):
                connection.execute(sql.SQL("CHECKPOINT"))
        finally:
            connection.execute(sql.SQL("ALTER SYSTEM RESET wal_recycle"))
            _reload(connection, "on")


def _reload(connection: psycopg.Connection, value: str) -> None:
    """Reload the configuration and wait until it applies.

    This session then has the new value of `wal_recycle`.
    """
    connection.execute(statement("reload_configuration"))
    while connection.execute(statement("wal_recycle")).fetchone() != (value,):
        time.sleep(_RELOAD_POLL_S)
    time.sleep(_RELOAD_POLL_S)  # for the checkpointer, which reads the file at the same signal
