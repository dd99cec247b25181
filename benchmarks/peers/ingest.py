"""Compare the ingestion of the library with that of its peers.

    python -m benchmarks.peers.ingest [--documents N] [--rounds N] [--json FILE] [--quick]

92 Markdown documents have about 1,500 chunks. All systems use the same model and the same server. LangChain and
LlamaIndex embed and store the chunks that our pipeline makes, each in its own way and environment, in a database of its
own. The library first gets the same chunks, then the files: read, parsed, chunked, embedded and published, by the
pipeline and by a worker from its queue. The last row is the bare `encode` of the texts. All are timed in turn, round
after round, with models loaded. A quick run leaves the peers out.
"""

import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.command import command, parse, temporary_folder, write_results
from benchmarks.peers import children
from benchmarks.peers.exchange import Corpus
from benchmarks.peers.kosmos import embedder, settings
from benchmarks.peers.server import Server
from benchmarks.worker import seconds_of_documents, work_until_idle, write_documents
from benchmarks.worker_work import create_hashing_runner
from kosmos_rag import Engine, SourceDocument
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import DEFAULT_COLLECTION
from kosmos_rag.ingestion.document import ChunkedDocument, document_id, version_id
from kosmos_rag.ingestion.executor import BATCH_CHUNKS
from kosmos_rag.storage.migrate import migrate
from kosmos_rag.storage.provision import APP, WORKER, provision
from kosmos_rag.storage.tenants import TenantRef, tenant
from kosmos_rag.worker.handlers import create_runner
from kosmos_rag.worker.process import JobRunnerFactory

SECTIONS = 16
BARE = "bare encode of the chunks"
PEERS = {
    "LangChain, PGVectorStore.add_texts": "ingest_langchain",
    "LlamaIndex, VectorStoreIndex over PGVectorStore": "ingest_llama_index",
}
System = Callable[[int], float]
"""Ingests everything again in the round of this number; returns the seconds."""


class Ours:
    """The library in a database of its own, a tenant for each way and round."""

    def __init__(
        self, server: Server, database: str, folder: Path, model: Embedder, create_runner: JobRunnerFactory
    ) -> None:
        provision(server.url(database))
        migrate(server.url(database))
        changes = {
            "database.url": server.url(database, APP),
            "database.worker_url": server.url(database, WORKER),
            "database.admin_url": server.url(database),
            "rag.chunking.strategy": "markdown",
        }
        self._folder = folder
        self._create_runner = create_runner
        self._settings = settings(**changes)
        self.engine = Engine(self._settings, embedder=model)
        self.documents = self._process_documents(tenant("chunks"))

    def _process_documents(self, owner: TenantRef) -> list[ChunkedDocument]:
        documents = []
        for file in sorted(self._folder.iterdir()):
            document = SourceDocument(source=str(file), data=file.read_bytes())
            key = document_id(owner.id, DEFAULT_COLLECTION, document.source)
            documents.append(self.engine.ingest_pipeline.processor.process(key, document, ["english", "simple"]))
        return documents

    def corpus(self) -> Corpus:
        """Return the chunks as the peers are given them: without vectors, and with no question."""
        chunks = {
            str(uuid.uuid5(version_id(document), str(chunk.chunk_index))): text
            for document in self.documents
            for chunk, text in zip(document.chunks, document.embedded, strict=True)
        }
        nothing = np.empty((0, 0), dtype=np.float32)
        return Corpus(
            ids=list(chunks), texts=list(chunks.values()), vectors=nothing, questions={}, question_vectors=nothing
        )

    def chunks(self, number: int) -> float:
        """Embed and publish the chunks that the peers are given too."""
        publisher, owner = self.engine.ingest_pipeline.publisher, tenant(f"chunks-{number}")
        began = time.perf_counter()
        batch: list[ChunkedDocument] = []
        for document in self.documents:
            batch.append(document)
            if sum(len(item.chunks) for item in batch) >= BATCH_CHUNKS or document is self.documents[-1]:
                results = publisher.publish(owner, DEFAULT_COLLECTION, batch)
                failed = [result.error for result in results if result.error is not None]
                assert not failed, failed
                batch = []
        return time.perf_counter() - began

    def files(self, number: int) -> float:
        """Ingest the files by the pipeline."""
        files_tenant = self.engine.tenant(f"files-{number}")
        began = time.perf_counter()
        report = files_tenant.ingest([self._folder])
        seconds = time.perf_counter() - began
        assert report.new == len(self.documents), report
        return seconds

    def worker(self, number: int) -> float:
        """Ingest the files by a worker, from the first job that is taken to the last that is finished."""
        worker_tenant = self.engine.tenant(f"worker-{number}")
        worker_tenant.jobs.enqueue(self._folder)
        work_until_idle(self._settings, self._create_runner)
        return seconds_of_documents(worker_tenant, self.engine)


@contextmanager
def _systems(server: Server, folder: Path, scratch: Path, *, quick: bool) -> Iterator[tuple[int, dict[str, System]]]:
    """Yield how many chunks there are, and the systems by name."""
    model = embedder("torch", quick=quick)

    def bare(_: int) -> float:
        began = time.perf_counter()
        model.embed(corpus.texts)
        return time.perf_counter() - began

    def peer(script: str, number: int) -> float:
        with server.database(f"{script}_{number}") as url:
            seconds = children.measure(script, scratch, url, 1).seconds
        assert seconds is not None
        return seconds

    with server.database("bench_kosmos") as _:
        system = Ours(server, "bench_kosmos", folder, model, create_hashing_runner if quick else create_runner)
        with system.engine:
            corpus = system.corpus()
            corpus.write(scratch)
            model.embed(corpus.texts[:64])
            yield (
                len(corpus.texts),
                {
                    BARE: bare,
                    "kosmos_rag, the chunks": system.chunks,
                    "kosmos_rag, the files": system.files,
                    "kosmos_rag, the files by a worker": system.worker,
                    **{name: partial(peer, script) for name, script in ({} if quick else PEERS).items()},
                },
            )


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "ingest-peers.json")
    parser.add_argument("--documents", type=int, default=92)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parse(parser, documents=3, rounds=1)
    if not arguments.quick:
        children.require_environment()
    scratch = temporary_folder()
    write_documents(scratch / "files", arguments.documents, SECTIONS)
    server = Server(scratch / "server")
    with _systems(server, scratch / "files", scratch, quick=arguments.quick) as (chunks, systems):
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        for number in range(arguments.rounds):
            for name, system in systems.items():
                seconds[name].append(system(number))
                print(f"round {number + 1}, {name}: {seconds[name][-1]:.1f} s", file=sys.stderr, flush=True)
    _show(arguments.documents, chunks, seconds)
    write_results(arguments.json, {"documents": arguments.documents, "chunks": chunks, "seconds": seconds})


def _show(documents: int, chunks: int, seconds: dict[str, list[float]]) -> None:
    table = Table(title=f"{documents} documents, {chunks:,} chunks", title_justify="left", box=box.MARKDOWN)
    for column in ("", "s", "each round", "chunks/s", "of bare encode"):
        table.add_column(column, justify="left" if column == "" else "right")
    for name, times in seconds.items():
        middle = statistics.median(times)
        shares = [bare / time for bare, time in zip(seconds[BARE], times, strict=True)]
        table.add_row(
            name, f"{middle:.1f}", ", ".join(f"{time:.1f}" for time in times), f"{chunks / middle:,.0f}",
            f"{statistics.median(shares):.2f}",
        )  # fmt: skip
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
