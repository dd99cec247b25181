"""Unanswered questions: what is stored of them, who sees it, when a gap is closed, and what an erasure leaves."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from typer.testing import CliRunner

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.cli.app import app
from kosmos_rag.apps.client import Client
from kosmos_rag.core.errors import DatabaseError
from kosmos_rag.core.types import EVALUATOR, EVERYONE, AnswerDone, Filter
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.gaps.gaps import Gaps, check_unanswered
from kosmos_rag.evaluation.gaps.records import GapReport
from kosmos_rag.evaluation.gaps.store import UnansweredStore
from kosmos_rag.evaluation.jobs import GapMaintenance
from kosmos_rag.evaluation.metrics import KNOWLEDGE_GAPS
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.console_visits import extract_text, visitor
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.evaluation.gauge_channel import GaugeChannel
from tests.integration.variants import changed

READERS = ("ada", "bob", "eve")
QUESTION = "How do I get a parking permit?"
PERMIT = b"# Parking\n\nYou get a parking permit at the reception desk.\n"


@pytest.fixture
def recording(settings: Settings, signer: Signer) -> Iterator[Engine]:
    overrides = {"gaps.record": True, "gaps.max_questions": 10}
    with Engine(changed(with_tokens(settings, signer), overrides), embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest(SourceDocument(source="churn.md", data=b"Churn is the share that leaves."))
        yield engine


def _reader(engine: Engine, subject: str, **options: object) -> Tenant:
    principals = [EVERYONE, f"user:{subject}"]
    return engine.tenant("acme", **{"subject": subject, "principals": principals} | options)  # type: ignore[arg-type]


def _ask_all(engine: Engine) -> None:
    for subject in READERS:
        assert _reader(engine, subject).answer(QUESTION).refused
    assert engine.background.drain(10)


def _list_texts(engine: Engine) -> list[str]:
    assert engine.background.drain(10)
    return [question.question for question in UnansweredStore(engine.tenant("acme")).list_questions()]


def _check(engine: Engine) -> GapReport:
    tenant = engine.tenant("acme")
    Gaps(tenant).group()
    check_unanswered(engine, tenant)
    return Gaps(tenant).report()


def test_recorder__stores_refused_and_empty_questions_once_for_each_reader(recording: Engine) -> None:
    ada = _reader(recording, "ada")
    assert ada.answer(QUESTION).refused
    assert ada.answer(f"  {QUESTION.upper()}  ").refused
    assert not ada.answer("What is churn?").refused
    assert not ada.search("+violin", syntax="operators").hits
    *_, event = ada.stream_answer("Who plays the violin?")
    assert isinstance(event, AnswerDone)
    assert recording.background.drain(10)
    rows = UnansweredStore(recording.tenant("acme")).list_questions()
    assert {(row.question, row.times, str(row.reason)) for row in rows} == {
        (QUESTION, 2, "refused"),
        ("+violin", 1, "none"),
        ("Who plays the violin?", 1, "refused"),
    }
    assert {row.subject for row in rows} == {"ada"}


def test_recorder__leaves_out_what_may_not_be_stored(recording: Engine, settings: Settings, signer: Signer) -> None:
    _reader(recording, "ada").search("churn", filter=Filter(sources=("missing.md",)))
    _reader(recording, EVALUATOR).answer(QUESTION)
    watched = _reader(recording, "ada", is_watched=True)
    watched.answer(QUESTION)
    watched.with_collection("default").answer(QUESTION)
    recording.tenant("nobody", subject="ada").answer(QUESTION)  # a tenant without documents
    assert _list_texts(recording) == []
    for overrides in ({"gaps.record": True, "rag.audit.questions": False}, {}):
        with Engine(changed(settings, overrides), embedder=HashingEmbedder()) as engine:
            engine.tenant("acme", subject="ada").answer(QUESTION)
            assert _list_texts(engine) == []


def test_recorder__stores_no_more_than_the_limit(recording: Engine) -> None:
    for number in range(12):
        _reader(recording, "ada").answer(f"Who is number {number}?")
    _reader(recording, "ada").answer("Who is number 3?")
    assert len(_list_texts(recording)) == 10
    Gaps(recording.tenant("acme")).prune()
    texts = _list_texts(recording)
    assert len(texts) == 9
    assert "Who is number 0?" not in texts
    assert "Who is number 3?" in texts


def test_gap__is_closed_by_a_document_and_opened_again(recording: Engine) -> None:
    _ask_all(recording)
    (gap,) = _check(recording).gaps
    assert (gap.question, gap.readers, gap.answered, gap.closed_at) == (QUESTION, 3, 0, None)
    acme = recording.tenant("acme")
    acme.ingest(SourceDocument(source="parking.md", data=PERMIT, acl=("user:ada",)))
    (gap,) = _check(recording).gaps
    assert (gap.answered, gap.closed_at) == (1, None)  # the others may not read it
    acme.ingest(SourceDocument(source="parking.md", data=PERMIT))
    (gap,) = _check(recording).gaps
    assert gap.closed_at is not None
    acme.delete("parking.md")
    _ask_all(recording)
    (gap,) = _check(recording).gaps
    assert (gap.answered, gap.times, gap.closed_at) == (0, 6, None)


def test_check__asks_only_after_a_change_and_as_an_evaluation(recording: Engine) -> None:
    _ask_all(recording)
    subjects: list[str] = []
    original = Tenant.stream_answer

    def count(self: Tenant, question: str) -> object:
        subjects.append(self.subject or "")
        return original(self, question)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tenant, "stream_answer", count)
        for _ in range(3):
            _check(recording)
        assert subjects == [EVALUATOR] * 3
        recording.tenant("acme").ingest(SourceDocument(source="b.md", data=b"Revenue grows."))
        _check(recording)
        assert len(subjects) == 6
    assert len(_list_texts(recording)) == 3


def test_store__is_closed_to_readers_and_other_tenants(recording: Engine) -> None:
    _ask_all(recording)
    other = recording.tenant("other")
    other.ingest(SourceDocument(source="a.md", data=b"Other."))
    assert Gaps(other).report().gaps == ()
    assert UnansweredStore(other).list_questions() == []
    with other.sessions.write() as connection:
        assert connection.execute("SELECT count(*) FROM kosmos.unanswered_questions").fetchone() == (0,)
    with pytest.raises((DatabaseError, psycopg.Error)), recording.tenant("acme").sessions.read() as connection:
        connection.execute("SELECT question FROM kosmos.unanswered_questions")


def test_erasure__removes_the_questions_of_a_reader_and_of_a_tenant(recording: Engine) -> None:
    _ask_all(recording)
    acme = recording.tenant("acme")
    assert acme.erase(subject="bob").erased["unanswered_questions"] == 1
    rows = UnansweredStore(acme).list_questions()
    assert {row.subject for row in rows} == {"ada", "eve"}
    Gaps(acme).group()
    report = Gaps(acme).report()
    assert (report.gaps, report.hidden_gaps, report.hidden_questions) == ((), 1, 1)
    assert acme.erase_all().erased["unanswered_questions"] == 2


def test_maintenance__groups_checks_and_reports(recording: Engine) -> None:
    _ask_all(recording)
    channel = GaugeChannel()
    maintenance = GapMaintenance(recording)
    assert maintenance.run("acme", channel) == {}
    assert channel.values == {KNOWLEDGE_GAPS: 1.0}
    recording.tenant("acme").ingest(SourceDocument(source="parking.md", data=PERMIT))
    maintenance.run("acme", channel)
    assert channel.values == {KNOWLEDGE_GAPS: 0.0}


def test_page_route_and_client__lead_from_a_gap_to_the_upload(recording: Engine, signer: Signer) -> None:
    hr = [_reader(recording, subject, collection="hr") for subject in READERS]
    recording.tenant("acme", collection="hr").ingest(SourceDocument(source="a.md", data=b"Leave is 20 days."))
    for reader in hr:
        reader.answer(QUESTION)
    assert recording.background.drain(10)
    with serving(recording, signer) as started:
        served: Running = replace(started, tenant_name="acme")
        with visitor(served, "read", "ingest") as client:
            assert "questions that the next maintenance groups" in extract_text(client.get("/gaps"))
            Gaps(recording.tenant("acme")).group()
            page = client.get("/gaps")
            assert QUESTION in extract_text(page)
            assert "user:ada" not in page.text
            assert 'href="/documents?collection=hr#upload"' in page.text
            form = client.get("/documents", params={"collection": "hr"}).text
            assert re.search(r'id="into" name="collection" value="hr"', form)
            recording.tenant("acme", collection="hr").ingest(SourceDocument(source="parking.md", data=PERMIT))
            check_unanswered(recording, recording.tenant("acme"))
            page = client.get("/gaps", params={"collection": "hr"})
            assert "There are no open gaps of the collection hr" in extract_text(page)
            assert "closed" in extract_text(page)
        for scopes in (("read",), ("operate",)):
            with visitor(served, *scopes) as client:
                assert client.get("/gaps").status_code == 403
        with Client(served.url, served.key("editor", "ingest")) as client:
            report = client.gaps(collection="hr")
            assert report == Gaps(recording.tenant("acme", collection="hr")).report()
            assert client.gaps(collection="other").gaps == ()
        with served.client(served.key("reader", "read")) as plain:
            assert plain.get("/v1/gaps").status_code == 403


def test_commands__list_and_check(recording: Engine) -> None:
    _ask_all(recording)
    database = recording.settings.database
    options = ["-t", "acme"]
    options += [f"--set=database.{name}={getattr(database, name)}" for name in ("url", "worker_url")]
    Gaps(recording.tenant("acme")).group()
    result = CliRunner().invoke(app, ["gaps", "list", *options])
    assert result.exit_code == 0, result.output
    for expected in (QUESTION, "0 of 3 answered", "gaps.record is false"):
        assert expected in result.output
    report = json.loads(CliRunner().invoke(app, ["gaps", "list", *options, "--json"]).output)
    assert [gap["readers"] for gap in report["gaps"]] == [3]
    checked = json.loads(CliRunner().invoke(app, ["gaps", "check", "-C", "hr", *options, "--json"]).output)
    assert checked == {"tenant": "acme", "grouped": 0, "answered": 0}
