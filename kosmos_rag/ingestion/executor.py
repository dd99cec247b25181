"""Process documents and publish batches, in the calling thread or in others."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Protocol, TypeVar

from kosmos_rag.ingestion.discovery import PendingDocument
from kosmos_rag.ingestion.document import ChunkedDocument

_Loaded = TypeVar("_Loaded")

BATCH_CHUNKS = 4096
"""Chunks that are embedded and published together at most.

The lexical statistics change once for a batch and lexeme: with 4,096 chunks a publication takes the server a sixth less
time than with 1,024 (docs/benchmarks/tuning-log.md#storing).
"""
FIRST_BATCH_CHUNKS = 128
"""Chunks of the first batch, before it is known how fast this machine embeds."""
BATCH_S = 5.0
"""Seconds that a batch takes, about: what an interrupted call loses."""


class Executor(Protocol):
    """Runs the loading and processing of documents, and the publishing of batches.

    In the calling thread, or in others.
    """

    @property
    def batch_chunks(self) -> int:
        """Chunks after which a batch is published."""
        ...

    def load(self, work: Callable[[], _Loaded]) -> _Loaded:
        """Load a document by calling `work` in the calling thread; large ones take long."""
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


class BatchLimit:
    """Chunks of a batch that takes about `BATCH_S`, by what the one before took."""

    def __init__(self, least: int) -> None:
        """Args: least: chunks of a batch on the slowest machine."""
        self._least = least
        self.chunks = least

    @contextmanager
    def measure(self, chunks: int) -> Iterator[None]:
        """Measure the publication of a batch of chunks, and choose the size of the next one."""
        start = time.monotonic()
        yield
        chunks_in_time = int(chunks * BATCH_S / max(time.monotonic() - start, 1e-3))
        self.chunks = min(BATCH_CHUNKS, max(self._least, chunks_in_time))


class SynchronousExecutor:
    """Works in the calling thread, with batches that take about `BATCH_S`."""

    def __init__(self) -> None:
        self._limit = BatchLimit(FIRST_BATCH_CHUNKS)

    @property
    def batch_chunks(self) -> int:
        """Chunks after which a batch is published."""
        return self._limit.chunks

    def load(self, work: Callable[[], _Loaded]) -> _Loaded:
        """Load a document by calling `work`."""
        return work()

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
        with self._limit.measure(chunks):
            publish()
