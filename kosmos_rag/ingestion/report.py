"""Outcomes of documents: their recorders, and the report of `ingest`."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import IngestFailure, IngestReport, Outcome
from kosmos_rag.ingestion.discovery import PendingDocument
from kosmos_rag.ingestion.document import ChunkedDocument


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedDocument:
    """A document whose new version is committed."""

    pending: PendingDocument
    outcome: Outcome
    """NEW or CHANGED."""
    chunks: int
    reused: int
    """Chunks that were not embedded again."""
    truncated_tokens: int
    """Tokens of titles and sections that were cut off."""
    fallbacks: Mapping[str, int]
    """Chunks by the reason for which another chunker than the chosen one made them."""

    @classmethod
    def from_document(
        cls, pending: PendingDocument, document: ChunkedDocument, outcome: Outcome, *, reused: int
    ) -> Self:
        """Return the record of a document, without its text.

        Args:
            outcome: NEW or CHANGED.
            reused: Chunks that were not embedded again.
        """
        return cls(
            pending=pending,
            outcome=outcome,
            chunks=len(document.chunks),
            reused=reused,
            truncated_tokens=document.truncated_tokens,
            fallbacks=Counter(chunk.fallback_reason for chunk in document.chunks if chunk.fallback_reason),
        )


class OutcomeRecorder(Protocol):
    """Receives one outcome of each document that was started.

    Called from the threads that publish.
    """

    def record_published(self, published: Sequence[PublishedDocument]) -> None:
        """Record the documents of a batch that were committed; may be empty."""
        ...

    def record_unchanged(self, documents: Sequence[PendingDocument]) -> None:
        """Record documents that are stored with the same fingerprint."""
        ...

    def record_gone(self, documents: Sequence[PendingDocument]) -> None:
        """Record documents that were removed after they were listed.

        May be empty.
        """
        ...

    def record_empty(self, documents: Sequence[PendingDocument]) -> None:
        """Record listed documents without text. May be empty."""
        ...

    def record_failure(self, documents: Sequence[PendingDocument], error: Exception) -> None:
        """Record documents that failed. May raise the error: it ends the run."""
        ...

    def record_removed(self, documents: Sequence[PendingDocument]) -> None:
        """Record failed documents whose stored version was removed.

        It would have stayed readable by everyone.
        """
        ...


@dataclass(kw_only=True)
class ReportBuilder:
    """Adds the outcomes up to an IngestReport.

    What fails for another reason than its document ends the run.
    """

    counts: Counter[Outcome] = field(default_factory=Counter)
    chunks: int = 0
    reused: int = 0
    failed: list[IngestFailure] = field(default_factory=list)
    fallbacks: Counter[str] = field(default_factory=Counter)
    started_at: float = field(default_factory=time.monotonic)

    def record_published(self, published: Iterable[PublishedDocument]) -> None:
        """Count new and changed documents with their chunks."""
        for entry in published:
            self.counts[entry.outcome] += 1
            self.chunks += entry.chunks
            self.reused += entry.reused
            self.fallbacks.update(entry.fallbacks)

    def record_unchanged(self, documents: Sequence[PendingDocument]) -> None:
        """Count unchanged documents."""
        self.counts[Outcome.UNCHANGED] += len(documents)

    def record_gone(self, documents: Sequence[PendingDocument]) -> None:
        """Count nothing: the source no longer has them."""

    def record_empty(self, documents: Sequence[PendingDocument]) -> None:
        """Count documents without text."""
        self.counts[Outcome.EMPTY] += len(documents)

    def record_failure(self, documents: Sequence[PendingDocument], error: Exception) -> None:
        """Record why documents failed.

        Raises the error where it is not about a document.
        """
        if not isinstance(error, IngestionError):
            raise error
        self.failed += [
            IngestFailure(source=str(document.source), code=error.code, message=str(error)) for document in documents
        ]

    def record_removed(self, documents: Sequence[PendingDocument]) -> None:
        """Count removed documents."""
        self.counts[Outcome.REMOVED] += len(documents)

    def build(self) -> IngestReport:
        """Return the report."""
        return IngestReport(
            new=self.counts[Outcome.NEW],
            changed=self.counts[Outcome.CHANGED],
            unchanged=self.counts[Outcome.UNCHANGED],
            removed=self.counts[Outcome.REMOVED],
            failed=tuple(self.failed),
            chunks=self.chunks,
            reused=self.reused,
            fallbacks=dict(self.fallbacks),
            empty=self.counts[Outcome.EMPTY],
            seconds=round(time.monotonic() - self.started_at, 3),
        )
