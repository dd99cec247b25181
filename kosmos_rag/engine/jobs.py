"""The jobs of one tenant: enqueue, list, retry, cancel."""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, IngestFailure, JobInfo, JobState, RunInfo, SourceDocument
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.ingestion.document import check_document, document_id
from kosmos_rag.ingestion.parts import split_etag
from kosmos_rag.ingestion.sources.names import default_name
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.ingestion.sources.spec import JsonLinesPermissions, validate_feed
from kosmos_rag.ingestion.state import load_parts
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.sync_runs import SyncRuns
from kosmos_rag.storage.queue.uploads import UploadStore
from kosmos_rag.storage.queue.writing import JobWriter
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, create_tenant

ALL_COLLECTIONS = "*"
"""The collection of jobs that are about a whole tenant."""
MAX_INTERVAL = timedelta(days=366)
"""Longest interval between two passes over a source."""


@name_wrong_arguments()
class TenantJobs:
    """The jobs of one tenant.

    New ones are for one of its collections. Thread-safe.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        queue: Queue,
        owner: TenantRef,
        collection: str,
        *,
        subject: str | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._queue = queue
        self._owner = owner
        self._collection = collection
        self._subject = subject

    def enqueue(
        self,
        item: SourceDocument | str | Path | Mapping[str, Any],
        *,
        prune: bool = True,
        root: str | None = None,
        every: timedelta | None = None,
        priority: int = 0,
        connection: psycopg.Connection | None = None,
    ) -> uuid.UUID:
        """Enqueue a document, file, folder or source spec for ingestion.

        Returns the job's id. Raises RequestError, SourceError, ConfigError, DatabaseError.

        Args:
            item: The document, path or spec.
            prune: Whether to remove documents that the source no longer has.
            root: Name of the root of a path, as in `Tenant.ingest`; a spec has its own. A root has one periodic sync:
                enqueued from another path, it is synchronised from there.
            every: Interval of the syncs of a source; None for one sync.
            priority: Jobs with a higher priority are claimed first.
            connection: Connection of the worker role, on which `kosmos.enter` named this tenant. The job is then part
                of its transaction: a rollback removes it. None for a transaction of its own.
        """
        work = self._validate(item, root=root, every=every)
        if connection is not None:
            return self._enqueue(connection, work, prune=prune, every=every, priority=priority)
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as worker_connection:
            return self._enqueue(worker_connection, work, prune=prune, every=every, priority=priority)

    def enqueue_permissions(
        self, feed: Mapping[str, Any], *, every: timedelta | None = None, priority: int = 0
    ) -> uuid.UUID:
        """Enqueue the application of a permission feed.

        Returns the job's id.

        A source with `permissions` enqueues its feed too; this gives the feed an interval of its own.

        Args:
            feed: spec of the feed, as docs/permissions.md describes it.
            every: interval between two passes; None for a single one.
            priority: jobs with a higher priority are claimed first.

        Raises:
            RequestError: the spec is malformed, or the interval out of range.
            DatabaseError: the job is not enqueued.
        """
        _check_interval(every)
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            self.ensure_tenant(connection)
            return self._enqueue_permissions(connection, feed, every=every, priority=priority)

    def _enqueue_permissions(
        self, connection: psycopg.Connection, feed: Mapping[str, Any], *, every: timedelta | None, priority: int
    ) -> uuid.UUID:
        spec = validate_feed(feed)
        if isinstance(spec, JsonLinesPermissions):
            spec = spec.model_copy(update={"path": spec.path.absolute()})  # a worker has another working folder
        jobs = {f"{kinds.PERMISSIONS} {self._collection} {spec.name}": {"feed": spec.model_dump(mode="json")}}
        writer = JobWriter(connection, self._owner)
        (job_id,) = writer.enqueue(self._collection, kinds.PERMISSIONS, jobs, every=every, priority=priority)
        return job_id

    def enqueue_upload(
        self,
        document: SourceDocument,
        upload_id: uuid.UUID,
        connection: psycopg.Connection,
        *,
        sha256: str,
        warning: str | None = None,
    ) -> uuid.UUID:
        """Enqueue a document whose bytes are stored already. Returns the job's id.

        Args:
            document: the document without its bytes.
            upload_id: the stored upload; `store_chunk` writes it.
            connection: a transaction of the worker role for this tenant.
            sha256: SHA-256 of the bytes, hexadecimal.
            warning: message that the job and its lists show.

        Raises:
            SourceError: the document cannot be stored.
            DatabaseError: the job is not enqueued.
        """
        stored = {"upload": str(upload_id), "source_etag": sha256}
        return self._enqueue_stored(document, stored | ({"warning": warning} if warning else {}), connection)

    def replaces_another_upload(self, source: str, sha256: str, connection: psycopg.Connection) -> bool:
        """Return whether a document with other bytes is stored under a name, or waits to be.

        Args:
            source: what the document would be stored under.
            sha256: SHA-256 of the bytes that are uploaded under it, hexadecimal.
            connection: a transaction of the worker role for this tenant.
        """
        key = self.document_id(source)
        values = {"tenant_id": self._owner.id, "document_id": key, "key": str(key), "sha256": sha256}
        queries = (statement("other_content_of_document"), statement("unfinished_job_of_key"))
        if any(connection.execute(query, values).fetchone() for query in queries):
            return True
        parts = load_parts(connection, self._owner.id, self._collection, [source])
        return any(split_etag(part.etag)[0] != sha256 for part in parts)

    def enqueue_file(self, document: SourceDocument, file_id: uuid.UUID, connection: psycopg.Connection) -> uuid.UUID:
        """Enqueue a document whose bytes are those of a stored file.

        The file outlives the job. Returns the job's id. Args and errors: see `enqueue_upload`.
        """
        return self._enqueue_stored(document, {"file": str(file_id)}, connection)

    def check(self, document: SourceDocument) -> None:
        """Raise SourceError for a document whose name, fields or size cannot be stored."""
        check_document(document, max_bytes=self._settings.ingestion.max_file_bytes)

    def document_id(self, source: str) -> uuid.UUID:
        """Return the id that a document of the collection has."""
        return document_id(self._owner.id, self._collection, source)

    def _enqueue_stored(
        self, document: SourceDocument, stored: Mapping[str, str], connection: psycopg.Connection
    ) -> uuid.UUID:
        self._validate(document, root=None, every=None)
        charged = {} if self._subject is None else {"subject": self._subject}
        return self._enqueue(connection, document, prune=True, every=None, priority=0, stored={**stored, **charged})

    def enqueue_job(
        self, kind: str, identity: Mapping[str, Any], payload: Mapping[str, Any], *, every: timedelta | None = None
    ) -> uuid.UUID:
        """Enqueue a job of any kind for the collection.

        Returns the job's id.

        Args:
            kind: one of `storage.queue.kinds`; a worker needs a handler for it.
            identity: what the job is about: a collection has one unfinished job for each kind and identity.
            payload: input of the handler, JSON; that of an unfinished job is replaced.
            every: interval between two runs; None for a single one.

        Raises:
            RequestError: the interval is out of range.
            DatabaseError: the job is not enqueued.
        """
        _check_interval(every)
        jobs = {f"{kind} {self._collection} {_digest(identity)}": payload}
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            self.ensure_tenant(connection)
            preset = self._preset_version(connection)
            writer = JobWriter(connection, self._owner)
            (job_id,) = writer.enqueue(self._collection, kind, jobs, every=every, preset=preset)
        return job_id

    def enqueue_tenant_job(
        self, connection: psycopg.Connection, kind: str, name: str, payload: Mapping[str, Any], *, every: timedelta
    ) -> None:
        """Enqueue a periodic job of the whole tenant, which no deletion of a collection cancels.

        In the caller's transaction. It runs at once, also where it waits for its next time. The tenant must exist:
        to create it here could bring an erased tenant back.

        Args:
            connection: a transaction of the worker role for this tenant.
            kind: a kind that a wing adds.
            name: what the job is about: there is one unfinished job for each kind and name.
            payload: input of the handler, JSON.
            every: interval between two runs.
        """
        JobWriter(connection, self._owner).enqueue(ALL_COLLECTIONS, kind, {f"{kind} {name}": payload}, every=every)

    def ensure_tenant(self, connection: psycopg.Connection) -> None:
        """Create the tenant where it is missing, and its periodic maintenance.

        Args:
            connection: a transaction of the worker role for this tenant.
        """
        create_tenant(connection, self._owner, now=datetime.now(UTC))
        JobWriter(connection, self._owner).enqueue_periodic(self._collection, kinds.periodic(self._settings.worker))

    def _preset_version(self, connection: psycopg.Connection) -> str | None:
        """Return the version of the collection's preset, and lock it.

        Until the transaction ends.
        """
        values = {"tenant_id": self._owner.id, "collection": self._collection}
        row = connection.execute(statement("share_preset"), values).fetchone()
        return None if row is None else Preset(name=row[0], content=row[1]).version

    def _validate(
        self, item: SourceDocument | str | Path | Mapping[str, Any], *, root: str | None, every: timedelta | None
    ) -> SourceDocument | dict[str, Any]:
        """Return the document or the plain spec. Raises RequestError, SourceError, ConfigError."""
        _check_interval(every)
        if root is not None and not isinstance(item, str | Path):
            raise RequestError("root is for a path; a spec has a key of that name, and a document its whole source")
        if isinstance(item, SourceDocument):
            if every is not None:
                raise RequestError(
                    "a document that is given as bytes has no source that can be read again; leave out `every`"
                )
            self.check(item)
            return item
        spec = item if isinstance(item, Mapping) else _folder_spec(Path(item), root)
        create_source(spec, self._settings.ingestion)
        plain: dict[str, Any] = json.loads(json.dumps(dict(spec), default=str))  # a path may be a Path
        return plain

    def _enqueue(
        self,
        connection: psycopg.Connection,
        item: SourceDocument | dict[str, Any],
        *,
        prune: bool,
        every: timedelta | None,
        priority: int,
        stored: Mapping[str, str] | None = None,
    ) -> uuid.UUID:
        self.ensure_tenant(connection)
        if isinstance(item, SourceDocument):
            kind, key = kinds.DOCUMENT, str(self.document_id(item.source))
            stored = stored or {"upload": str(UploadStore(connection, self._owner.id).store(item.data))}
            payload: dict[str, Any] = {**stored, "document": self._fields(item)}
        else:
            kind, key = kinds.SYNC, f"sync {self._collection} {_digest(_identity(item))}"
            payload = {"spec": item, "prune": prune}
            if "path" in item:
                self._refuse_other_path(connection, key, Path(item["path"]))
            if item.get("permissions") is not None:
                self._enqueue_permissions(connection, item["permissions"], every=every, priority=priority)
        preset = self._preset_version(connection)
        jobs, writer = {key: payload}, JobWriter(connection, self._owner)
        (job_id,) = writer.enqueue(self._collection, kind, jobs, every=every, priority=priority, preset=preset)
        return job_id

    def _refuse_other_path(self, connection: psycopg.Connection, key: str, path: Path) -> None:
        """Raise RequestError where another path of the same root is synchronised.

        A path that no longer exists was moved.
        """
        values = {"tenant_id": self._owner.id, "key": key}
        row = connection.execute(statement("path_of_unfinished_sync"), values).fetchone()
        if row is None or not (other := Path(row[1])).exists() or (path.exists() and path.samefile(other)):
            return
        raise RequestError(
            f"{other} and {path} have the same root, and job {row[0]} synchronises the first: each would remove the "
            "documents of the other; give one of them another root, or cancel the job"
        )

    @staticmethod
    def _fields(document: SourceDocument) -> dict[str, Any]:
        return {
            "source": document.source,
            "title": document.title,
            "metadata": dict(document.metadata),
            "acl": list(document.acl),
            "language": document.language,
            **({} if document.media_type is None else {"media_type": document.media_type}),
        }

    def find(
        self,
        *,
        ids: Sequence[uuid.UUID] | None = None,
        states: Sequence[JobState] | None = None,
        kinds: Sequence[str] | None = None,
        collection: str | None = None,
        before: uuid.UUID | None = None,
        limit: int = 50,
    ) -> list[JobInfo]:
        """List jobs, newest first. Raises RequestError for an unknown state, DatabaseError.

        Args:
            ids: Only these jobs; None for all.
            states: Only jobs in these states; None for all.
            kinds: Only jobs of these kinds; None for all.
            before: The last id of the previous page.
        """
        if states is not None:
            states = [JobState(state) for state in states]
        return self._queue.jobs(
            self._owner, ids=ids, states=states, kinds=kinds, collection=collection, before=before, limit=limit
        )

    def count_unclaimed(self) -> int:
        """Count the due jobs of the tenant that wait because no worker runs. Raises DatabaseError."""
        return self._queue.count_unclaimed(self._owner)

    def cancel(self, ids: Sequence[uuid.UUID]) -> list[uuid.UUID]:
        """Call off unfinished jobs, running ones too.

        Returns which were unfinished. Raises DatabaseError.
        """
        return self._queue.cancel(self._owner, ids)

    def retry(self, ids: Sequence[uuid.UUID] | None = None) -> list[uuid.UUID]:
        """Enqueue dead and cancelled jobs again: these, or all dead ones.

        Returns which.

        What newer work on the same document has replaced is not among them. Raises DatabaseError.
        """
        return self._queue.retry(self._owner, ids)

    def list_refused_sources(self) -> list[IngestFailure]:
        """Return why sources refused the credentials of their last pass. Raises DatabaseError.

        Recurring passes that failed as a whole are among them, of permission feeds too.
        """
        return list(SyncRuns(self._database.worker).list_refused(self._owner))

    def runs(self, *, run_id: uuid.UUID | None = None, limit: int = 20) -> list[RunInfo]:
        """List the passes over sources with their ledgers, newest first. Raises DatabaseError."""
        return SyncRuns(self._database.worker).list(self._owner, run_id=run_id, limit=limit)


def _folder_spec(path: Path, root: str | None) -> dict[str, Any]:
    spec = {"kind": "folder", "path": path.absolute()}  # a worker has another working folder
    return spec if root is None else {**spec, "root": root}


def _identity(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what identifies a source: of files the names, not the path."""
    if "path" not in spec:
        return spec
    return {**spec, "path": default_name(Path(spec["path"]), spec.get("root")), "root": None}


def _check_interval(every: timedelta | None) -> None:
    if every is not None and not timedelta() < every <= MAX_INTERVAL:
        raise RequestError(f"every is {every.total_seconds():g} s; give more than 0 seconds and at most 366 days")


def _digest(spec: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
