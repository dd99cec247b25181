"""Process documents and publish batches, in the calling thread or in others."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from kosmos_rag.ingestion.discovery import PendingDocument
from kosmos_rag.ingestion.document import ChunkedDocument

BATCH_CHUNKS = 1024
"""Chunks that are embedded and published together. The lexical statistics change once for a batch and lexeme."""
FIRST_BATCH_CHUNKS = BATCH_CHUNKS // 8
"""Chunks of the first batch, before it is known how fast this machine embeds."""
BATCH_S = 5.0
"""Seconds that a batch of an `ingest` call takes, about: what an interrupted call loses."""


class Executor(Protocol):
    """Runs the processing of documents and the publishing of batches.

    In the calling thread, or in others.
    """

    @property
    def batch_chunks(self) -> int:
        """Chunks after which a batch is published."""
        ...

    def process(self, work: Callable[[], ChunkedDocument]) -> Future[ChunkedDocument]:
        """Parse and chunk a document by calling `work`.

        Returns at the end, or earlier where it takes long: another thread continues. The documents have
        different sources, because a later one may end first.
        """
        ...

    def submit(self, documents: Sequence[PendingDocument], chunks: int, publish: Callable[[], None]) -> None:
        """Publish a batch by calling `publish`, now or later.

        It raises only what the recorder raises.

        Args:
            documents: documents of the batch.
            chunks: how many chunks they have together.
            publish: embeds and writes them.
        """
        ...


class SynchronousExecutor:
    """Works in the calling thread, with batches that take about `BATCH_S`."""

    def __init__(self) -> None:
        self.batch_chunks = FIRST_BATCH_CHUNKS

    def process(self, work: Callable[[], ChunkedDocument]) -> Future[ChunkedDocument]:
        """Process a document by calling `work`."""
        future: Future[ChunkedDocument] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 — the future raises it
            future.set_exception(error)
        return future

    def submit(self, documents: Sequence[PendingDocument], chunks: int, publish: Callable[[], None]) -> None:  # noqa: ARG002
        """Publish a batch, and choose the size of the next one. Args: see `Executor.submit`."""
        start = time.monotonic()
        publish()
        chunks_in_time = int(chunks * BATCH_S / max(time.monotonic() - start, 1e-3))
        self.batch_chunks = min(BATCH_CHUNKS, max(FIRST_BATCH_CHUNKS, chunks_in_time))
