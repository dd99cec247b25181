"""How documents share batches."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import IngestInterrupted
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.ingestion import run
from kosmos_rag.ingestion.discovery import LoadedDocument, PendingDocument
from kosmos_rag.ingestion.executor import BATCH_CHUNKS, BATCH_S, BatchLimit, SynchronousExecutor
from kosmos_rag.ingestion.report import ReportBuilder
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import opened


@dataclass
class RecordingExecutor:
    """Publishes at once, and records which documents came together."""

    batch_chunks: int = 100
    batches: list[list[str]] = field(default_factory=list)

    load = staticmethod(SynchronousExecutor().load)
    process = staticmethod(SynchronousExecutor().process)

    def submit(self, documents: Sequence[PendingDocument], chunks: int, publish: Callable[[], None]) -> None:
        self.batches.append([document.source for document in documents])
        publish()


class InterruptedEmbedder(HashingEmbedder):
    """Is interrupted by the user after some texts."""

    texts = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += len(texts)
        if self.texts > 300:
            raise KeyboardInterrupt
        return super().embed(texts)


def test_interrupted_call__keeps_what_is_stored_and_reports_it(settings: Settings, tenant_name: str) -> None:
    documents = [SourceDocument(source=f"{n:03}", data=f"Words of document {n}.".encode()) for n in range(400)]
    with Engine(settings, embedder=InterruptedEmbedder()) as engine:
        scope = engine.tenant(tenant_name)
        with pytest.raises(IngestInterrupted, match="256 of 400 documents are done") as interruption:
            scope.ingest(documents)
        assert interruption.value.report.new == len(scope.sources()) == 256
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        report = engine.tenant(tenant_name).ingest(documents)
        assert (report.new, report.unchanged) == (144, 256)


def test_interrupted_call__counts_unchanged_documents_and_closes_the_file_that_it_divides(
    settings: Settings, tenant_name: str, tmp_path: Path
) -> None:
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(f"Words of document {number}.")
    embedder = InterruptedEmbedder()
    with opened(settings, {"ingestion.parsing.text_mb": 1, "ingestion.max_file_mb": 2}, embedder=embedder) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest(tmp_path)
        (tmp_path / "new.txt").write_text("Words of a new document.")
        (tmp_path / "rows.csv").write_text("number,words\n" + "".join(f"{n},some words\n" for n in range(200_000)))
        embedder.texts = 300
        with pytest.raises(IngestInterrupted, match="10 of 12 documents are done") as interruption:
            scope.ingest(tmp_path)
        assert interruption.value.report.unchanged == 10
        assert str(tmp_path / "rows.csv") not in {file.path for file in psutil.Process().open_files()}


@pytest.mark.parametrize(("large_bytes", "batch_chunks"), [(5_000, 100), (1_000_000, 3)])
def test_batch__is_published_before_a_large_document(
    settings: Settings, tenant_name: str, monkeypatch: pytest.MonkeyPatch, large_bytes: int, batch_chunks: int
) -> None:
    monkeypatch.setattr(run, "LARGE_BYTES", large_bytes)
    texts = {"a": "Some words.", "b": "Other words.", "large": "Many words on a line.\n\n" * 500, "c": "Last words."}
    documents = [LoadedDocument(document=SourceDocument(source=n, data=t.encode())) for n, t in texts.items()]
    executor = RecordingExecutor(batch_chunks=batch_chunks)
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        ingest = engine.ingest_pipeline
        ingest.run(tenant(tenant_name), "default", documents, recorder=ReportBuilder(failed=[]), executor=executor)
        assert len(engine.tenant(tenant_name).documents()) == 4
    assert executor.batches[0] == ["a", "b"]


@pytest.mark.parametrize(
    ("chunks", "seconds", "expected"), [(1, 0.3, 20), (1_000_000, 0.0, BATCH_CHUNKS), (10, 0.05, 1000)]
)
def test_batch_limit__is_what_takes_five_seconds(chunks: int, seconds: float, expected: int) -> None:
    limit = BatchLimit(20)
    assert limit.chunks == 20
    start = time.monotonic()
    with limit.measure(chunks):
        time.sleep(seconds)
    elapsed = time.monotonic() - start
    fewest = max(20, min(BATCH_CHUNKS, int(chunks * BATCH_S / max(elapsed, 1e-3))))
    assert fewest <= limit.chunks <= expected
