"""Measure storing in PostgreSQL: rows, indexes and statistics.

    python -m benchmarks.ingest [--documents N] [--chunks N] [--dimensions N] [--json FILE] [--quick]

Nothing is parsed or embedded, but for the documents of one chunk, which pass the whole pipeline one by one, with word
hashes instead of a model. The other documents are prepared and published in batches, as the pipeline does. For
comparison, the same run has one multi-row INSERT of the same texts and vectors into a table without keys, analysis or
row-level security. With two writers into one tenant, one analyses its texts while the other writes. Processor time is
that of one chunk: of the client, and of the server's processes of its connections up to the commit.
"""

import gc
import random
import statistics
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psutil
import psycopg
from pgvector import HalfVector
from pgvector.psycopg import register_vector

from benchmarks.command import command, parse, write_results
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.types import DEFAULT_COLLECTION, EVERYONE, Chunk, Space
from kosmos_rag.ingestion.executor import BATCH_CHUNKS
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.database import Database, resolve_addresses
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.publish import PreparedDocument, publish, remove_documents
from kosmos_rag.storage.tenants import ensure_tenant, tenant

WORDS = 30_000
# English begins so: these words are two fifths of a text, and none of the index.
STOP_WORDS = (
    "the of and to a in is that it for was on are as with his they at "
    "be this from have or by had not but what all were when we there can an your "
    "which their if do will each about how up out them then she so these her some him "
    "into has more no my than who its now down did "
).split()
TOKENS = 80


def _documents(count: int, chunks: int, dimensions: int, space_id: uuid.UUID) -> list[PreparedDocument]:
    """Documents of about 500 characters a chunk: Zipf-distributed words, stop words on top as in English."""
    dice = random.Random(1)
    vocabulary = STOP_WORDS + [
        "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 10))) for _ in range(WORDS)
    ]
    weights = [1 / (rank + 2.7) for rank in range(len(vocabulary))]
    vectors = np.random.default_rng(1).standard_normal((count * chunks, dimensions), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = []
    for number in range(count):
        texts = [" ".join(dice.choices(vocabulary, weights, k=TOKENS)) for _ in range(chunks)]
        text, prepared_chunks = "", []
        for ordinal, piece in enumerate(texts):
            start, text = len(text), f"{text}{piece}\n\n"
            prepared_chunks.append(
                Chunk(
                    chunk_index=ordinal, start=start, end=start + len(piece), text=piece, section=("Section",),
                    line_start=ordinal + 1, line_end=ordinal + 1, page_start=None, page_end=None, tokens=TOKENS,
                    chunker="bench",
                )
            )  # fmt: skip
        documents.append(
            PreparedDocument(
                id=uuid.uuid4(), version_id=uuid.uuid4(), source=f"doc-{number}", title=f"Document {number}",
                media_type="text/plain", language="english", metadata={}, acl=(EVERYONE,), content_hash="0" * 64,
                fingerprint="0" * 64, bytes=len(text), text=text, pages=(), chunks=prepared_chunks,
                embedded=texts, analysed=texts,
                vectors={space_id: vectors[number * chunks : (number + 1) * chunks]},
            )
        )  # fmt: skip
    return documents


def _published(
    database: Database, documents: list[PreparedDocument], space: Space, *, writers: int
) -> dict[str, float]:
    owner = tenant(f"bench-{writers}")
    now = datetime.now(UTC)
    per_batch = max(1, BATCH_CHUNKS // len(documents[0].chunks))
    batches = [documents[start : start + per_batch] for start in range(0, len(documents), per_batch)]
    with database.worker.transaction(owner.id, [EVERYONE]) as connection:
        ensure_tenant(connection, owner, DEFAULT_COLLECTION, space, now=now)

    def write(batch: list[PreparedDocument]) -> tuple[float, float]:
        began = time.perf_counter()
        with database.worker.transaction(owner.id, [EVERYONE]) as connection:
            server = psutil.Process(connection.info.backend_pid)
            server_began = sum(server.cpu_times()[:2])
            publish(connection, owner.id, batch, collection=DEFAULT_COLLECTION, now=now, events=EventBuffer())
            server_s = sum(server.cpu_times()[:2]) - server_began
        return time.perf_counter() - began, server_s

    client_began = time.process_time()
    began = time.perf_counter()
    with ThreadPoolExecutor(writers) as pool:
        times, server_times = zip(*pool.map(write, batches), strict=True)
    published = time.perf_counter() - began
    client_s = time.process_time() - client_began
    chunks = sum(len(document.chunks) for document in documents)
    began = time.perf_counter()
    with database.worker.transaction(owner.id, [EVERYONE]) as connection:
        remove_documents(
            connection,
            owner.id,
            [document.id for document in documents],
            collection=DEFAULT_COLLECTION,
            events=EventBuffer(),
        )
    return {
        f"chunks_per_s_{writers}_writers": round(chunks / published),
        f"batch_p50_ms_{writers}_writers": round(statistics.median(times) * 1000, 1),
        f"client_processor_us_{writers}_writers": round(client_s / chunks * 1e6),
        f"server_processor_us_{writers}_writers": round(sum(server_times) / chunks * 1e6),
        f"deleted_chunks_per_s_{writers}": round(chunks / (time.perf_counter() - began)),
    }


def _bare(admin: str, documents: list[PreparedDocument], space: Space) -> float:
    rows = [
        (chunk.text, vector) for d in documents for chunk, vector in zip(d.chunks, d.vectors[space.id], strict=True)
    ]
    with psycopg.connect(admin) as connection:
        register_vector(connection)
        connection.execute("CREATE TABLE bare (text text, embedding halfvec)")
        began = time.perf_counter()
        for start in range(0, len(rows), BATCH_CHUNKS):
            batch = rows[start : start + BATCH_CHUNKS]
            connection.execute(
                "INSERT INTO bare SELECT * FROM unnest(%s::text[], %b::halfvec[])",
                ([text for text, _ in batch], [HalfVector(vector.astype(np.float16)) for _, vector in batch]),
            )
            connection.commit()
        return len(rows) / (time.perf_counter() - began)


def _measure_one_by_one(settings: Settings, count: int) -> float:
    """Return the median milliseconds of ingesting a document of one chunk with seven values of metadata."""
    metadata = {
        "team": "finance",
        "year": 2024,
        "draft": False,
        "office": "Berlin",
        "kind": "note",
        "page": 1,
        "owner": "jo",
    }
    times = []
    with Engine(settings, embedder=HashingEmbedder(dimensions=384)) as engine:
        tenant_of_notes = engine.tenant("bench-notes")
        for number in range(count):
            text = f"# Note {number}\n\nThe budget of team {number} was approved, and invoice {number * 7} is paid.\n"
            note = SourceDocument(source=f"note-{number}.md", data=text.encode(), metadata=metadata)
            began = time.perf_counter()
            tenant_of_notes.ingest([note], prune=False)
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "ingest.json")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--chunks", type=int, default=10, help="chunks of each document")
    parser.add_argument("--dimensions", type=int, default=384)
    arguments = parse(parser, documents=30)
    probe = np.ones(arguments.dimensions, dtype=np.float32)
    space = Space(id=uuid.uuid4(), model="bench", dimensions=arguments.dimensions, normalized=True, probe=probe)
    documents = _documents(arguments.documents, arguments.chunks, arguments.dimensions, space.id)
    with tempfile.TemporaryDirectory(prefix="kosmos-bench-") as scratch:
        settings = Settings.load(overrides={"database.data_dir": scratch})
        database = Database(settings.database)
        gc.freeze()  # a worker does not hold 10,000 prepared chunks, nor look at them in each full garbage collection
        published: dict[str, float] = {}
        for writers in (1, 2):
            published |= _published(database, documents, space, writers=writers)
        database.close()
        one_by_one = _measure_one_by_one(settings, min(300, arguments.documents))
        bare = _bare(resolve_addresses(settings.database).admin or "", documents, space)
    result: dict[str, Any] = {
        "documents": arguments.documents,
        "chunks": arguments.documents * arguments.chunks,
        "dimensions": arguments.dimensions,
        **published,
        "one_document_of_one_chunk_p50_ms": round(one_by_one, 1),
        "bare_insert_chunks_per_s": round(bare),
        "ratio_to_bare": round(published["chunks_per_s_2_writers"] / bare, 3),
    }
    for name, value in result.items():
        print(f"{name:<28}{value:>12,}")
    write_results(arguments.json, result)


if __name__ == "__main__":
    main()
