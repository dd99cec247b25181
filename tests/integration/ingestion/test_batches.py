"""How documents share batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.ingestion import pipeline
from kosmos_rag.ingestion.discovery import LoadedDocument, PendingDocument
from kosmos_rag.ingestion.report import ReportBuilder
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant


@dataclass
class RecordingExecutor:
    """Publishes at once, and records which documents came together."""

    batch_chunks: int = 100
    batches: list[list[str]] = field(default_factory=list)

    process = staticmethod(pipeline.SYNCHRONOUS.process)

    def submit(self, documents: Sequence[PendingDocument], chunks: int, publish: Callable[[], None]) -> None:
        self.batches.append([document.source for document in documents])
        publish()


@pytest.mark.parametrize(("large_bytes", "batch_chunks"), [(5_000, 100), (1_000_000, 3)])
def test_batch__is_published_before_a_large_document(
    settings: Settings, tenant_name: str, monkeypatch: pytest.MonkeyPatch, large_bytes: int, batch_chunks: int
) -> None:
    monkeypatch.setattr(pipeline, "LARGE_BYTES", large_bytes)
    texts = {"a": "Some words.", "b": "Other words.", "large": "Many words on a line.\n\n" * 500, "c": "Last words."}
    documents = [LoadedDocument(document=SourceDocument(source=n, data=t.encode())) for n, t in texts.items()]
    executor = RecordingExecutor(batch_chunks=batch_chunks)
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        ingest = engine.ingest_pipeline
        ingest.run(tenant(tenant_name), "default", documents, recorder=ReportBuilder(failed=[]), executor=executor)
        assert len(engine.tenant(tenant_name).documents()) == 4
    assert executor.batches[0] == ["a", "b"]
