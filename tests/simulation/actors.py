"""What the actors do: the project's own calls, on few documents, so that they meet."""

import json
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from kosmos_rag import Engine, SourceDocument, Tenant
from kosmos_rag.core.errors import IndexLocked, IngestionError, KosmosError, RequestError, StatementFailed
from kosmos_rag.core.types import PERMISSION_FEED, Job, JobState
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.sync_runs import SyncRuns
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.worker.channel import CounterBuffer, SupervisorChannel
from kosmos_rag.worker.handlers import run_job
from kosmos_rag.worker.handlers.documents import DocumentHandler, _JobDocument, _JobLeases, _JobOutcomes, source_name
from kosmos_rag.worker.handlers.sync import SyncHandler
from tests.simulation.faults import Clock
from tests.simulation.model import NOBODY, FeedPass, Hit, Model, Operation, Publication
from tests.simulation.scheduler import Observer, find_actor

STAMP = "stamp"
"""Key of the metadata that is changed."""
QUEUED, DIRECT = ("q0", "q1"), ("d0", "d1")
"""Sources of documents that workers publish, and of documents that a caller publishes."""
MIRROR, MIRRORED = "mirror", ("mirror/m0.md", "mirror/m1.md")
"""A collection that passes over a folder fill, and its documents that come and go."""
READERS = (frozenset({"ann"}), frozenset({"ben"}), frozenset({"ann", "ben"}))
PATTERNS = ("q0", "d0", "q?", "*")
UNFINISHED = (JobState.QUEUED, JobState.RUNNING, JobState.SCHEDULED)
REFUSALS = (IndexLocked, RequestError)
"""Answers to calls that another call of the time made impossible."""
OVERLAPS = ("23503", "40P01")
"""Codes of a violated foreign key and of a deadlock."""
_NUMBER = re.compile(r"\bversion(\d+)\b")
_LET_AN_HOUR_PASS = """
UPDATE kosmos.jobs j
   SET lease_until = j.lease_until - interval '1 hour', run_at = j.run_at - interval '1 hour'
  FROM (SELECT n.tenant_id, n.id FROM kosmos.jobs n WHERE n.state IN ('running', 'scheduled') FOR UPDATE SKIP LOCKED) p
 WHERE j.tenant_id = p.tenant_id AND j.id = p.id
"""


def find_number(text: str) -> int:
    """Return the number of the publication that a text is of."""
    match = _NUMBER.search(text)
    assert match is not None, text
    return int(match[1])


class Supervisor:
    """The end of a channel where no supervisor is: it sends nothing, and reads what it gets."""

    def recv(self) -> object:
        return threading.Event().wait()

    def send(self, message: object) -> None:
        pass


@dataclass(kw_only=True)
class World:
    """What the actors of one run share."""

    tenant: str
    memory: Engine
    """With the view of the memory."""
    database: Engine
    """With the view of the database alone."""
    channel: SupervisorChannel
    handler: DocumentHandler
    model: Model
    observer: Observer
    clock: Clock
    folder: Path
    collections: Mapping[str, str]
    """Collection of each source."""
    erases_tenant: bool = False
    """Whether the tenant was erased: what creates it again may be refused at that moment."""
    background: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    """Tasks that the engines have put off, by thread."""

    def scope(self, source: str | None = None) -> Tenant:
        """Return the tenant, or the collection of a source."""
        collection = None if source is None else self.collections[source]
        return self.memory.tenant(self.tenant, collection=collection)

    @contextmanager
    def run(self, operation: Operation) -> Iterator[None]:
        """Run an operation, and record its end."""
        actor = find_actor()
        faults = 0 if actor is None else actor.faults
        self.model.begin(operation)
        try:
            yield
        except KosmosError as error:
            self.model.end(operation, succeeded=False)
            if not self._is_refusal(error) and (actor is None or actor.faults == faults):
                self.model.report(f"{operation.kind} failed without a fault: {error!r}")
        except BaseException:
            self.model.end(operation, succeeded=False)
            raise
        else:
            self.model.end(operation, succeeded=True)

    def _is_refusal(self, error: KosmosError) -> bool:
        """Return whether another call of the same time explains an error."""
        if isinstance(error, REFUSALS):
            return True
        if isinstance(error, IngestionError):
            return error.code == "superseded" or (self.erases_tenant and error.code == "storage")
        return self.erases_tenant and isinstance(error, StatementFailed) and error.sqlstate in OVERLAPS

    def _publication(self, dice: random.Random, sources: Sequence[str]) -> tuple[Publication, SourceDocument]:
        source = dice.choice(sources)
        acl = dice.choice((*READERS, NOBODY))
        number = self.model.count_publications() + 1
        publication = Publication(
            kind="publish", sources=(source,), number=number, acl=acl, is_queued=sources is QUEUED
        )
        document = SourceDocument(
            source=source,
            data=f"alpha of {source} version{number}".encode(),
            acl=tuple(sorted(acl)) or (PERMISSION_FEED,),
        )
        return publication, document

    def enqueue(self, dice: random.Random) -> None:
        """Enqueue a version of a document."""
        publication, document = self._publication(dice, QUEUED)
        with self.run(publication):
            self.scope(document.source).jobs.enqueue(document)

    def ingest(self, dice: random.Random) -> None:
        """Publish a version of a document at once."""
        publication, document = self._publication(dice, DIRECT)
        with self.run(publication):
            report = self.scope(document.source).ingest(document, prune=False)
            for failure in report.failed:
                raise IngestionError(failure.code, failure.message)

    def delete(self, dice: random.Random) -> None:
        """Delete a document."""
        source = dice.choice((*QUEUED, *DIRECT))
        with self.run(Operation(kind="delete", sources=(source,))):
            self.scope(source).delete(source)

    def update_metadata(self, dice: random.Random) -> None:
        """Change the metadata of a document."""
        source = dice.choice((*QUEUED, *DIRECT))
        with self.run(Operation(kind="update_metadata", sources=())):
            self.scope(source).update_metadata(source, {STAMP: len(self.model.operations)})

    def erase(self, dice: random.Random) -> None:
        """Erase documents."""
        pattern = dice.choice(PATTERNS)
        expression = re.compile(pattern.replace("*", ".*").replace("?", "."))
        sources = [source for source in (*QUEUED, *DIRECT) if expression.fullmatch(source)]
        with self.run(Operation(kind="erase", sources=sources)):
            self.scope().erase(source=pattern)

    def delete_collection(self, dice: random.Random) -> None:
        """Delete a collection, with its jobs and the entries of its feeds."""
        collection = self.collections[dice.choice((*QUEUED, *DIRECT))]
        sources = [source for source, name in self.collections.items() if name == collection]
        with self.run(Operation(kind="erase", sources=sources)):
            self.scope().collections.delete(collection)

    def retry(self, _dice: random.Random) -> None:
        """Retry what has failed."""
        with self.run(Operation(kind="retry", sources=())):
            self.scope().jobs.retry()

    def change_file(self, dice: random.Random) -> None:
        """Change, add or remove a file of the folder."""
        file = self.folder / dice.choice(MIRRORED)
        file.parent.mkdir(exist_ok=True)
        (file.parent / "kept.md").touch()
        if dice.random() < 0.3:
            file.unlink(missing_ok=True)
        else:
            file.write_text(f"alpha version{len(self.model.operations)} of {dice.random()}", encoding="utf-8")

    def mirror(self, _dice: random.Random) -> None:
        """Enqueue a pass over the folder."""
        with self.run(Operation(kind="mirror", sources=())):
            spec = {"kind": "folder", "path": str(self.folder / MIRROR), "root": MIRROR, "acl": ["ann", "ben"]}
            self.memory.tenant(self.tenant, collection=MIRROR).jobs.enqueue(spec)

    def list_folder(self, _dice: random.Random) -> None:
        """Claim a pass over the folder and run it, as a worker does."""
        queue = Queue.open(self.memory.database, self.memory.settings.worker)
        with self.run(Operation(kind="list", sources=())):
            actor = find_actor()
            for job in queue.claim(1, kinds=[kinds.SYNC], worker="drain" if actor is None else actor.name):
                run_job(SyncHandler(self.memory.database, self.memory.ingest_pipeline), job, self.channel)

    def delete_mirrored(self, dice: random.Random) -> None:
        """Delete a document whose file may be there still: the next pass brings it back."""
        with self.run(Operation(kind="delete_mirrored", sources=())):
            scope = self.memory.tenant(self.tenant, collection=MIRROR)
            if dice.random() < 0.5:
                scope.delete(dice.choice(MIRRORED))
            else:
                scope.collections.delete(MIRROR)

    def check_mirror(self) -> None:
        """Compare the collection with the folder after a last pass, and the counts of the passes."""
        dice, scope = random.Random(0), self.memory.tenant(self.tenant, collection=MIRROR)
        self.change_file(dice)
        for _ in range(20):  # a pass that was killed is claimed again an hour later
            self.mirror(dice)
            self.let_time_pass(dice)
            self.list_folder(dice)
            self.drain()
            if not scope.jobs.find(kinds=[kinds.SYNC], states=UNFINISHED):
                break
        files = {f"{MIRROR}/{file.name}": file.read_text() for file in (self.folder / MIRROR).iterdir()}
        files = {name: text for name, text in files.items() if text}
        reader = self.memory.tenant(self.tenant, principals=("ann",), collection=MIRROR)
        if dict(reader.texts()) != files:
            self.model.report(f"the collection has {dict(reader.texts())}, and the folder {files}")
        SyncRuns(self.memory.database.worker).finish_completed()
        for run in scope.jobs.runs():
            total = run.new + run.changed + run.unchanged + run.removed + run.failed + run.cancelled
            if run.state == "working" or (run.state == "finished" and run.seen != total):
                self.model.report(f"the counts of a pass do not add up: {run}")

    def erase_all(self, _dice: random.Random) -> None:
        """Erase the tenant."""
        self.erases_tenant = True
        with self.run(Operation(kind="erase", sources=(*QUEUED, *DIRECT))):
            self.scope().erase_all()

    def sync_permissions(self, dice: random.Random) -> None:
        """Apply the permission feed of a collection at this moment."""
        collection = self.collections[dice.choice((*QUEUED, *DIRECT))]
        sources = [source for source, name in self.collections.items() if name == collection]
        selected = [source for source in sources if dice.random() < 0.6] or sources[:1]
        acls = {source: dice.choice(READERS) for source in selected}
        file = self.folder / f"feed-{len(self.model.operations)}.jsonl"
        rows = [{"document": source, "principals": sorted(acl)} for source, acl in acls.items()]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        with self.run(FeedPass(kind="sync_permissions", sources=sources, acls=acls)):
            self.scope(sources[0]).sync_permissions({"kind": "json_lines", "name": "feed", "path": str(file)})

    def build_indexes(self, _dice: random.Random) -> None:
        """Pack and merge segments."""
        with self.run(Operation(kind="build_indexes", sources=())):
            self.scope().indexes.build()

    def reembed(self, dice: random.Random) -> None:
        """Move the tenant to the other model, or back."""
        spaces = self.scope().spaces
        with self.run(Operation(kind="reembed", sources=())):
            if dice.random() < 0.3:
                spaces.rollback()
            else:
                spaces.start()
                spaces.cutover(force="simulation")

    def search_in_memory(self, dice: random.Random) -> None:
        """Search by the view of the memory, where it has the block."""
        self._search(self.memory, dice)

    def search_in_database(self, dice: random.Random) -> None:
        """Search by the view of the database."""
        self._search(self.database, dice)

    def _search(self, engine: Engine, dice: random.Random) -> None:
        with self.run(operation := Operation(kind="search", sources=())):
            self.check_search(engine, dice.choice(READERS[1:]), operation.first_state)
        for task in self.background.pop(threading.get_ident(), ()):
            with self.run(Operation(kind="background", sources=())):
                task()

    def check_search(self, engine: Engine, principals: frozenset[str], first_state: int) -> None:
        """Search for all documents, and compare the hits with the states since the first one."""
        result = engine.tenant(self.tenant, principals=tuple(sorted(principals))).search("alpha", k=50)
        hits = [
            Hit(source=hit.source, number=find_number(hit.text), stamp=hit.metadata.get(STAMP, 0))
            for hit in result.hits
            if hit.source in self.collections
        ]
        self.model.check_hits(hits, principals, first_state)
        for hit in result.hits:
            if hit.dense_score is None or hit.lexical_score is None:
                self.model.report(f"{hit.source} was found by one retriever alone: {result.retrievers}")

    def work(self, _dice: random.Random) -> None:
        """Claim jobs and run them, as a worker does."""
        queue = Queue.open(self.memory.database, self.memory.settings.worker)
        with self.run(Operation(kind="work", sources=())):
            actor = find_actor()
            jobs = queue.claim(2, kinds=[kinds.DOCUMENT], worker="drain" if actor is None else actor.name)
            if jobs:
                queue.renew([job.token for job in jobs])
                self._publish(jobs)

    def _publish(self, jobs: Sequence[Job]) -> None:
        """Publish the documents of jobs, as `DocumentHandler.run` does, in this thread."""
        for collection in sorted({job.collection for job in jobs}):
            claimed = [job for job in jobs if job.collection == collection]
            tenant_id = claimed[0].tenant_id
            leases = {document_id(tenant_id, collection, source_name(job)): job for job in claimed}
            self.memory.ingest_pipeline.run(
                TenantRef(id=tenant_id, name=claimed[0].tenant),
                collection,
                [_JobDocument(job=job, load_document=self.handler._load) for job in claimed],
                lease=_JobLeases(leases, tenant_id, self.channel, inf),
                recorder=_JobOutcomes(self.channel, CounterBuffer()),
            )

    def let_time_pass(self, _dice: random.Random) -> None:
        """Let leases expire and delays end, where no transaction has locked the job."""
        if (actor := find_actor()) is not None:
            actor.pause(0, "an hour passes", in_write=False)
        self.observer.connection.execute(_LET_AN_HOUR_PASS)
        self.clock.now += 3600

    def check_jobs(self) -> None:
        """Report jobs that have failed. Without a fault none does."""
        if self.erases_tenant:
            return
        for job in self.scope().jobs.find(kinds=[kinds.DOCUMENT]):
            if job.code not in (None, "lease_lost", "cancelled"):
                self.model.report(f"a job failed without a fault: {job.code}, {job.error}")

    def drain(self) -> None:
        """Run all jobs that are left, without faults."""
        jobs, dice = self.scope().jobs, random.Random(0)
        for _ in range(20):
            states = {job.id: job.state for job in jobs.find(kinds=[kinds.DOCUMENT])}
            if not set(states.values()) & {*UNFINISHED, JobState.DEAD}:
                return
            if dead := [key for key, state in states.items() if state == JobState.DEAD]:
                jobs.retry(dead)
            self.let_time_pass(dice)
            self.work(dice)
        self.model.report("there are jobs that do not end")
