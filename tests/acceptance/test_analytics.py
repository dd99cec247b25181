"""The analytics preset over the sample knowledge base: what its document says of chunks, hits and citations."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.analytics import place, questions, share
from kosmos_rag import Engine, Retrieval, Settings, SourceDocument, TenantScope
from kosmos_rag.config import DatabaseSettings
from kosmos_rag.embedding import SentenceTransformerEmbedder

ROOT = Path(__file__).parents[2]
QUESTION = "How is churn calculated?"

pytestmark = pytest.mark.model


def _documents() -> Iterator[SourceDocument]:
    for path in sorted((ROOT / "examples" / "knowledge_base").glob("*.md")):
        yield SourceDocument(source=f"docs/knowledge_base/{path.name}", data=path.read_bytes())


def _scope(engine: Engine) -> TenantScope:
    """Build the collection from its documents, and return it."""
    engine.tenant("acme").collections.create("kb", preset="analytics")
    scope = engine.tenant("acme", collection="kb")
    assert scope.ingest(_documents()).failed == ()
    return scope


@pytest.fixture
def engine(database: DatabaseSettings, minilm: SentenceTransformerEmbedder) -> Iterator[Engine]:
    settings = Settings.load(
        overrides={"rag.embedding.model": minilm.name, "rag.embedding.dimensions": 384, "rag.reranking.enabled": False}
    )
    with Engine(settings.model_copy(update={"database": database}), embedder=minilm) as opened:
        yield opened


def _outcome(found: Retrieval) -> list[tuple[object, ...]]:
    return [(hit.chunk_id, hit.version_id, hit.rank, hit.score, tuple(hit.signals.items())) for hit in found.hits]


def test_knowledge_base__is_answered_as_documented(engine: Engine) -> None:
    scope = _scope(engine)
    found = scope.retrieve(QUESTION)
    best = found.hits[0]
    assert found.intent == "calculation"
    assert re.fullmatch(r"Churn Calculation \| L\d+ to L\d+", best.place)
    assert best.source == "docs/knowledge_base/example_sql.md"
    assert len({hit.source for hit in found.hits}) == found.returned
    assert all(re.search(r"\bchurn", " ".join((*hit.section, hit.text)), re.IGNORECASE) for hit in found.hits)
    assert set(best.signals) >= {"header_match", "source_bonus", "word_overlap"}
    assert not any(hit.section[-1].startswith("Purpose") for hit in found.hits)

    before = {question: _outcome(scope.retrieve(question)) for question in (QUESTION, "What is a trial?")}
    assert engine.tenant("acme").collections.delete("kb") == 6
    rebuilt = _scope(engine)
    assert {question: _outcome(rebuilt.retrieve(question)) for question in before} == before

    ranks = [
        place(rebuilt.retrieve(asked.text, 10), asked) for asked in questions(ROOT / "examples" / "questions.yaml")
    ]
    assert share(ranks, 1) >= 0.7
    assert share(ranks, 3) >= 0.75


def test_chunks__keep_sql_whole_and_sections_apart(engine: Engine) -> None:
    _scope(engine)
    with engine.parts.database.app.transaction(engine.tenant("acme").id, ["everyone"]) as connection:
        pieces = connection.execute(
            "SELECT c.text, c.section, d.source FROM kosmos.chunks c JOIN kosmos.documents d ON d.id = c.document_id"
        ).fetchall()
    blocks = [
        (document.source, block)
        for document in _documents()
        for block in re.findall(r"^```sql\n.*?^```$", document.data.decode(), re.DOTALL | re.MULTILINE)
    ]
    assert len(blocks) == 18
    for source, block in blocks:
        assert any(block in text for text, _, of in pieces if of == source)
    assert all(len(text) <= 900 or "```" in text for text, _, _ in pieces)
    assert all(len(re.findall(r"^## ", text, re.MULTILINE)) <= 1 for text, _, _ in pieces)
    assert any(section[-1] == "Refunds" and len(text) < 500 for text, section, _ in pieces), (
        "short definitions are kept"
    )
