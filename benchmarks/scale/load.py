"""Fill one database with tenants of very different sizes, by the code of ingestion.

It also measures the space that they use.
"""

import heapq
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg

from benchmarks.scale.data import Block, Data
from kosmos_rag import Engine
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import DEFAULT_COLLECTION, EVERYONE, Chunk
from kosmos_rag.models.embedding.space import describe_space
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.publish import PreparedDocument, publish
from kosmos_rag.storage.tenants import ensure_tenant, tenant

CHUNKS_A_DOCUMENT = 10
DOCUMENTS_A_BATCH = 102
"""1,020 chunks: the most that the pipeline puts into a batch, in whole documents."""

LARGEST = "half"
_SHARES = {"thousandth": 0.001, "hundredth": 0.01, "tenth": 0.1, LARGEST: 0.5}

Say = Callable[[str], None]
Describe = Callable[[], tuple[dict[str, Any], tuple[str, ...]]]
"""Returns the metadata and the readers of the next document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """A tenant, and how many of the rows are its own."""

    tenant: str
    chunks: int
    percent: float


def clock() -> Say:
    """Return what prints words with the seconds since now."""
    began = time.perf_counter()

    def say(words: str) -> None:
        print(f"{time.perf_counter() - began:7.1f} s  {words}", file=sys.stderr, flush=True)

    return say


def shares(chunks: int) -> list[Share]:
    """Divide the rows among five tenants: .1, 1, 10 and 50 percent, and the rest."""
    counts = {name: max(1, round(chunks * share)) for name, share in _SHARES.items()}
    counts["rest"] = max(1, chunks - sum(counts.values()))
    return [Share(tenant=name, chunks=count, percent=100 * count / chunks) for name, count in counts.items()]


def _describe_nothing() -> tuple[dict[str, Any], tuple[str, ...]]:
    return {}, (EVERYONE,)


def publish_all(
    database: Database,
    data: Data,
    tenants: Sequence[Share],
    embedder: Embedder,
    say: Say,
    describe: Describe = _describe_nothing,
) -> dict[str, Any]:
    """Fill the tenants with two writers, the largest and the others at once; their rows are mixed.

    `embedder` names the space and gives its probe; the vectors are the data's.
    """
    writers = [[share for share in tenants if (share.tenant == LARGEST) == largest] for largest in (True, False)]

    def write(shares: Sequence[Share]) -> list[float]:
        total, published, times = sum(share.chunks for share in shares), 0, []
        for share, block in interleave(data, shares):
            times.append(publish_block(database, share.tenant, block, embedder, describe))
            published += len(block[0])
            if published * 10 // total > (published - len(block[0])) * 10 // total:
                say(f"published {published:,} of {total:,} chunks of {'/'.join(share.tenant for share in shares)}")
        return times

    for share in tenants:
        create(database, share.tenant, embedder)
    began = time.perf_counter()
    with ThreadPoolExecutor(len(writers)) as pool:
        times = [seconds for of_writer in pool.map(write, writers) for seconds in of_writer]
    seconds = time.perf_counter() - began
    total = sum(share.chunks for share in tenants)
    return {
        "chunks": total,
        "seconds": round(seconds, 1),
        "chunks_per_s": round(total / seconds),
        "batch_p50_ms": round(statistics.median(times) * 1000, 1),
    }


def interleave(data: Data, tenants: Sequence[Share]) -> Iterator[tuple[Share, Block]]:
    """Make the blocks of several tenants, each tenant's spread evenly over the whole."""

    def place_blocks(share: Share, seed: int) -> Iterator[tuple[float, int, Share, Block]]:
        # At least eight blocks, so that the rows of small tenants lie apart too.
        documents = min(DOCUMENTS_A_BATCH, max(1, share.chunks // (8 * CHUNKS_A_DOCUMENT)))
        size = documents * CHUNKS_A_DOCUMENT
        for number, block in enumerate(data.blocks(share.chunks, size=size, seed=seed)):
            yield (number + 0.5) * size / share.chunks, seed, share, block

    streams = [place_blocks(share, sum(share.tenant.encode())) for share in tenants]
    for _, _, share, block in heapq.merge(*streams, key=lambda entry: entry[:2]):
        yield share, block


def create(database: Database, name: str, embedder: Embedder) -> None:
    """Create a tenant whose vectors are of this embedder's space."""
    owner = tenant(name)
    space = describe_space(owner.id, embedder, normalized=True)
    with database.worker.transaction(owner.id, [EVERYONE]) as connection:
        ensure_tenant(connection, owner, DEFAULT_COLLECTION, space, now=datetime.now(UTC))


def publish_block(
    database: Database, name: str, block: Block, embedder: Embedder, describe: Describe = _describe_nothing
) -> float:
    """Publish a block as one batch of new documents; returns the seconds that it took."""
    owner = tenant(name)
    space = describe_space(owner.id, embedder, normalized=True)
    documents = list(_documents(block, space.id, describe))
    began = time.perf_counter()
    with database.worker.transaction(owner.id, [EVERYONE]) as connection:
        publish(
            connection, owner.id, documents, collection=DEFAULT_COLLECTION, now=datetime.now(UTC), events=EventBuffer()
        )
    return time.perf_counter() - began


def _documents(block: Block, space_id: uuid.UUID, describe: Describe) -> Iterator[PreparedDocument]:
    texts, vectors = block
    for start in range(0, len(texts), CHUNKS_A_DOCUMENT):
        document_texts = texts[start : start + CHUNKS_A_DOCUMENT]
        chunks, offset = [], 0
        for ordinal, text in enumerate(document_texts):
            chunks.append(
                Chunk(
                    chunk_index=ordinal, start=offset, end=offset + len(text), text=text, section=(),
                    line_start=2 * ordinal + 1, line_end=2 * ordinal + 1, page_start=None, page_end=None,
                    tokens=len(text.split()), chunker="bench",
                )
            )  # fmt: skip
            offset += len(text) + 2
        key = uuid.uuid4()
        whole = "\n\n".join(document_texts)
        metadata, acl = describe()
        yield PreparedDocument(
            id=key, version_id=uuid.uuid4(), source=f"bench/{key}", title="", media_type="text/plain",
            language="english", metadata=metadata, acl=acl, content_hash="0" * 64, fingerprint="0" * 64,
            bytes=len(whole.encode()), text=whole, pages=(), chunks=chunks,
            embedded=document_texts, analysed=document_texts,
            vectors={space_id: vectors[start : start + CHUNKS_A_DOCUMENT]},
        )  # fmt: skip


def build_indexes(engine: Engine, tenants: Sequence[Share], say: Say) -> list[dict[str, Any]]:
    """Build what each tenant's size asks for; returns the seconds, and what each tenant has then."""
    accounts = []
    for share in tenants:
        began = time.perf_counter()
        built = engine.tenant(share.tenant).indexes.build()
        seconds = time.perf_counter() - began
        say(f"indexes of tenant {share.tenant} built in {seconds:.1f} s")
        accounts.append(
            {"tenant": share.tenant, "seconds": round(seconds, 2), "indexes": [asdict(index) for index in built]}
        )
    return accounts


def vacuum(admin: str) -> None:
    """Do now what autovacuum does in its own time: sizes and plans do not depend on when it comes by."""
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")


def storage(admin: str, chunks: int) -> dict[str, dict[str, float]]:
    """Weigh each table: bytes a chunk of its rows and of its indexes, and of some columns by themselves."""
    sizes = """
        SELECT c.relname, pg_table_size(c.oid), pg_indexes_size(c.oid)
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = 'kosmos' AND c.relkind = 'r' AND pg_total_relation_size(c.oid) >= 10 * %s
         ORDER BY pg_total_relation_size(c.oid) DESC"""
    columns = """
        SELECT (SELECT sum(pg_column_size(text)) FROM kosmos.chunks),
               (SELECT sum(pg_column_size(tsv)) FROM kosmos.chunks),
               (SELECT sum(pg_column_size(embedding)) FROM kosmos.embeddings),
               (SELECT sum(pg_column_size(offsets)) FROM kosmos.postings),
               (SELECT sum(pg_column_size(frequencies)) FROM kosmos.postings)"""
    names = ("chunks.text", "chunks.tsv", "embeddings.embedding", "postings.offsets", "postings.frequencies")
    with psycopg.connect(admin) as connection:
        weights = {
            name: {"rows": round(rows / chunks, 1), "indexes": round(indexes / chunks, 1)}
            for name, rows, indexes in connection.execute(sizes, [chunks]).fetchall()
        }
        sums = connection.execute(columns).fetchone() or ()
    return weights | {
        name: {"rows": round(float(size or 0) / chunks, 1)} for name, size in zip(names, sums, strict=True)
    }
