"""From the real all-MiniLM-L6-v2 to the real all-mpnet-base-v2 and back, with a vector index at 768 dimensions."""

import os
from pathlib import Path

import numpy as np
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings, EmbeddingSettings
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.models.download import MPNET, find_pulled
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from tests.integration.variants import changed

QUESTION = "How many accounts cancelled their subscription?"
TEXTS = (
    "Churn is the share of accounts whose subscription was cancelled within the month.",
    "The canteen opens at noon and closes at two.",
    "Employees receive twenty days of paid annual leave.",
    "The wing of the aircraft is swept back by thirty degrees.",
    "An invoice is paid within thirty days of its date.",
)


@pytest.fixture(scope="module")
def mpnet() -> SentenceTransformerEmbedder:
    """The model that `make models-mpnet` keeps, or that of KOSMOS_TEST_MPNET."""
    models = Settings().models
    folder = os.environ.get("KOSMOS_TEST_MPNET")
    if folder is None and (pulled := find_pulled(MPNET, models)) is not None:
        folder = str(pulled.folder)
    if folder is None or not Path(folder).is_dir():
        pytest.skip(f"{MPNET} is not on this machine: run make models-mpnet, or set KOSMOS_TEST_MPNET to its folder")
    return SentenceTransformerEmbedder(EmbeddingSettings(model=folder, dimensions=768), models)


def _assert_scores(engine: Engine, embedder: Embedder) -> None:
    hits = engine.tenant("acme").search(QUESTION).hits
    assert len(hits) >= 2  # those of a negative cosine are dropped
    assert hits[0].text == TEXTS[0]
    question = embedder.embed_query(QUESTION)
    # The title of a document is embedded with its text where it is no file name: these have none.
    cosines = embedder.embed([hit.text for hit in hits]) @ question
    assert np.array([hit.dense_score for hit in hits]) == pytest.approx(cosines, abs=0.02)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_move__to_768_dimensions_and_back(
    settings: Settings,
    database: DatabaseSettings,
    minilm: SentenceTransformerEmbedder,
    mpnet: SentenceTransformerEmbedder,
) -> None:
    two_spaces = {
        "rag.embedding": EmbeddingSettings(model=minilm.name, dimensions=384),
        "rag.next_embedding": settings.rag.next_embedding.model_copy(update={"model": mpnet.name, "dimensions": 768}),
        "indexes.vector": "hnsw",
        "indexes.vector_min_chunks": 1,
    }
    with Engine(changed(settings, two_spaces), embedder=minilm, next_embedder=mpnet) as engine:
        acme = engine.tenant("acme")
        acme.ingest(SourceDocument(source=f"d{number}", data=text.encode()) for number, text in enumerate(TEXTS))
        _assert_scores(engine, minilm)
        started = acme.spaces.start()
        assert [(info.dimensions, info.embedded, info.live) for info in started] == [(384, 5, True), (768, 5, False)]
        acme.spaces.cutover(force="five documents say nothing about quality")
        _assert_scores(engine, mpnet)
        acme.indexes.build()
        with psycopg.connect(database.admin_url or "") as connection:
            indexes = connection.execute("SELECT indexdef FROM pg_indexes WHERE schemaname = 'kosmos'").fetchall()
        assert any("hnsw" in definition and "halfvec(768)" in definition for (definition,) in indexes)
        _assert_scores(engine, mpnet)
        acme.spaces.rollback()
        _assert_scores(engine, minilm)
