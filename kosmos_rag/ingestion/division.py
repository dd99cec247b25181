"""Divide large documents of rows, whatever source they are from, into several documents."""

import os
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from io import BytesIO
from threading import Lock
from typing import BinaryIO

import psycopg

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import IngestionError, SourceError
from kosmos_rag.core.types import Outcome, SourceDocument
from kosmos_rag.ingestion.discovery import PendingDocument
from kosmos_rag.ingestion.parts import FilePart, divide_file, may_have_parts
from kosmos_rag.ingestion.publisher import Completion, Lease
from kosmos_rag.ingestion.report import PublishedDocument
from kosmos_rag.ingestion.sources.files import LargeDocument, too_large_error, unreadable_error


class DividedDocument:
    """The parts of a document, read one by one. Close it after the last one."""

    def __init__(self, document: SourceDocument, file: BinaryIO, settings: IngestionSettings) -> None:
        """Find the parts. Raises SourceError, OSError."""
        self._document = document
        self._file = file
        self._state = _read_state(file)
        self.parts = divide_file(file, document.source, settings)

    def close(self) -> None:
        """Close the file of the parts."""
        self._file.close()

    def read(self, part: FilePart) -> SourceDocument:
        """Return a part as a document. Raises SourceError, also if the file was changed meanwhile."""
        source = self._document.source
        try:
            data = part.read(self._file)
            is_changed = _read_state(self._file) != self._state
        except OSError as error:
            raise unreadable_error(source, error) from error
        if is_changed:
            raise SourceError("not_found", f"{source} was changed while it was read; ingest it again")
        return replace(
            self._document,
            source=part.name(source),
            data=data,
            media_type=part.media_type,
            skipped_rows=part.skipped,
        )


def divide(document: SourceDocument, settings: IngestionSettings) -> SourceDocument | DividedDocument:
    """Return a document, or its parts where its text is larger than the limit.

    Raises:
        SourceError: a row or the file is beyond the limits, or the file cannot be read.
    """
    if isinstance(document, LargeDocument):
        return _divide_large(document, settings)
    is_divisible = isinstance(document.source, str) and may_have_parts(document.source) and not document.media_type
    if not is_divisible or not isinstance(document.data, bytes) or document.skipped_rows:
        return document
    file = BytesIO(document.data)
    try:
        divided = DividedDocument(document, file, settings)
    except SourceError:
        return document  # the parser decides: what is known here of the text is an estimate
    return divided if divided.parts else document


def _divide_large(document: LargeDocument, settings: IngestionSettings) -> DividedDocument:
    values = {item.name: getattr(document, item.name) for item in fields(SourceDocument)}
    try:
        divided = DividedDocument(SourceDocument(**values), document.file, settings)
        if not divided.parts:
            raise too_large_error(document.source, settings.max_file_bytes)
    except BaseException as error:
        document.file.close()
        if isinstance(error, OSError):
            raise unreadable_error(document.source, error) from error
        raise
    return divided


def _read_state(file: BinaryIO) -> tuple[int, int] | None:
    """Return what changes with a file; None for bytes in memory."""
    try:
        state = os.fstat(file.fileno())
    except OSError:  # io.UnsupportedOperation
        return None
    return state.st_mtime_ns, state.st_size


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingPart:
    """A part that is not read yet."""

    file: PendingDocument
    divided: DividedDocument
    part: FilePart
    etag: None = None
    """The file gives its parts their etags, once all are stored."""
    is_listed: bool = True
    """A part without text is no failure: other parts of its file have some."""
    may_be_divided: bool = False

    @property
    def source(self) -> str:
        """Name of the part."""
        return self.part.name(self.file.source)

    def load(self) -> SourceDocument:
        """Read the part. Raises SourceError."""
        return self.divided.read(self.part)

    def start_span(self) -> AbstractContextManager[None]:
        """Use the trace span of the file."""
        return nullcontext()


class PartOutcomes:
    """Adds the outcomes of parts up to that of their file. Thread-safe.

    The file ends with the last part.
    """

    def __init__(
        self,
        count: int,
        *,
        succeed: Callable[["PartOutcomes"], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Expect the outcomes of the parts.

        Args:
            count: how many parts there are.
            succeed: ends a file whose parts are all stored.
            fail: ends a file with the error of a part.
        """
        self._count_all = self._waiting = count
        self._succeed = succeed
        self._fail = fail
        self._lock = Lock()
        self._is_ended = False
        self.published: list[PublishedDocument] = []
        self.unchanged = 0
        self.empty: list[str] = []
        """Names of the parts without text."""
        self.failures: list[tuple[str, IngestionError]] = []
        """Names and errors of the parts that failed."""

    @property
    def is_ended(self) -> bool:
        """Whether no other part is to start."""
        return self._is_ended

    @property
    def is_empty(self) -> bool:
        """Whether no part has text."""
        return len(self.empty) == self._count_all

    def end(self) -> None:
        """Ignore what comes: another worker has the file, or this one gave it back."""
        self._is_ended = True

    def record_published(self, published: Sequence[PublishedDocument]) -> None:
        """Record parts that were committed."""
        with self._lock:
            self.published += published
        self._count(len(published))

    def record_unchanged(self, documents: Sequence[PendingDocument]) -> None:
        """Record parts that are stored with the same fingerprint."""
        with self._lock:
            self.unchanged += len(documents)
        self._count(len(documents))

    def record_gone(self, documents: Sequence[PendingDocument]) -> None:
        """Record parts that were removed; a part of an open file never is."""
        self._count(len(documents))

    def record_empty(self, documents: Sequence[PendingDocument]) -> None:
        """Record parts without text."""
        with self._lock:
            self.empty += [document.source for document in documents]
        self._count(len(documents))

    def record_failure(self, documents: Sequence[PendingDocument], error: Exception) -> None:
        """Record parts that failed; what is no fault of them ends the file at once."""
        if not isinstance(error, IngestionError) or error.code == "lease_lost":
            with self._lock:
                was_ended, self._is_ended = self._is_ended, True
            if not was_ended:
                self._fail(error)
            return
        with self._lock:
            self.failures += [(document.source, error) for document in documents]
        self._count(len(documents))

    def record_removed(self, documents: Sequence[PendingDocument]) -> None:
        """Record nothing: the failure of the file reports it."""

    def _count(self, parts: int) -> None:
        with self._lock:
            self._waiting -= parts
            is_last = parts > 0 and self._waiting == 0 and not self._is_ended
            self._is_ended |= is_last
        if not is_last:
            return
        if self.failures:
            name, error = self.failures[0]
            others = f" and {len(self.failures) - 1} other parts" if len(self.failures) > 1 else ""
            self._fail(IngestionError(error.code, f"{name}{others}: {error}"))
        else:
            self._succeed(self)

    def build_published(self, file: PendingDocument, outcome: Outcome) -> PublishedDocument:
        """Return the sums over the published parts, as the record of their file."""
        fallbacks: Counter[str] = Counter()
        for part in self.published:
            fallbacks.update(part.fallbacks)
        return PublishedDocument(
            pending=file,
            outcome=outcome,
            chunks=sum(part.chunks for part in self.published),
            reused=sum(part.reused for part in self.published),
            truncated_tokens=sum(part.truncated_tokens for part in self.published),
            fallbacks=fallbacks,
        )

    def find_outcome(self, *, has_replaced: bool) -> Outcome:
        """Return the outcome of the file.

        Args:
            has_replaced: whether documents that the file no longer has were removed.
        """
        if self.is_empty:
            return Outcome.EMPTY
        outcomes = {part.outcome for part in self.published}
        if not outcomes and not has_replaced:
            return Outcome.UNCHANGED
        return Outcome.NEW if outcomes == {Outcome.NEW} and not (has_replaced or self.unchanged) else Outcome.CHANGED


@dataclass(frozen=True, kw_only=True, slots=True)
class PartLeases:
    """Fences parts off by the lease of their file, which the last one completes."""

    lease: Lease
    key: uuid.UUID
    """Of the file."""
    file: PendingDocument
    outcomes: PartOutcomes

    def may_start(self, document: PendingDocument) -> bool:  # noqa: ARG002 — the file has the lease
        """Return whether to start work on a part."""
        if self.outcomes.is_ended:
            return False
        if not self.lease.may_continue(self.file):
            self.outcomes.end()
            return False
        return True

    def may_continue(self, document: PendingDocument) -> bool:  # noqa: ARG002
        """Return True: a part has no parts."""
        return True

    def verify(self, queue: psycopg.Connection, document_ids: Sequence[uuid.UUID]) -> Collection[uuid.UUID]:
        """Return all parts if the lease of the file is valid, and lock it."""
        return document_ids if self.lease.verify(queue, [self.key]) else ()

    def complete(
        self, queue: psycopg.Connection, data: psycopg.Connection, completions: Mapping[uuid.UUID, Completion]
    ) -> None:
        """Complete nothing: the file does. Args: see `Lease.complete`."""
