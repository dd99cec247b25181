"""The analytics preset over the sample knowledge base: what its document says of chunks, hits and citations."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.analytics import find_rank, find_sql_sections, questions, share
from kosmos_rag import Engine, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder

ROOT = Path(__file__).parents[2]
QUESTION = "How is churn calculated?"


def _documents(names: str = "*.md") -> list[SourceDocument]:
    return [
        SourceDocument(source=f"docs/knowledge_base/{path.name}", data=path.read_bytes())
        for path in sorted((ROOT / "examples" / "knowledge_base").glob(names))
    ]


def _scope(engine: Engine, names: str = "*.md") -> Tenant:
    """Build the collection from its documents, and return it."""
    engine.tenant("acme").collections.create("kb", preset="analytics")
    scope = engine.tenant("acme", collection="kb")
    assert scope.ingest(_documents(names)).failed == ()
    return scope


@pytest.fixture
def analyst(database: DatabaseSettings, minilm: SentenceTransformerEmbedder) -> Iterator[Engine]:
    """An engine with the preset's model."""
    settings = Settings.load(
        overrides={"rag.embedding.model": minilm.name, "rag.embedding.dimensions": 384, "rag.reranking.enabled": False}
    )
    with Engine(settings.model_copy(update={"database": database}), embedder=minilm) as opened:
        yield opened


def _outcome(result: SearchResult) -> list[tuple[object, ...]]:
    return [(hit.chunk_id, hit.version_id, hit.rank, hit.score, tuple(hit.signals.items())) for hit in result.hits]


@pytest.mark.model
def test_knowledge_base__is_answered_as_documented(analyst: Engine) -> None:
    scope = _scope(analyst)
    result = scope.search(QUESTION)
    best = result.hits[0]
    assert result.intent == "calculation"
    assert best.source == "docs/knowledge_base/example_sql.md"
    assert re.fullmatch(r"Churn Calculation \| L\d+ to L\d+", best.location)
    assert set(best.signals) >= {"header_match", "source_bonus", "word_overlap"}
    assert len({hit.source for hit in result.hits}) == result.returned
    assert all(re.search(r"\bchurn", " ".join((*hit.section, hit.text)), re.IGNORECASE) for hit in result.hits)
    assert not any(hit.section[-1].startswith("Purpose") for hit in result.hits)


@pytest.mark.model
def test_sql_sections__are_found_and_cited_by_their_sql(analyst: Engine) -> None:
    scope = _scope(analyst)
    text = (ROOT / "examples" / "knowledge_base" / "example_sql.md").read_text(encoding="utf-8")
    sections = find_sql_sections(text)
    hits = {title: scope.search(f"How is {title} calculated?").hits[0].text for title, _ in sections}
    assert len(sections) == 18
    assert [title for title, sql in sections if sql not in hits[title]] == []

    answer = scope.answer("How is Win-Backs and Their Gap calculated?")
    (cited,) = [sentence.citation for sentence in answer.sentences if sentence.kind == "code"]
    quoted = "\n".join(text.splitlines()[cited.line_start - 1 : cited.line_end])
    assert dict(sections)["Win-Backs and Their Gap"] in quoted
    passage = answer.context.passages[cited.index - 1].citation
    assert (passage.line_start, passage.line_end) == (cited.line_start, cited.line_end)


@pytest.mark.model
@pytest.mark.slow
def test_questions__find_file_and_section(analyst: Engine) -> None:
    scope = _scope(analyst)
    ranks = [
        find_rank(scope.search(question.text, 10), question)
        for question in questions(ROOT / "examples" / "questions.yaml")
    ]
    assert share(ranks, 1) >= 0.7
    assert share(ranks, 3) >= 0.75


@pytest.mark.model
@pytest.mark.slow
def test_rebuild__gives_the_same_ids_order_and_scores(analyst: Engine) -> None:
    part = "metric_definitions.md"
    scope = _scope(analyst, part)
    before = _outcome(scope.search("What is a trial?"))
    assert analyst.tenant("acme").collections.delete("kb") == 1
    assert _outcome(_scope(analyst, part).search("What is a trial?")) == before
    assert before


def test_chunks__keep_sql_whole_and_sections_apart(engine: Engine) -> None:
    _scope(engine)
    with engine.database.app.transaction(engine.tenant("acme").id, ["everyone"]) as connection:
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
