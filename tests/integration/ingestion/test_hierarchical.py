"""Hierarchical chunks over the database: a small piece is found and cited, and its section is shown."""

import hashlib
from contextlib import closing
from pathlib import Path

import fpdf
import pytest

from kosmos_rag import Engine, Filter, Settings, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE, Context, ContextPassage
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.readable_documents import ReadableDocuments
from tests.files import write_pdf
from tests.integration.variants import opened

PRESET = """
rag:
  chunking:
    strategy: hierarchical
    min_size: 10
    max_size: 300
    recursive_size: 200
    overlap: 20
    section_size: 300
    plain_headings: true
  answer: {threshold: 0.0}
"""
CHURN = (
    "# Metrics\n\n## Churn\n\nChurned accounts are lost.\n\nChurned accounts are counted monthly.\n\n"
    "```sql\nselect count(*) from lost;\n```"
)
METRICS = f"{CHURN}\n\n## Refunds\n\nMoney goes back to a customer.\n"


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    """A preset file whose chunks are hierarchical."""
    path = tmp_path / "mine.yaml"
    path.write_text(PRESET)
    return path


@pytest.fixture
def scope(engine: Engine, preset: Path, tenant_name: str) -> Tenant:
    """A collection by that preset, with one document."""
    engine.tenant(tenant_name).collections.create("kb", preset=preset)
    opened_scope = engine.tenant(tenant_name, collection="kb")
    opened_scope.ingest(SourceDocument(source="metrics.md", data=METRICS.encode()))
    return opened_scope


def _assert_true(scope: Tenant, context: Context) -> None:
    stored = dict(scope.texts())
    for passage in context.passages:
        cited, text = passage.citation, stored[passage.citation.source]
        assert text[passage.start : passage.end] == passage.text
        assert text[cited.start : cited.end] == passage.quote
        assert cited.quote_sha256 == hashlib.sha256(passage.quote.encode()).hexdigest()
        lines = text.split("\n")[cited.line_start - 1 : cited.line_end]
        assert "\n".join(lines).strip() == passage.quote


def _find_passage(context: Context, section: str) -> ContextPassage:
    (passage,) = [passage for passage in context.passages if passage.citation.section[-1:] == (section,)]
    return passage


def test_context__shows_the_section_and_cites_the_piece(scope: Tenant) -> None:
    context = scope.context("When are accounts counted monthly?")
    best = context.retrieval.hits[0]
    assert best.text == "Churned accounts are counted monthly."
    assert best.parent_span == (0, len(CHURN))
    churn = _find_passage(context, "Churn")
    assert (churn.text, churn.quote) == (CHURN, best.text)
    assert churn.citation.location == "Churn | L7"
    assert {hit.chunk_id for hit in context.retrieval.hits if hit.parent_span == best.parent_span} == set(
        churn.chunk_ids
    )
    assert len(churn.chunk_ids) > 1
    assert context.text.count("Churned accounts are lost.") == 1
    _assert_true(scope, context)


def test_context__shows_the_piece_where_its_section_does_not_fit(scope: Tenant) -> None:
    question = "When are accounts counted monthly?"
    whole = scope.context(question, 1)
    context = scope.context(question, 1, max_tokens=whole.tokens - 1)
    assert [passage.text for passage in context.passages] == ["Churned accounts are counted monthly."]
    assert context.passages[0].citation == whole.passages[0].citation
    assert "metrics.md | Churn | L7\n" in context.retrieval.explain()


def test_answer__cites_the_very_characters_wherever_in_the_section(scope: Tenant) -> None:
    answer = scope.answer("Are churned accounts lost, and are churned accounts counted monthly?")
    stored = dict(scope.texts())["metrics.md"]
    assert {"Churned accounts are lost.", "Churned accounts are counted monthly."} <= {
        sentence.text for sentence in answer.sentences
    }
    for sentence in answer.sentences:
        cited = sentence.citation
        assert stored[cited.start : cited.end] == sentence.text
        assert cited.quote_sha256 == hashlib.sha256(sentence.text.encode()).hexdigest()
        assert stored.split("\n")[cited.line_start - 1 : cited.line_end] == sentence.text.split("\n")
    report = scope.check_citations(answer.text, answer.context)
    assert report.supported, report.problems


def test_plain_text__is_one_section_of_which_the_nearest_paragraphs_are_shown(scope: Tenant) -> None:
    paragraphs = [f"Paragraph {name} tells of {name} and of nothing else, at some length to fill it." for name in NAMES]
    scope.ingest(SourceDocument(source="notes.txt", data="\n\n".join(paragraphs).encode()))
    context = scope.context("tells of penguins", 1)
    (passage,) = context.passages
    middle = NAMES.index("penguins")
    assert passage.quote == paragraphs[middle]
    assert passage.text == "\n\n".join(paragraphs[middle - 1 : middle + 2])
    _assert_true(scope, scope.context("tells of penguins and whales"))


def test_plain_text__has_the_sections_that_its_capitals_tell(scope: Tenant) -> None:
    text = (
        "TRAVEL POLICY\n\nTrains are booked by the employee.\n\nTickets for penguins are free.\n\n"
        "SICK LEAVE\n\nA note is due on the third day.\n"
    )
    scope.ingest(SourceDocument(source="policy.txt", data=text.encode()))
    context = scope.context("Are tickets for penguins free?")
    travel = _find_passage(context, "TRAVEL POLICY")
    assert (travel.text, travel.quote) == (text[: text.index("\n\nSICK")], "Tickets for penguins are free.")
    _assert_true(scope, context)


NAMES = ["ants", "bees", "cows", "dogs", "penguins", "owls", "whales", "yaks"]


def test_pdf__has_the_pages_of_piece_and_section(scope: Tenant) -> None:
    pdf = fpdf.FPDF()
    pdf.set_font("helvetica", size=12)
    pdf.add_page()
    pdf.start_section("Results")
    pdf.cell(text="Results", new_x="LMARGIN", new_y="NEXT")
    pdf.cell(text="The first half was quiet.")
    pdf.add_page()
    pdf.cell(text="Then penguins arrived in great numbers.")
    pdf.add_page()
    pdf.start_section("Outlook")
    pdf.cell(text="Outlook", new_x="LMARGIN", new_y="NEXT")
    scope.ingest(SourceDocument(source="report.pdf", data=bytes(pdf.output())))
    results = _find_passage(scope.context("penguins arrived in great numbers"), "Results")
    assert results.text.startswith("Results\nThe first half was quiet.")
    assert results.quote == "Then penguins arrived in great numbers."
    assert (results.citation.page_start, results.citation.page_end) == (2, 2)
    assert (results.page_start, results.page_end) == (1, 2)
    quiet = [message for message in scope.answer("Was the first half quiet?").sentences if "quiet" in message.text]
    assert [(message.citation.page_start, message.citation.page_end) for message in quiet] == [(1, 1)]


def test_excerpts__have_the_pages_of_their_place(scope: Tenant, database: DatabaseSettings) -> None:
    pages = [f"Page {page} tells of penguins. " * 80 for page in range(20)]
    scope.ingest(SourceDocument(source="long.pdf", data=write_pdf(*pages)))
    hits = scope.search("penguins", 200, Filter(sources=("long.pdf",))).hits
    # From below what the smallest integer of the server holds to above it.
    beyond = (hits[0].version_id, 2**15 - 100, 2**15 + 100)
    spans = [(hit.version_id, hit.start, hit.end) for hit in hits]
    with closing(Database(database)) as opened_database:
        *excerpts, last = ReadableDocuments(opened_database.app, scope.id, [EVERYONE]).read_spans([*spans, beyond])
    for excerpt, hit in zip(excerpts, hits, strict=True):
        assert excerpt is not None
        assert (excerpt.text, excerpt.page_start, excerpt.page_end) == (hit.text, hit.page_start, hit.page_end)
        assert len(excerpt.page_breaks) == (excerpt.page_end or 0) - (excerpt.page_start or 0)
        assert all(hit.start < offset < hit.end for offset in excerpt.page_breaks)
    assert last is not None
    assert last.text == dict(scope.texts())["long.pdf"][2**15 - 100 : 2**15 + 100]


def test_ingestion_under_another_chunker__replaces_the_chunks(settings: Settings, tenant_name: str) -> None:
    document = SourceDocument(source="metrics.md", data=METRICS.encode())
    strategies = ("paragraph", "hierarchical", "markdown")
    result = [_around(settings, tenant_name, document, strategy) for strategy in strategies]
    assert result == [{None}, {(0, len(CHURN)), (len(CHURN) + 2, len(METRICS) - 1)}, {None}]


def _around(
    settings: Settings, tenant_name: str, document: SourceDocument, strategy: str
) -> set[tuple[int, int] | None]:
    sizes = {"rag.chunking.strategy": strategy, "rag.chunking.min_size": 10}
    with opened(settings, sizes) as engine:
        scope = engine.tenant(tenant_name)
        report = scope.ingest(document)
        assert report.new + report.changed == 1
        return {hit.parent_span for hit in scope.search("churn accounts money", 20).hits}
