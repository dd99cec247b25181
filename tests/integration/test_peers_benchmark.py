"""What the benchmark beside the peers gives every system: the very chunks that ingestion publishes."""

import psycopg
import pytest

from benchmarks.beir import EvaluationSet
from benchmarks.peers.sets import TENANT, prepare
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder

EVALUATION = EvaluationSet(
    name="three",
    documents={
        "d1": ("Churn", "Churn\n\n" + "Churn is the share of customers who left in a month. " * 40),
        "d2": ("Leave", "Leave\n\nTwenty days of paid leave a year."),
        "d3": ("", "Wings of a delta shape stall late."),
    },
    queries={"q1": "what is churn", "q2": "days of leave"},
    qrels={"q1": {"d1": 1}, "q2": {"d2": 1}},
)


def test_prepared_set__holds_what_ingestion_publishes(
    engine: Engine, settings: Settings, database: DatabaseSettings
) -> None:
    prepared = prepare(EVALUATION, settings, HashingEmbedder())
    engine.tenant(TENANT.name).ingest(
        SourceDocument(source=source, title=title or None, data=text.encode())
        for source, (title, text) in EVALUATION.documents.items()
    )
    with psycopg.connect(database.admin_url or "") as connection:
        stored = connection.execute("SELECT c.id::text FROM kosmos.chunks c").fetchall()
    assert {chunk_id for (chunk_id,) in stored} == set(prepared.corpus.ids)
    assert len(stored) > len(EVALUATION.documents)


def test_quality__is_that_of_the_best_chunk_of_each_document(settings: Settings) -> None:
    prepared = prepare(EVALUATION, settings, HashingEmbedder())
    of = {document: [c for c, d in prepared.document_of.items() if d == document] for document in EVALUATION.documents}
    right = {"q1": of["d1"] + of["d2"], "q2": of["d2"] + of["d1"]}
    assert set(prepared.quality(right).values()) == {1.0}
    second = {"q1": of["d2"] + of["d1"], "q2": of["d2"]}
    assert prepared.quality(second)["RR@10"] == pytest.approx(0.75)
