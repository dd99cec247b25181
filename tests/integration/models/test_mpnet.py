"""The default's shape: an MPNet of 768 dimensions that reads 384 tokens, with random weights, from end to end."""

from pathlib import Path

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from tests.integration.variants import changed
from tests.mpnet import write_mpnet


@pytest.fixture(scope="module")
def mpnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder: the real architecture with two layers, and a real tokenizer."""
    return write_mpnet(tmp_path_factory.mktemp("mpnet"), layers=2)


@pytest.mark.model
@pytest.mark.slow
def test_mpnet__of_768_dimensions_goes_through_the_whole_pipeline(settings: Settings, mpnet: Path) -> None:
    embedding = {"rag.embedding.model": str(mpnet), "rag.embedding.dimensions": 768}
    chunking = {"rag.chunking.strategy": "semantic", "rag.chunking.max_size": 4000}
    with Engine(changed(settings, embedding | chunking)) as engine:
        scope = engine.tenant("acme")
        text = "# Churn\n\n" + " ".join(f"Account {number} left us in the month of June." for number in range(300))
        report = scope.ingest([SourceDocument(source="/kb/churn.md", data=text.encode())])
        assert report.failed == ()
        result = scope.search("Which accounts left?", 50)
        assert result.retrievers["dense"].returned == report.chunks > 3
        for hit in result.hits:
            assert text[hit.start : hit.end] == hit.text
        tokens = engine.embedder.tokenizer.count([hit.text for hit in result.hits])
        assert max(tokens) <= engine.embedder.max_tokens <= 382
