"""Metadata that a file declares, and those that are given with it."""

import uuid

import pytest

from kosmos_rag.core.config import Settings
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.ingestion.document import DocumentProcessor
from kosmos_rag.models.testing.hashing import HashingEmbedder

FILE = b"---\ntitle: Guide\ndate: 2026-01-31\ntags: [kpi]\ndepartment: board\n---\nWords of the guide.\n"


@pytest.fixture(scope="module")
def processor() -> DocumentProcessor:
    return DocumentProcessor(Settings(), HashingEmbedder(), Telemetry())


def test_process__given_metadata_take_precedence(processor: DocumentProcessor) -> None:
    document = SourceDocument(source="a.md", data=FILE, metadata={"date": "2020", "owner": "Ann"})
    processed = processor.process(uuid.uuid4(), document, ["english"])
    assert processed.source.metadata == {"date": "2020", "tags": ["kpi"], "owner": "Ann"}
    assert processed.fingerprint == processor.fingerprint(document)
    assert processed.title == "Guide"


def test_process__chunks_have_no_front_matter_and_the_lines_of_the_file(processor: DocumentProcessor) -> None:
    processed = processor.process(uuid.uuid4(), SourceDocument(source="a.md", data=FILE), ["english"])
    (chunk,) = processed.chunks
    assert chunk.text == processed.parsed.text[chunk.start : chunk.end] == "Words of the guide."
    assert (chunk.line_start, chunk.line_end) == (7, 7)
