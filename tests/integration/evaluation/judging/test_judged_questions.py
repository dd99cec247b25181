"""Judged questions: from feedback to an evaluation, asked as a reader who may see the document, and their erasure."""

import json
import uuid
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from kosmos_rag import Engine, SourceDocument
from kosmos_rag.apps.cli.app import app
from kosmos_rag.apps.client import Client
from kosmos_rag.core.errors import DatabaseError, NotFound, RequestError
from kosmos_rag.core.types import EVALUATOR, EVERYONE, ErasureReport
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.judging.questions import JudgedQuestions
from kosmos_rag.evaluation.judging.records import CandidateQuestion, Judgement
from kosmos_rag.evaluation.monitor.monitor import RecallMonitor
from kosmos_rag.evaluation.monitor.records import MonitorKind
from kosmos_rag.evaluation.offline import Evaluation, Evaluations, Plan, evaluate, for_evaluation, read_questions
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.console_visits import extract_text, visitor
from tests.integration.apps.http.serving import Running
from tests.integration.variants import changed

pytestmark = pytest.mark.usefixtures("tenant_name")

HR = "department:hr"
OPEN_QUESTION, HR_QUESTION = "When does the canteen open?", "How long is the leave?"


@pytest.fixture
def acme(running: Running) -> Tenant:
    tenant = running.tenant()
    tenant.ingest(
        [
            SourceDocument(source="canteen.md", data=b"# Canteen\n\n## Hours\n\nThe canteen opens at noon.\n"),
            SourceDocument(source="leave.md", data=b"# Leave\n\nThe leave is 20 days.\n", acl=(HR,)),
        ]
    )
    return tenant


def _rate(running: Running, subject: str, question: str, rating: str = "up", source: str = "canteen.md") -> None:
    reader = running.tenant(subject=subject, principals=[EVERYONE, HR])
    hit = next(hit for hit in reader.search(question).hits if hit.source == source)
    reader.feedback(rating, question=question, chunk_id=hit.chunk_id)


def _accept_all(tenant: Tenant) -> None:
    questions = JudgedQuestions(tenant)
    for candidate in questions.list_candidates():
        questions.judge(candidate.id, "accepted")


def test_accepted_question__is_evaluated_as_a_reader_who_may_see_it(running: Running, acme: Tenant) -> None:
    """A judged question on a restricted document is asked with a principal of the document."""
    _rate(running, "ada", OPEN_QUESTION)
    _rate(running, "ada", HR_QUESTION, source="leave.md")
    candidates = {entry.question: entry for entry in JudgedQuestions(acme).list_candidates()}
    assert {question: entry.principal for question, entry in candidates.items()} == {
        OPEN_QUESTION: EVERYONE, HR_QUESTION: HR,
    }  # fmt: skip
    assert candidates[OPEN_QUESTION].section == "Hours"
    _accept_all(acme)
    question_set = JudgedQuestions(acme).build_set()
    engine = running.service.engine.sync_engine
    plan = Plan(
        label="judged",
        settings=for_evaluation(acme.effective_settings),
        open_reader=lambda principals: engine.tenant(acme.name, principals=principals, subject=EVALUATOR),
    )
    evaluation = evaluate(acme, question_set, plan)
    assert evaluation.measures["R@10"] == 1.0
    with pytest.raises(RequestError, match="has principals"):
        evaluate(acme, question_set, Plan(label="judged", settings=plan.settings))


def test_monitor__evaluates_accepted_questions_as_their_readers(
    running: Running, acme: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The label of a restricted document is not stale, although readers of `everyone` do not see the document."""
    monkeypatch.chdir(tmp_path)  # no file is called judged there
    _rate(running, "ada", OPEN_QUESTION)
    _rate(running, "ada", HR_QUESTION, source="leave.md")
    _accept_all(acme)
    settings = changed(running.service.settings, {"monitor.questions": {acme.name: Path("judged")}})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        (run,) = RecallMonitor(engine).run(acme.name, [MonitorKind.QUESTIONS])
    assert (run.figures["set"], run.figures["questions"]) == ("judged", 2), run.reason
    assert not run.figures.get("stale_labels")


def test_judge__accepts_rejects_and_opens_again(running: Running, acme: Tenant) -> None:
    _rate(running, "ada", OPEN_QUESTION)
    questions = JudgedQuestions(running.tenant(subject="boss"))
    (candidate,) = questions.list_candidates()
    for judgement in ("accepted", "rejected", "accepted"):
        assert questions.judge(candidate.id, judgement).judgement == judgement
        assert questions.list_candidates() == []
        assert [entry.id for entry in questions.list_candidates(judgement)] == [candidate.id]
    _rate(running, "bob", OPEN_QUESTION.upper())
    assert questions.list_candidates() == []  # it is decided for all spellings
    questions.judge(candidate.id, Judgement.OPEN)
    assert [entry.ups for entry in questions.list_candidates()] == [2]
    for candidate_id, judgement in ((uuid.uuid4(), "accepted"), (candidate.id, "open")):
        with pytest.raises(NotFound):
            questions.judge(candidate_id, judgement)
    with pytest.raises(RequestError, match="use open, accepted, rejected"):
        questions.judge(candidate.id, "perhaps")
    with pytest.raises(RequestError, match="no accepted questions"):
        questions.build_set()
    acme.delete("canteen.md")
    assert questions.list_candidates() == []


def test_not_covered__makes_a_question_without_an_answer(running: Running, acme: Tenant) -> None:
    reader = running.tenant(subject="ada")
    reader.feedback("down", question="Who plays the violin?", reason="not_covered")
    _accept_all(acme)
    (question,) = JudgedQuestions(acme).build_set().questions
    assert not question.answerable


def test_export__is_a_question_file_with_all_places(running: Running, acme: Tenant, tmp_path: Path) -> None:
    _rate(running, "ada", HR_QUESTION, source="leave.md")
    _rate(running, "ada", f"{HR_QUESTION.lower()} ", source="canteen.md")
    _accept_all(acme)
    file = tmp_path / "judged.yaml"
    file.write_text(JudgedQuestions(acme).dump())
    (question,) = read_questions(file).questions
    assert {location.source for location in question.locations} == {"leave.md", "canteen.md"}
    assert question.principals == (HR,)
    assert question.id == JudgedQuestions(acme).build_set().questions[0].id


def test_erasure__removes_what_comes_from_one_reader(running: Running, acme: Tenant) -> None:
    """An erasure of a reader reaches judged questions and the evaluations of them; others keep the question."""
    _rate(running, "ada", HR_QUESTION, source="leave.md")
    _rate(running, "ada", OPEN_QUESTION)
    _rate(running, "bob", OPEN_QUESTION)
    boss = running.tenant(subject="boss")
    _accept_all(boss)
    store, evaluation = Evaluations(acme), _evaluate_judged(running, acme)
    store.add(evaluation)
    erased = acme.erase(subject="ada").erased
    assert (erased["judged_questions"], erased["evaluation_results"], erased["feedback"]) == (2, 1, 2)
    assert [entry.question for entry in JudgedQuestions(acme).list_candidates("accepted")] == [OPEN_QUESTION]
    assert {result.question for result in store.get(str(evaluation.id)).results} == {"erased", OPEN_QUESTION}
    with acme.sessions.write() as connection:
        rows = connection.execute("SELECT subjects, judge FROM kosmos.judged_questions").fetchall()
    assert rows == [(["bob"], "boss")]
    acme.erase(subject="boss")
    with acme.sessions.write() as connection:
        assert connection.execute("SELECT judge FROM kosmos.judged_questions").fetchall() == [(None,)]
    assert acme.erase(source="canteen.md").erased["judged_questions"] == 1
    assert JudgedQuestions(acme).list_candidates("accepted") == []


def _evaluate_judged(running: Running, tenant: Tenant) -> Evaluation:
    engine = running.service.engine.sync_engine
    plan = Plan(
        label="judged",
        settings=for_evaluation(tenant.effective_settings),
        open_reader=lambda principals: engine.tenant(tenant.name, principals=principals, subject=EVALUATOR),
    )
    return evaluate(tenant, JudgedQuestions(tenant).build_set(), plan)


def test_erasure__of_a_document_removes_its_questions_from_results(running: Running, acme: Tenant) -> None:
    """A later erasure of the reader would not find the question without the judged question."""
    _rate(running, "ada", HR_QUESTION, source="leave.md")
    _rate(running, "ada", OPEN_QUESTION)
    _accept_all(acme)
    store, evaluation = Evaluations(acme), _evaluate_judged(running, acme)
    store.add(evaluation)
    acme.erase(source="leave.md")
    assert {result.question for result in store.get(str(evaluation.id)).results} == {"erased", OPEN_QUESTION}
    acme.erase(subject="ada")
    assert {result.question for result in store.get(str(evaluation.id)).results} == {"erased"}


def test_evaluation__stores_no_question_that_was_erased_while_it_ran(running: Running, acme: Tenant) -> None:
    _rate(running, "ada", HR_QUESTION, source="leave.md")
    _rate(running, "bob", OPEN_QUESTION)
    _accept_all(acme)
    store, evaluation = Evaluations(acme), _evaluate_judged(running, acme)
    acme.erase(subject="ada")
    store.add(evaluation)
    stored = store.get(str(evaluation.id))
    assert {result.question for result in stored.results} == {"erased", OPEN_QUESTION}
    assert stored.measures == evaluation.measures


def test_evaluation__of_a_file_keeps_its_questions(running: Running, acme: Tenant, tmp_path: Path) -> None:
    _rate(running, "ada", OPEN_QUESTION)
    _accept_all(acme)
    file = tmp_path / "judged.yaml"
    file.write_text(JudgedQuestions(acme).dump())
    evaluation = evaluate(acme, read_questions(file), Plan(label="file", settings=acme.effective_settings))
    acme.erase(subject="ada")
    Evaluations(acme).add(evaluation)
    assert [result.question for result in Evaluations(acme).get("file").results] == [OPEN_QUESTION]


def test_erasure__reaches_results_of_a_judgement_that_was_withdrawn(running: Running, acme: Tenant) -> None:
    _rate(running, "ada", OPEN_QUESTION)
    questions = JudgedQuestions(acme)
    (candidate,) = questions.list_candidates()
    questions.judge(candidate.id, "accepted")
    store, plan = Evaluations(acme), Plan(label="judged", settings=for_evaluation(acme.effective_settings))
    evaluation = evaluate(acme, questions.build_set(), plan)
    store.add(evaluation)
    questions.judge(candidate.id, "open")
    assert [entry.id for entry in questions.list_candidates()] == [candidate.id]
    assert acme.erase(subject="ada").erased["evaluation_results"] == 1
    assert [result.question for result in store.get(str(evaluation.id)).results] == ["erased"]
    with acme.sessions.write() as connection:
        assert connection.execute("SELECT count(*) FROM kosmos.judged_questions").fetchone() == (0,)


def test_withdrawn_judgement__is_decided_again_with_the_readers_since(running: Running, acme: Tenant) -> None:
    _rate(running, "ada", OPEN_QUESTION)
    questions = JudgedQuestions(acme)
    (candidate,) = questions.list_candidates()
    questions.judge(candidate.id, "accepted")
    questions.judge(candidate.id, "open")
    _rate(running, "bob", OPEN_QUESTION)
    questions.judge(candidate.id, "accepted")
    (accepted,) = questions.list_candidates("accepted")
    assert (accepted.ups, accepted.readers) == (2, 2)


def test_judge__waits_for_an_erasure_and_stores_nothing_of_the_reader(
    running: Running, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feedback was read before the erasure, and would be written after it."""
    _rate(running, "ada", OPEN_QUESTION)
    (candidate,) = JudgedQuestions(acme).list_candidates()
    build, erasures = JudgedQuestions._build_candidates, ThreadPoolExecutor(1)
    reports: list[Future[ErasureReport]] = []

    def build_while_an_erasure_starts(
        questions: JudgedQuestions, connection: psycopg.Connection
    ) -> list[tuple[CandidateQuestion, tuple[str, ...]]]:
        candidates = build(questions, connection)
        reports.append(erasures.submit(lambda: acme.erase(subject="ada")))
        wait(reports, timeout=1)
        return candidates

    monkeypatch.setattr(JudgedQuestions, "_build_candidates", build_while_an_erasure_starts)
    with erasures:
        JudgedQuestions(acme).judge(candidate.id, "accepted")
    assert reports[0].result().erased["judged_questions"] == 1
    assert JudgedQuestions(acme).list_candidates("accepted") == []


def test_store__is_closed_to_readers_and_other_tenants(running: Running, acme: Tenant) -> None:
    _rate(running, "ada", OPEN_QUESTION)
    _accept_all(acme)
    other = running.service.engine.sync_engine.tenant(f"{acme.name}-other")
    other.ingest(SourceDocument(source="a.md", data=b"Other."))
    assert JudgedQuestions(other).list_candidates("accepted") == []
    with other.sessions.write() as connection:
        assert connection.execute("SELECT count(*) FROM kosmos.judged_questions").fetchone() == (0,)
    with pytest.raises((DatabaseError, psycopg.Error)), acme.sessions.read() as connection:
        connection.execute("SELECT question FROM kosmos.judged_questions")


@pytest.mark.usefixtures("acme")
def test_page_routes_and_client__are_for_administrators(running: Running) -> None:
    _rate(running, "ada", OPEN_QUESTION)
    with visitor(running, "admin") as client:
        page = client.get("/evaluations/questions")
        assert OPEN_QUESTION in extract_text(page)
        assert "ada" not in extract_text(page).split()  # a token may have these letters
        (candidate,) = JudgedQuestions(running.tenant()).list_candidates()
        path = f"/evaluations/questions/{candidate.id}"
        assert client.post(path, data={"judgement": "accepted"}).headers["location"] == "/evaluations/questions"
        assert client.post(path, data={"judgement": "other"}).status_code == 422
        assert "There are no candidates" in extract_text(client.get("/evaluations/questions"))
    for scopes in (("read", "ingest"), ("operate",)):
        with visitor(running, *scopes) as client:
            assert client.get("/evaluations/questions").status_code == 403
            assert client.post(path, data={"judgement": "open"}).status_code == 403
    with Client(running.url, running.key("judge", "admin")) as client:
        assert [entry.id for entry in client.judged_questions(judgement="accepted").candidates] == [candidate.id]
        assert client.judge_question(candidate.id, "rejected").judgement == Judgement.REJECTED
        assert client.judged_questions().candidates == ()


@pytest.mark.usefixtures("acme")
def test_commands__accept_export_and_open_again(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _rate(running, "ada", OPEN_QUESTION)
    database = running.service.settings.database
    options = ["-t", running.tenant_name]
    options += [f"--set=database.{name}={getattr(database, name)}" for name in ("url", "worker_url")]
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["eval", *arguments, *options])
        assert result.exit_code == 0, result.output
        return result.stdout

    (candidate,) = json.loads(run("candidates", "list", "--json"))["candidates"]
    assert candidate["source"] == "canteen.md"
    assert OPEN_QUESTION in run("candidates", "accept", candidate["id"], "--judge", "boss")
    run("candidates", "export", "-o", "out.yaml")
    assert read_questions(tmp_path / "out.yaml").questions[0].text == OPEN_QUESTION
    run("candidates", "reopen", candidate["id"])
    result = CliRunner().invoke(app, ["eval", "run", "judged", *options])
    assert result.exit_code == 1
    assert "no accepted questions" in result.output
