"""Jobs about a source: list it, put what is new or changed into the queue, remove what is gone, keep the ledger."""

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from kosmos_rag.errors import DatabaseError, KosmosError
from kosmos_rag.ingestion.pipeline import Ingestor
from kosmos_rag.ingestion.prepare import document_id
from kosmos_rag.jobs import kinds
from kosmos_rag.jobs.ledger import note, open_run
from kosmos_rag.jobs.queue import enqueue, finish
from kosmos_rag.records import EVERYONE, IngestFailure, Job, Outcome
from kosmos_rag.sources import Entry, Listing, open_source
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.marks import marks
from kosmos_rag.storage.publishing import remove
from kosmos_rag.storage.tenancy import Tenant
from kosmos_rag.worker import documents
from kosmos_rag.worker.desk import Counts, Desk

log = logging.getLogger("kosmos_rag.worker")

SLICE = 500
"""Entries looked at in one transaction."""


class _Interrupted(Exception):
    """The worker is to stop, or the job is another's."""


class SyncWork:
    """Brings a collection up to date with a source."""

    def __init__(self, database: Database, ingestor: Ingestor) -> None:
        self._database = database
        self._ingestor = ingestor

    def run(self, job: Job, desk: Desk) -> None:
        """Make one pass; the documents themselves are jobs of their own."""
        try:
            counts, failures = self._pass(job, desk)
        except _Interrupted:
            return desk.give_back([job])
        except DatabaseError as error:
            log.warning("%s", error, extra={"action": "sync_interrupted", "tenant": job.tenant, "job": job.id})
            return desk.give_back([job])
        except KosmosError as error:
            return documents.fail(desk, job, error)
        log.info("%s: %s", job.key, counts, extra={"action": "sync_done", "tenant": job.tenant, "job": job.id})
        counted = Counts()
        for failure in failures:
            counted.add("failures", label=failure.code)
        return desk.ended([job], counted)

    def _pass(self, job: Job, desk: Desk) -> tuple[str, Sequence[IngestFailure]]:
        """Return what to say of it, and what could not be listed."""
        owner, spec = Tenant(id=job.tenant_id, name=job.tenant), job.payload["spec"]
        source = open_source(spec, self._ingestor.settings.ingestion)
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            run = open_run(connection, owner, job.collection, spec)
        seen: set[bytes] = set()
        listing = source.listing()
        changed = 0
        for entries in _sliced(listing):
            if desk.stopping or desk.is_dropped(job):
                raise _Interrupted
            changed += self._enqueue(owner, job, run, spec, entries, seen)
            desk.progress()
        failures = list(listing.failures)
        gone = self._gone(owner, job, listing, seen) if job.payload.get("prune", True) else {}
        if refusal := listing.refusal_to_prune(list(gone)):
            failures.append(refusal)
            gone = {}
        for part in _sliced(gone.items()):
            self._remove(owner, job, run, dict(part))
            desk.progress()
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            note(connection, owner, run, failures=failures, state="working")
            finish(connection, {job.token: Outcome.DONE})
        said = f"{len(seen)} listed, {changed} to be looked at, {len(gone)} removed, {len(failures)} failed"
        return said, failures

    def _enqueue(
        self,
        owner: Tenant,
        job: Job,
        run: uuid.UUID,
        spec: Mapping[str, Any],
        entries: Sequence[Entry],
        seen: set[bytes],
    ) -> int:
        """Put those entries into the queue whose mark is not the stored one. Returns how many."""
        ids = {entry.source: document_id(owner.id, job.collection, entry.source) for entry in entries}
        seen.update(key.bytes for key in ids.values())
        work: dict[str, dict[str, Any]] = {}
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            stored = marks(connection, owner.id, ids.values())
            for entry in entries:
                mark = self._ingestor.mark(entry)
                if mark is None or stored.get(entry.source) != mark:
                    told = {"source": entry.source, "mark": entry.mark, "locator": dict(entry.locator)}
                    work[str(ids[entry.source])] = {"spec": spec, "entry": told, "mark": mark}
            enqueue(connection, owner, job.collection, kinds.DOCUMENT, work, run=run)
            note(connection, owner, run, seen=len(ids), unchanged=len(ids) - len(work))
        return len(work)

    def _gone(self, owner: Tenant, job: Job, listing: Listing, seen: set[bytes]) -> dict[str, uuid.UUID]:
        """Return the stored documents of the source that it does not hold any more."""
        stored = self._ingestor.stored(owner, job.collection)
        return {name: key for name, key in stored.items() if key.bytes not in seen and listing.covers(name)}

    def _remove(self, owner: Tenant, job: Job, run: uuid.UUID, gone: Mapping[str, uuid.UUID]) -> None:
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            removed = remove(connection, owner.id, list(gone.values()), collection=job.collection)
            note(connection, owner, run, seen=removed, removed=removed)


def _sliced(items: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    while part := list(islice(rest, SLICE)):
        yield part
