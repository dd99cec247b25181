"""Vectors for the chunks that a space lacks.

What is missing is looked up each time, and a batch is written in one transaction: nothing is remembered that a crash
could lose, and two that fill one space write no vector twice.
"""

import time
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from pgvector import HalfVector

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Embedder, Tokenizer
from kosmos_rag.core.types import EVERYONE, Space
from kosmos_rag.ingestion.document import ChunkText, embedding_texts
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.publish import text_hash
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, written_spaces

BATCH_CHUNKS = 256
"""Chunks embedded and written together: publications wait while they are written, for less than a second."""
_LAST = (1 << 128) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class IdRange:
    """Chunks with ids above `after`, up to and with `until`."""

    after: uuid.UUID
    until: uuid.UUID


EVERY_ID = IdRange(after=uuid.UUID(int=0), until=uuid.UUID(int=_LAST))


def part_of_ids(number: int, parts: int) -> IdRange:
    """Return one of so many equal parts of all ids. Ids of chunks are hashes, so each part has as many chunks."""
    bounds = [_LAST * part // parts for part in (number, number + 1)]
    return IdRange(after=uuid.UUID(int=bounds[0]), until=uuid.UUID(int=bounds[1]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """What one batch did."""

    chunks: int
    last: uuid.UUID


@dataclass(frozen=True, kw_only=True, slots=True)
class Filler:
    """Fills one space of one tenant."""

    database: Database
    tenant: TenantRef
    space: Space
    embedder: Embedder
    tokenizer: Tokenizer
    """Of the model that documents are ingested with: long headers are cut by it, as they are in a publication."""

    def fill(self, ids: IdRange, limit: int) -> Filled | None:
        """Embed the first chunks of a range that the space lacks, `limit` at most; None where it lacks none.

        Raises RequestError where the space is dropped meanwhile, ModelError, DatabaseError.
        """
        scope = {"tenant_id": self.tenant.id, "space_id": self.space.id}
        bounds = {"after": ids.after, "until": ids.until, "limit": limit}
        with self.database.worker.transaction(self.tenant.id, [EVERYONE]) as connection:
            # A space that is nearly complete is read to the end to find what it lacks.
            connection.execute(statement("no_statement_timeout"))
            rows = connection.execute(statement("chunks_without_vectors"), {**scope, **bounds}).fetchall()
        if not rows:
            return None
        chunks = [
            ChunkText(title=title, source=source, section=section, text=text)
            for _, text, section, title, source in rows
        ]
        texts, _ = embedding_texts(chunks, self.tokenizer)
        columns = {
            "ids": [row[0] for row in rows],
            "vectors": [HalfVector(vector.astype(np.float16)) for vector in self.embedder.embed(texts)],
            "hashes": [text_hash(text) for text in texts],
        }
        truncated = [max(0, tokens - self.embedder.max_tokens) for tokens in self.embedder.tokenizer.count(texts)]
        with self.database.worker.transaction(self.tenant.id, [EVERYONE]) as connection:
            self._write(connection, columns, dict(zip(columns["ids"], truncated, strict=True)))
        return Filled(chunks=len(rows), last=columns["ids"][-1])

    def _write(
        self, connection: psycopg.Connection, columns: dict[str, list[Any]], truncated: dict[uuid.UUID, int]
    ) -> None:
        scope = {"tenant_id": self.tenant.id, "space_id": self.space.id}
        # Nobody deletes one of the chunks from here on: a vector refers to its chunk.
        connection.execute(statement("lock_collections"), scope)
        if all(space.id != self.space.id for space in written_spaces(connection, self.tenant.id)):
            raise RequestError(f"the space of {self.space.model!r} has been dropped; run kosmos-rag embed start")
        written = connection.execute(statement("backfill_embeddings"), {**scope, **columns}).fetchall()
        if tokens := sum(truncated[key] for (key,) in written):
            connection.execute(statement("add_truncated"), {**scope, "tokens": tokens})


class Throttle:
    """Keeps to so many chunks a second, from when it is made."""

    def __init__(self, chunks_per_second: float | None) -> None:
        """Begin to count; None is no limit."""
        self._rate = chunks_per_second
        self._started = time.monotonic()
        self.chunks = 0

    @property
    def batch(self) -> int:
        """Chunks to take at once: not more than a second's."""
        return BATCH_CHUNKS if self._rate is None else max(1, min(BATCH_CHUNKS, int(self._rate)))

    def wait(self, chunks: int) -> None:
        """Count chunks that are done, and wait until as many may be."""
        self.chunks += chunks
        if self._rate is not None:
            time.sleep(max(0.0, self.chunks / self._rate - (time.monotonic() - self._started)))
