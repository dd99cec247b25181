"""Sampled answers: what is stored of them, what a check finds, what feedback says, and what an erasure leaves."""

import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.cli.app import app
from kosmos_rag.apps.client import Client
from kosmos_rag.core.errors import (
    ConfigError,
    DatabaseError,
    InputRefused,
    ModelError,
    ModelUnavailable,
    StatementFailed,
)
from kosmos_rag.core.protocols import Message, Vectors
from kosmos_rag.core.types import EVALUATOR, EVERYONE
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.answer_checks.checks import AnswerChecks, check_answer, check_answers
from kosmos_rag.evaluation.answer_checks.records import AnswerCheckCounts, AnswerVerdict, CitedAnswer
from kosmos_rag.evaluation.answer_checks.store import AnswerSampleStore
from kosmos_rag.evaluation.jobs import AnswerMaintenance
from kosmos_rag.evaluation.metrics import ANSWER_CHECKS, DISPUTED_REFUSALS
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.console_visits import extract_text, visitor
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.evaluation.gauge_channel import GaugeChannel
from tests.integration.variants import changed

ANSWERED = "What is churn?"
REFUSED = "Who plays the violin?"
CHURN = b"Churn is the share of customers that leaves."
SAMPLED = {"answer_checks.share": 1.0, "answer_checks.max_answers": 10, "rag.audit.enabled": True}


@pytest.fixture
def sampling(settings: Settings, signer: Signer) -> Iterator[Engine]:
    with Engine(changed(with_tokens(settings, signer), SAMPLED), embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest(SourceDocument(source="churn.md", data=CHURN))
        yield engine


def _reader(engine: Engine, subject: str, **options: Any) -> Tenant:
    return engine.tenant("acme", **{"subject": subject, "principals": [EVERYONE, f"user:{subject}"]} | options)


def _count(engine: Engine, tenant: str = "acme") -> AnswerCheckCounts:
    assert engine.background.drain(10)
    (counts,) = AnswerChecks(engine.tenant(tenant)).report().collections
    return counts


def _read_rows(engine: Engine) -> list[tuple[Any, ...]]:
    assert engine.background.drain(10)
    with engine.tenant("acme").sessions.write() as connection:
        return connection.execute(
            "SELECT subject, principals, sources, answer, verdict FROM kosmos.answer_samples ORDER BY at"
        ).fetchall()


def test_sampler__stores_answers_until_their_check_and_no_question(sampling: Engine) -> None:
    ada = _reader(sampling, "ada")
    assert not ada.answer(ANSWERED).refused
    assert ada.answer(REFUSED).refused
    list(ada.stream_answer(ANSWERED))
    waiting, refused, _ = _read_rows(sampling)
    assert waiting[:3] == ("ada", [EVERYONE, "user:ada"], ["churn.md"])
    assert CHURN.decode() in json.dumps(waiting[3])
    assert ANSWERED not in json.dumps(waiting[3])
    assert refused == ("ada", [], [], None, None)
    acme = sampling.tenant("acme")
    assert check_answers(sampling, acme) == {AnswerVerdict.SUPPORTED: 2}
    assert {row[1:] for row in map(_hashable, _read_rows(sampling))} == {
        ((), (), None, "supported"),
        ((), (), None, None),
    }
    counts = _count(sampling)
    assert (counts.answers, counts.supported, counts.refusals, counts.waiting) == (2, 2, 1, 0)


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def test_sampler__leaves_out_what_may_not_be_stored(sampling: Engine, settings: Settings) -> None:
    _reader(sampling, "ada").search(ANSWERED)
    _reader(sampling, EVALUATOR).answer(ANSWERED)
    _reader(sampling, "ada", is_watched=True).answer(ANSWERED)
    sampling.tenant("nobody", subject="ada").answer(ANSWERED)  # a tenant without documents
    assert _read_rows(sampling) == []
    for overrides in (SAMPLED | {"rag.audit.questions": False}, {}):
        with Engine(changed(settings, overrides), embedder=HashingEmbedder()) as engine:
            engine.tenant("acme", subject="ada").answer(ANSWERED)
            assert _read_rows(engine) == []


def test_sampler__takes_the_share(settings: Settings) -> None:
    overrides = {"answer_checks.share": 0.5, "answer_checks.max_answers": 1000}
    with Engine(changed(settings, overrides), embedder=HashingEmbedder()) as engine:
        tenant = engine.tenant("acme")
        tenant.ingest(SourceDocument(source="churn.md", data=CHURN))
        for _ in range(60):
            tenant.answer(ANSWERED)
        assert 10 < _count(engine).answers < 50  # one in 10^7 runs of a fair coin is outside


def test_sampler__stores_no_more_than_the_limit(sampling: Engine) -> None:
    for _ in range(12):
        _reader(sampling, "ada").answer(ANSWERED)
    assert _count(sampling).answers == 10
    AnswerChecks(sampling.tenant("acme")).prune()
    assert _count(sampling).answers == 9
    AnswerSampleStore(sampling.tenant("acme")).prune(before=datetime.now(UTC) + timedelta(days=1), max_answers=10)
    assert _read_rows(sampling) == []


def test_check__finds_quotes_that_are_gone_or_closed_to_the_reader(sampling: Engine) -> None:
    acme = sampling.tenant("acme")
    for _ in range(2):
        _reader(sampling, "ada").answer(ANSWERED)
    assert sampling.background.drain(10)
    acme.ingest(SourceDocument(source="churn.md", data=b"A line more.\n\n" + CHURN))
    assert check_answers(sampling, acme, limit=1) == {AnswerVerdict.SUPPORTED: 1}  # the quote has moved
    acme.ingest(SourceDocument(source="churn.md", data=CHURN, acl=("board",)))
    assert check_answers(sampling, acme) == {AnswerVerdict.OUTDATED: 1}
    acme.ingest(SourceDocument(source="churn.md", data=CHURN))
    _reader(sampling, "ada").answer(ANSWERED)
    assert sampling.background.drain(10)
    acme.ingest(SourceDocument(source="churn.md", data=b"Churn is something else now."))
    assert check_answers(sampling, acme) == {AnswerVerdict.OUTDATED: 1}


def test_check__finds_a_quote_that_is_not_the_cited_text(sampling: Engine) -> None:
    reader = _reader(sampling, "ada")
    (quote,) = reader.answer(ANSWERED).sentences
    other = replace(quote, text="Churn is the share of customers that stays.")
    verdicts = [check_answer(reader, CitedAnswer(text=None, quotes=(each,), passages=())) for each in (quote, other)]
    assert verdicts == [AnswerVerdict.SUPPORTED, AnswerVerdict.UNSUPPORTED]


def test_check__leaves_an_answer_that_fails_for_the_next_round(
    sampling: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        _reader(sampling, "ada").answer(ANSWERED)
    assert sampling.background.drain(10)
    original, failures = Tenant.check_quotes, iter([StatementFailed("the statement took too long")])

    def fail_once(self: Tenant, quotes: Any) -> Any:
        for error in failures:
            raise error
        return original(self, quotes)

    monkeypatch.setattr(Tenant, "check_quotes", fail_once)
    for _ in range(2):
        assert check_answers(sampling, sampling.tenant("acme")) == {AnswerVerdict.SUPPORTED: 1}


class _Writer:
    """A language model that writes its sentences in turn."""

    name = "writer"

    def __init__(self, *texts: str) -> None:
        self._texts = iter(texts)

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Generator[str]:
        del messages, max_tokens
        yield next(self._texts)


def test_check__finds_generated_sentences_without_support(settings: Settings) -> None:
    model = _Writer("Churn is the share of customers that leaves. [1]", "Churn is 5 percent. [1]", "Churn is good.")
    overrides = SAMPLED | {"rag.answer.mode": "generative", "rag.answer.threshold": 0.0}
    with Engine(changed(settings, overrides), embedder=HashingEmbedder(dimensions=512), language_model=model) as engine:
        tenant = engine.tenant("acme")
        tenant.ingest(SourceDocument(source="churn.md", data=CHURN))
        for _ in range(3):
            tenant.answer(ANSWERED)
        assert engine.background.drain(10)
        assert check_answers(engine, tenant) == {AnswerVerdict.SUPPORTED: 1, AnswerVerdict.UNSUPPORTED: 2}


def test_check__reads_citations_in_the_format_that_they_were_written_in(settings: Settings) -> None:
    """A change of the format makes no waiting answer unsupported."""
    overrides = SAMPLED | {"rag.answer.mode": "generative", "rag.answer.threshold": 0.0}
    model = _Writer("Churn is the share of customers that leaves. [1]")
    embedder = HashingEmbedder(dimensions=512)
    with Engine(changed(settings, overrides), embedder=embedder, language_model=model) as engine:
        engine.tenant("acme").ingest(SourceDocument(source="churn.md", data=CHURN))
        engine.tenant("acme").answer(ANSWERED)
        assert engine.background.drain(10)
    overrides |= {"rag.context.citation_format": "({index})"}
    with Engine(changed(settings, overrides), embedder=embedder, language_model=model) as engine:
        assert check_answers(engine, engine.tenant("acme")) == {AnswerVerdict.SUPPORTED: 1}


def test_erasure__removes_an_answer_that_may_use_a_document_without_a_citation(settings: Settings) -> None:
    overrides = SAMPLED | {"rag.answer.mode": "generative", "rag.answer.threshold": 0.0}
    model = _Writer("Churn is the share of customers that leaves, and Ada is one. [1]")
    with Engine(changed(settings, overrides), embedder=HashingEmbedder(dimensions=512), language_model=model) as engine:
        tenant = engine.tenant("acme")
        for source, data in (("churn.md", CHURN), ("ada.md", b"What churn is: Ada left.")):
            tenant.ingest(SourceDocument(source=source, data=data))
        answer = tenant.answer(ANSWERED)
        assert {passage.citation.source for passage in answer.context.passages} == {"churn.md", "ada.md"}
        assert engine.background.drain(10)
        uncited = next(each.citation.source for each in answer.context.passages if each.citation.index == 2)
        assert tenant.erase(source=uncited).erased["answer_samples"] == 1


def test_report__compares_refusals_with_the_feedback_of_their_readers(sampling: Engine) -> None:
    for subject, rating, options in (
        ("ada", "down", {"reason": "wrong"}),
        ("bob", "up", {"reason": "not_covered"}),
        ("eve", "down", {"reason": "not_covered"}),
        ("ian", "up", {}),
        ("joe", None, {}),
    ):
        reader = _reader(sampling, subject)
        answer = reader.answer(REFUSED)
        if rating is not None:
            reader.feedback(rating, retrieval_id=answer.context.retrieval.id, **options)  # type: ignore[arg-type]
    kim = _reader(sampling, "kim")
    hit = kim.answer(REFUSED).context.retrieval.hits[0]
    assert sampling.background.drain(10)
    kim.feedback("up", question=REFUSED, chunk_id=hit.chunk_id)
    _reader(sampling, "leo").feedback("down", question=REFUSED)  # who was not sampled
    _reader(sampling, "kim").answer(ANSWERED)
    assert sampling.background.drain(10)
    _reader(sampling, "kim").feedback("down", question=ANSWERED)
    counts = _count(sampling)
    assert (counts.refusals, counts.confirmed, counts.disputed) == (6, 3, 2)
    assert (counts.answers, counts.rated_up, counts.rated_down) == (1, 0, 1)


def test_store__is_closed_to_readers_and_other_tenants(sampling: Engine) -> None:
    _reader(sampling, "ada").answer(ANSWERED)
    assert _count(sampling).answers == 1
    other = sampling.tenant("other")
    other.ingest(SourceDocument(source="a.md", data=b"Other."))
    assert AnswerChecks(other).report().collections == ()
    assert check_answers(sampling, other) == {}
    with pytest.raises((DatabaseError, psycopg.Error)), sampling.tenant("acme").sessions.read() as connection:
        connection.execute("SELECT answer FROM kosmos.answer_samples")


def test_erasure__removes_the_answers_of_a_reader_a_document_and_a_tenant(sampling: Engine) -> None:
    acme = sampling.tenant("acme")
    for subject in ("ada", "bob", "eve"):
        _reader(sampling, subject).answer(ANSWERED)
    _reader(sampling, "eve").answer(REFUSED)
    assert sampling.background.drain(10)
    assert acme.erase(subject="bob").erased["answer_samples"] == 1
    check_answers(sampling, acme, limit=1)
    assert acme.erase(subject="ada").erased["answer_samples"] == 1  # checked: its principals are deleted
    acme.delete("churn.md")
    assert acme.erase(source="churn.*").erased["answer_samples"] == 1  # the refusal has no quote
    assert acme.erase_all().erased["answer_samples"] == 1


def test_maintenance__checks_and_reports(sampling: Engine) -> None:
    channel, maintenance = GaugeChannel(), AnswerMaintenance(sampling)
    assert maintenance.run("acme", channel) == {}
    assert channel.values == {}
    ada = _reader(sampling, "ada")
    ada.answer(ANSWERED)
    ada.feedback("down", retrieval_id=ada.answer(REFUSED).context.retrieval.id)
    assert sampling.background.drain(10)
    assert maintenance.run("acme", channel) == {(ANSWER_CHECKS.name, "supported"): 1}
    assert channel.values == {DISPUTED_REFUSALS: 1.0}
    assert maintenance.run("acme", channel) == {}


def test_maintenance__goes_on_after_an_answer_that_cannot_be_checked(
    sampling: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """Its texts are deleted, and the others of the round are checked and counted."""
    for subject in ("ada", "bob", "eve"):
        _reader(sampling, subject).answer(ANSWERED)
        assert sampling.background.drain(10)
    with sampling.tenant("acme").sessions.write() as connection:
        connection.execute("UPDATE kosmos.answer_samples SET answer = '{\"text\": null}' WHERE subject = 'ada'")
    assert AnswerMaintenance(sampling).run("acme", GaugeChannel()) == {(ANSWER_CHECKS.name, "supported"): 2}
    assert [(row[0], row[4]) for row in _read_rows(sampling)] == [("bob", "supported"), ("eve", "supported")]
    assert "an answer cannot be checked, and is deleted" in caplog.text


class _FailingEmbedder(HashingEmbedder):
    """Fails for texts with a word."""

    def __init__(self, error: Exception) -> None:
        super().__init__(dimensions=512)
        self.word: str | None = None
        self._error = error

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.word is not None and any(self.word in text for text in texts):
            raise self._error
        return super().embed(texts)


@pytest.mark.parametrize(
    ("error", "checked", "waiting"),
    [
        (InputRefused("the server refuses a text"), 2, 0),
        (ModelError("gave vectors that are not finite"), 2, 0),
        (ConfigError("the model has other dimensions"), 2, 0),
        (ModelUnavailable("the server cannot be reached"), 1, 2),
    ],
)
def test_maintenance__counts_the_answers_before_and_after_a_failure(
    settings: Settings, error: Exception, checked: int, waiting: int
) -> None:
    texts = ("Churn is the share of customers that leaves. [1]", "Churn is a share of customers. [1]")
    overrides = SAMPLED | {"rag.answer.mode": "generative", "rag.answer.threshold": 0.0}
    embedder = _FailingEmbedder(error)
    with Engine(
        changed(settings, overrides), embedder=embedder, language_model=_Writer(texts[0], texts[1], texts[0])
    ) as engine:
        tenant = engine.tenant("acme")
        tenant.ingest(SourceDocument(source="churn.md", data=CHURN))
        for _ in range(3):
            tenant.answer(ANSWERED)
            assert engine.background.drain(10)
        embedder.word = "a share"
        assert sum(AnswerMaintenance(engine).run("acme", GaugeChannel()).values()) == checked
        assert _count(engine).waiting == waiting


def test_page_route_client_and_command__have_the_same_counts(sampling: Engine, signer: Signer) -> None:
    sampling.tenant("acme", collection="hr").ingest(SourceDocument(source="a.md", data=b"Leave is 20 days."))
    _reader(sampling, "ada").answer(ANSWERED)
    hr = _reader(sampling, "ada", collection="hr")
    hr.answer("What is leave?")
    hr.answer(REFUSED)
    assert sampling.background.drain(10)
    database = sampling.settings.database
    options = ["-t", "acme"]
    options += [f"--set=database.{name}={getattr(database, name)}" for name in ("url", "worker_url")]
    plain = CliRunner().invoke(app, ["gaps", "answers", *options])
    assert plain.exit_code == 0, plain.output
    assert "answer_checks.share is 0" in plain.output
    checked = json.loads(CliRunner().invoke(app, ["gaps", "answers", "--check", *options, "--json"]).output)
    assert [counts["supported"] for counts in checked["collections"]] == [1, 1]
    with serving(sampling, signer) as started:
        served: Running = replace(started, tenant_name="acme")
        with visitor(served, "read", "ingest") as client:
            text = extract_text(client.get("/gaps", params={"collection": "hr"}))
            assert "Checked answers" in text
            assert "hr" in text
        with Client(served.url, served.key("editor", "ingest")) as client:
            report = client.answer_checks(collection="hr")
            assert report == AnswerChecks(sampling.tenant("acme", collection="hr")).report()
            assert [(counts.collection, counts.supported, counts.refusals) for counts in report.collections] == [
                ("hr", 1, 1)
            ]
        with served.client(served.key("reader", "read")) as plain_client:
            assert plain_client.get("/v1/answer-checks").status_code == 403
