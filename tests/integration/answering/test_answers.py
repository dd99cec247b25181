"""Grounded answers over the database: what they cite is what is stored, and what nothing bears out is refused."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.answering.abstention import REFUSAL
from kosmos_rag.answering.citation_check import quote_status
from kosmos_rag.answering.evidence import score_evidence
from kosmos_rag.answering.scorers import EmbeddingScorer
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import Turn
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed, opened

CHURN = """# Metrics

## Churn Calculation

Churn is calculated from accounts lost in the month. It is divided by the accounts that paid on its first day.

```sql
select count(*) filter (where lost) / count(*) as churn
from accounts;
```

## Refunds

Money that went back to a customer is booked on the day of the refund.
"""


@pytest.fixture(scope="module")
def answering(shared_settings: Settings) -> Iterator[Engine]:
    """An engine that answers whatever it finds evidence for."""
    with opened(shared_settings, {"rag.answer.threshold": 0.0}, embedder=HashingEmbedder(dimensions=256)) as engine:
        yield engine


@pytest.fixture
def scope(answering: Engine, tenant_name: str) -> Tenant:
    """A tenant with one document."""
    tenant = answering.tenant(tenant_name)
    tenant.ingest(SourceDocument(source="metrics.md", data=CHURN.encode()))
    return tenant


def test_answer__cites_the_very_characters_of_the_stored_document(scope: Tenant) -> None:
    answer = scope.answer("How is churn calculated?")
    stored = dict(scope.texts())
    assert answer.sentences
    for sentence in answer.sentences:
        cited = sentence.citation
        assert stored[cited.source][cited.start : cited.end] == sentence.text
        assert cited.quote_sha256 == hashlib.sha256(sentence.text.encode()).hexdigest()
        lines = stored[cited.source].split("\n")[cited.line_start - 1 : cited.line_end]
        assert sentence.text in "\n".join(lines)
        assert cited.marker in answer.text


def test_answer__shows_sql_as_sql_under_its_section_and_lines(scope: Tenant) -> None:
    answer = scope.answer("How is churn calculated?")
    (code,) = [sentence for sentence in answer.sentences if sentence.kind == "code"]
    assert code.text.startswith("```sql\nselect count(*)")
    assert code.citation.location == "Churn Calculation | L7 to L10"
    assert code.text in answer.text


SQL = "select count(*) as churn\n\nfrom accounts;"
HTML = (
    f"<html><body><h1>Churn Calculation</h1><p>Churn is loss.</p><pre>{SQL}</pre><table><tr><th>Team</th><th>Owns</th>"
    "</tr><tr><td>Finance</td><td>Churn</td></tr><tr><td>Data</td><td>Tables of churn</td></tr></table></body></html>"
)


@pytest.mark.parametrize(
    ("source", "text", "rows"),
    [
        ("a.html", HTML, ["Team: Finance; Owns: Churn", "Team: Data; Owns: Tables of churn"]),
        ("a.adoc", f"== Churn Calculation\nChurn is loss.\n\n[source,sql]\n----\n{SQL}\n----\n", []),
        ("a.org", f"* Churn Calculation\nChurn is loss.\n#+BEGIN_SRC sql\n{SQL}\n#+END_SRC\n", []),
        (
            "a.tex",
            f"\\section{{Churn Calculation}}\nChurn is loss.\n\\begin{{verbatim}}\n{SQL}\n\\end{{verbatim}}\n",
            [],
        ),
        ("a.sql", f"-- Churn is loss.\n{SQL}\n", []),
    ],
)
def test_answer__has_code_and_rows_and_no_headings_of_any_format(
    settings: Settings, tenant_name: str, source: str, text: str, rows: list[str]
) -> None:
    embedder = HashingEmbedder(dimensions=256)
    with Engine(settings, embedder=embedder) as engine:
        tenant = engine.tenant(tenant_name)
        tenant.ingest(SourceDocument(source=source, data=text.encode()))
        context = tenant.context("How is churn calculated?")
    scored = score_evidence(context.question, context.passages, EmbeddingScorer(embedder))
    assert [item.unit.text.removeprefix("-- Churn is loss.\n") for item in scored if item.unit.kind == "code"] == [SQL]
    assert [item.unit.text for item in scored if item.unit.kind == "row"] == rows
    sentences = [item.unit.text for item in scored if item.unit.kind == "sentence"]
    assert sentences == ([] if source == "a.sql" else ["Churn is loss."])


def test_answer__searches_the_parts_of_a_question_apart(scope: Tenant) -> None:
    office = "# Offices\n\nThe garage of the Bergen office belongs to the facility team.\n"
    scope.ingest(SourceDocument(source="offices.md", data=office.encode()))
    question = "On which day is a refund booked and which team does the garage of the Bergen office belong to?"
    answer = scope.answer(question, k=2)
    assert answer.question == answer.search_query == question
    assert {citation.source for citation in answer.citations} == {"metrics.md", "offices.md"}
    assert [activity.question for activity in answer.context.retrieval.activity] == [
        "On which day is a refund booked?",
        "which team does the garage of the Bergen office belong to?",
    ]
    with scope.stream_answer(question, k=2) as stream:
        assert stream.answer().text == answer.text


@pytest.mark.parametrize("history", [(), (Turn(question="Who pays?", answer="The customer."),)])
def test_answer__of_several_parts_has_the_words_of_a_copied_question(scope: Tenant, history: Sequence[Turn]) -> None:
    """The units are compared with the question too, and not only what is searched."""
    garage = "# Offices\n\nThe garage of the Bergen office belongs to the facility team.\n"
    scope.ingest(SourceDocument(source="offices.md", data=garage.encode()))
    question = "On which day is a refund booked and which team does the garage of the Bergen office belong to?"
    copied = question.replace("refund", "re\u00adfund").replace("garage", "gar\u00adage")
    plain, answer = (scope.answer(text, k=2, history=history) for text in (question, copied))
    assert answer.search_query == question
    assert (answer.text, answer.confidence) == (plain.text, plain.confidence)


def test_answer__passes_its_own_check(scope: Tenant) -> None:
    answer = scope.answer("How is churn calculated?")
    report = scope.check_citations(answer.text, answer.context)
    assert report.supported, report.problems
    assert not scope.check_citations("Churn is 5 percent. [1]", answer.context).supported


def test_answer__refuses_below_the_threshold(settings: Settings, tenant_name: str) -> None:
    strict = changed(settings, {"rag.answer.threshold": 1.0})
    with Engine(strict, embedder=HashingEmbedder()) as engine:
        refused = engine.tenant(tenant_name)
        refused.ingest(SourceDocument(source="metrics.md", data=CHURN.encode()))
        answer = refused.answer("How many penguins are there?")
    assert (answer.refused, answer.text, answer.sentences) == (True, REFUSAL, ())


def test_answer__of_a_tenant_without_documents_is_a_refusal(
    scope: Tenant, settings: Settings, tenant_name: str
) -> None:
    with Engine(settings, embedder=HashingEmbedder(dimensions=256)) as engine:
        answer = engine.tenant(f"{tenant_name}-nobody").answer("How is churn calculated?")
    assert (answer.refused, answer.text, answer.confidence) == (True, REFUSAL, 0.0)


def test_answer__refuses_what_cannot_be_asked(scope: Tenant) -> None:
    with pytest.raises(RequestError, match="the question is empty"):
        scope.answer(" ")


def test_quotes__are_known_to_have_moved_or_gone_after_another_ingestion(scope: Tenant) -> None:
    answer = scope.answer("How is churn calculated?")
    before = answer.sentences[0]
    scope.ingest(SourceDocument(source="metrics.md", data=b"A line more.\n\n" + CHURN.encode()))
    moved = quote_status(before.citation, before.text, dict(scope.texts())["metrics.md"])
    assert (moved.state, moved.start) == ("moved", before.citation.start + len("A line more.\n\n"))
    scope.ingest(SourceDocument(source="metrics.md", data=b"Nothing of that is left."))
    assert quote_status(before.citation, before.text, dict(scope.texts())["metrics.md"]).state == "gone"


class CountingEmbedder(HashingEmbedder):
    """Keeps what it is asked to embed."""

    def __init__(self) -> None:
        super().__init__(dimensions=256)
        self.texts: list[str] = []
        self.questions: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        # The embedder of the tests embeds texts as questions.
        return HashingEmbedder(dimensions=256).embed(texts)

    def embed_query(self, question: str) -> NDArray[np.float32]:
        self.questions.append(question)
        return super().embed_query(question)


def test_answer__embeds_each_question_and_each_unit_once(settings: Settings, tenant_name: str) -> None:
    embedder = CountingEmbedder()
    text = "# Parking\n\nGuests may park for two hours.\n\nThe garage is closed at night."
    with Engine(settings, embedder=embedder) as engine:
        tenant = engine.tenant(tenant_name)
        tenant.ingest(SourceDocument(source="parking.md", data=text.encode()))
        embedder.texts.clear()
        embedder.questions.clear()
        first, second = "How long may guests park?", "When is the garage closed?"
        for question in (first, second):
            assert tenant.answer(question).units
        assert embedder.questions == [first, second]
        assert sorted(embedder.texts) == [
            "Parking: Guests may park for two hours.",
            "Parking: The garage is closed at night.",
        ]
