"""Backfill: embeds the chunks that have no vector in a space.

Each batch looks up missing chunks and is written in one transaction. No state is kept outside the vectors, so that a
crash loses nothing and two processes that fill one space write no vector twice.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

import numpy as np
import psycopg
from pgvector import HalfVector

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Embedder, Tokenizer
from kosmos_rag.core.types import Space
from kosmos_rag.indexing.transactions import maintenance_transaction
from kosmos_rag.ingestion.document import ChunkText, embedding_texts
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.publish import text_hash
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import SpaceStore, TenantRef

BATCH_CHUNKS = 256
"""Chunks embedded and written together: publications wait for the write, less than a second."""
_MAX_ID = (1 << 128) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class IdRange:
    """Chunks with ids above `after`, up to and including `until`."""

    after: uuid.UUID
    until: uuid.UUID


ALL_IDS = IdRange(after=uuid.UUID(int=0), until=uuid.UUID(int=_MAX_ID))


def id_partition(number: int, partitions: int) -> IdRange:
    """Return one of equal partitions of all ids, `number` from 0.

    Ids are hashes: each has about as many chunks.
    """
    bounds = [_MAX_ID * part // partitions for part in (number, number + 1)]
    return IdRange(after=uuid.UUID(int=bounds[0]), until=uuid.UUID(int=bounds[1]))


@dataclass(frozen=True, kw_only=True, slots=True)
class BackfilledBatch:
    """Result of one batch."""

    chunks: int
    last_id: uuid.UUID


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceBackfill:
    """Backfill of one space of one tenant."""

    database: Database
    tenant: TenantRef
    space: Space
    embedder: Embedder
    tokenizer: Tokenizer
    """Tokenizer of ingestion: it truncates long headings here as it does in a publication."""

    def run_batch(self, ids: IdRange, limit: int) -> BackfilledBatch | None:
        """Embed up to `limit` chunks of a range without a vector.

        The result is None if there are none.

        Raises RequestError if the space is being dropped, ModelError, DatabaseError.
        """
        scope = {"tenant_id": self.tenant.id, "space_id": self.space.id}
        bounds = {"after": ids.after, "until": ids.until, "limit": limit}
        # Of a space that is nearly complete, all is read to find what is missing: without a statement timeout.
        with maintenance_transaction(self.database, self.tenant) as connection:
            rows = connection.execute(statement("chunks_without_vectors"), {**scope, **bounds}).fetchall()
        if not rows:
            return None
        chunks = [
            ChunkText(title=title, source=source, section=section, text=text, table_context=table_context)
            for _, text, section, table_context, title, source in rows
        ]
        texts, _ = embedding_texts(chunks, self.tokenizer)
        columns = {
            "ids": [row[0] for row in rows],
            "vectors": [HalfVector(vector.astype(np.float16)) for vector in self.embedder.embed(texts)],
            "hashes": [text_hash(text) for text in texts],
        }
        truncated = [max(0, tokens - self.embedder.max_tokens) for tokens in self.embedder.tokenizer.count(texts)]
        with maintenance_transaction(self.database, self.tenant) as connection:
            self._write(connection, columns, dict(zip(columns["ids"], truncated, strict=True)))
        return BackfilledBatch(chunks=len(rows), last_id=columns["ids"][-1])

    def _write(
        self, connection: psycopg.Connection, columns: dict[str, list[Any]], truncated: dict[uuid.UUID, int]
    ) -> None:
        scope = {"tenant_id": self.tenant.id, "space_id": self.space.id}
        # From here on nobody deletes one of the chunks: a vector refers to its chunk.
        connection.execute(statement("lock_collections"), scope)
        if all(space.id != self.space.id for space in SpaceStore(connection, self.tenant.id).list_writable()):
            raise RequestError(f"the space of {self.space.model!r} has been dropped; run kosmos-rag reembed start")
        inserted = connection.execute(statement("backfill_embeddings"), {**scope, **columns}).fetchall()
        if tokens := sum(truncated[chunk_id] for (chunk_id,) in inserted):
            connection.execute(statement("add_truncated"), {**scope, "tokens": tokens})


class RateLimit:
    """Limits chunks per second, from its creation on."""

    def __init__(self, chunks_per_second: float | None) -> None:
        """Start the clock; None means no limit."""
        self._chunks_per_second = chunks_per_second
        self._started = time.monotonic()
        self.chunks = 0

    @property
    def batch_size(self) -> int:
        """Chunks of the next batch: at most those of one second."""
        if self._chunks_per_second is None:
            return BATCH_CHUNKS
        return max(1, min(BATCH_CHUNKS, int(self._chunks_per_second)))

    def wait(self, chunks: int) -> None:
        """Count embedded chunks, and sleep until the rate allows as many."""
        self.chunks += chunks
        if self._chunks_per_second is not None:
            elapsed_s = time.monotonic() - self._started
            time.sleep(max(0.0, self.chunks / self._chunks_per_second - elapsed_s))


def count_chunks(connection: psycopg.Connection, tenant: TenantRef) -> int:
    """Count the chunks of a tenant."""
    return _count(connection, statement("count_chunks"), {"tenant_id": tenant.id})


def count_embedded(connection: psycopg.Connection, tenant: TenantRef, space: Space) -> int:
    """Count the chunks of a tenant with a vector in a space."""
    return _count(connection, statement("vectors_of_space"), {"tenant_id": tenant.id, "space_id": space.id})


def count_missing(connection: psycopg.Connection, tenant: TenantRef, space: Space) -> int:
    """Count the chunks of a tenant without a vector in a space."""
    return _count(connection, statement("count_without_vectors"), {"tenant_id": tenant.id, "space_id": space.id})


def _count(connection: psycopg.Connection, query: LiteralString, values: Mapping[str, Any]) -> int:
    row = connection.execute(query, values).fetchone()
    assert row is not None, "an aggregate has a row"
    return int(row[0])
