"""Evaluations over PostgreSQL: run, stored, compared, gated, by the library and by the commands."""

import json
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Message
from kosmos_rag.evaluation.offline import (
    Evaluation,
    Evaluations,
    Location,
    Plan,
    Question,
    QuestionSet,
    evaluate,
    load_beir,
    read_questions,
)
from kosmos_rag.evaluation.offline.beir import sync_corpus
from kosmos_rag.evaluation.offline.calibration import calibrate, render_threshold
from kosmos_rag.evaluation.offline.ratings import answer_rated_questions, read_rated_questions
from kosmos_rag.evaluation.settings import EvaluationSettings
from tests.commands import MINILM, Run, run_command, set_variables
from tests.integration.variants import opened

KB = {
    "leave.md": "# Leave\n\n## Parental Leave\n\nParental leave lasts twelve months after a birth.\n\n"
    "## Annual Leave\n\nAnnual leave is thirty days in each calendar year for everybody.\n",
    "travel.md": "# Travel\n\n## Trains\n\nTrain tickets of the second class are paid by the company.\n",
}
QUESTIONS = """
- question: How long does parental leave last after a birth?
  source: leave.md
  section: Parental Leave
- question: Which class of train tickets are paid by the company?
  source: travel.md
- question: Where is annual leave of thirty days?
  source: leave.md
  lines: [9, 9]
- question: Who conducts the zoo's orchestra?
  answerable: false
"""


@pytest.fixture
def filled(engine: Engine, tenant_name: str) -> Engine:
    engine.tenant(tenant_name).ingest(
        SourceDocument(source=f"/kb/{name}", data=text.encode()) for name, text in KB.items()
    )
    return engine


def _run(engine: Engine, tenant_name: str, tmp_path: Path, *, answers: bool = False) -> Evaluation:
    file = tmp_path / "set.yaml"
    file.write_text(QUESTIONS)
    plan = Plan(label="as configured", settings=engine.settings, answers=answers)
    return evaluate(engine.tenant(tenant_name), read_questions(file), plan)


def test_evaluate__measures_documents_sections_and_lines(filled: Engine, tmp_path: Path, tenant_name: str) -> None:
    outcome = _run(filled, tenant_name, tmp_path, answers=True)
    by_text = {result.question: result for result in outcome.results}
    assert [by_text[text].ranking[0] for text in list(by_text) if by_text[text].judged] == [
        next(iter(by_text[text].judged)) for text in list(by_text) if by_text[text].judged
    ]
    assert (outcome.measures["RR@10"], outcome.measures["R@10"], outcome.measures["nDCG@10"]) == (1.0, 1.0, 1.0)
    unanswerable = by_text["Who conducts the zoo's orchestra?"]
    assert unanswerable.measures["abstention"] == float(bool(unanswerable.refused))
    assert unanswerable.measures["false_answers"] == 1 - unanswerable.measures["abstention"]
    assert "RR@10" not in unanswerable.measures
    for result in outcome.results:
        answered = result.judged and not result.refused
        assert ("citation_precision" in result.measures) == bool(answered)
    assert {"fuse", "fetch", "total", "answer"} <= set(outcome.results[0].timings_ms)
    assert outcome.index_state["chunks"] >= 2


def test_store__gives_back_what_was_measured_and_keeps_tenants_apart(
    filled: Engine, tmp_path: Path, tenant_name: str
) -> None:
    stored, others = (Evaluations(filled.tenant(name)) for name in (tenant_name, f"{tenant_name}-other"))
    first, second = _run(filled, tenant_name, tmp_path), _run(filled, tenant_name, tmp_path)
    for item in (first, second):
        stored.add(item)
    # The same twice, but for when and how fast.
    assert first.measures == second.measures
    assert [item.ranking for item in first.results] == [item.ranking for item in second.results]
    assert stored.get(str(first.id)[:8]) == first
    assert stored.get("latest") == second
    assert list(stored.get("latest").measures) == list(second.measures)
    assert stored.get("as configured") == second
    assert [item.id for item in stored.recent()] == [second.id, first.id]
    assert others.recent() == []
    with pytest.raises(RequestError, match="has no evaluation 'latest'"):
        others.get("latest")
    for blank in ("", " "):
        with pytest.raises(RequestError, match="the evaluation is not named"):
            stored.get(blank)
    others.delete(first)
    assert len(stored.recent()) == 2
    stored.delete(first)
    assert [item.id for item in stored.recent()] == [second.id]


def test_measures__begin_with_those_that_are_configured(filled: Engine, tenant_name: str) -> None:
    unanswerable, answerable = Question(id="a", text="The zoo's orchestra?"), _question("b", "travel.md")
    question_set = QuestionSet(name="two", questions=(unanswerable, answerable))
    plan = Plan(label="", settings=filled.settings, answers=True)
    measures = list(evaluate(filled.tenant(tenant_name), question_set, plan).measures)
    assert measures[:5] == list(filled.settings.section(EvaluationSettings).measures)
    assert "degraded" in measures[5:]


def _question(key: str, source: str) -> Question:
    return Question(id=key, text="Which train tickets are paid?", locations=(Location(source=source),))


def test_evaluate__of_a_tenant_without_documents_is_refused(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    with pytest.raises(RequestError, match=f"'{tenant_name}' has no documents to search"):
        _run(engine, tenant_name, tmp_path)


def _beir(folder: Path, documents: dict[str, str]) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = [json.dumps({"_id": key, "title": "", "text": text}) for key, text in documents.items()]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    queries = [{"_id": f"q{n:02}", "text": f"What of word{n} and thing{n}?"} for n in range(24)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{n:02}\td{n}\t1\n" for n in range(24))
    )
    return folder


DOCUMENTS = {f"d{n}": f"A report about word{n}, and thing{n} beside the rest. " * 3 for n in range(24)}


def test_bring__is_done_once_and_removes_what_has_gone(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    scope = engine.tenant(f"{tenant_name}-eval-tiny")
    sync_corpus(scope, load_beir(_beir(tmp_path, DOCUMENTS)))
    assert len(scope.sources()) == 24
    versions = {info.source: info.version for info in scope.documents()}
    sync_corpus(scope, load_beir(_beir(tmp_path, {key: text for key, text in DOCUMENTS.items() if key != "d3"})))
    assert {info.source: info.version for info in scope.documents()} == {
        key: version for key, version in versions.items() if key != "d3"
    }


@pytest.fixture
def kosmos(tmp_path: Path, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, with the packaged model."""
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, database, CONFIG=MINILM, RAG__CHUNKING__STRATEGY="paragraph")
    return run_command


@pytest.mark.model
def test_run__names_labels_whose_place_no_document_has(kosmos: Run, tmp_path: Path, tenant_name: str) -> None:
    """A misspelt source counts as not found, which reads like a fault of the search."""
    for name, text in KB.items():
        (tmp_path / name).write_text(text)
    run = ("eval", "run", "set.yaml", "-t", tenant_name)
    (tmp_path / "set.yaml").write_text(QUESTIONS + "- question: What costs a train?\n  source: travle.md\n")
    assert kosmos("ingest", *KB, "-t", tenant_name).exit_code == 0
    (label,) = json.loads(kosmos(*run, "--json").stdout)["gone_labels"]
    assert label.endswith("(travle.md) is gone")
    assert f"count as not found: {label}; check source" in kosmos(*run).stdout
    (tmp_path / "set.yaml").write_text(QUESTIONS)
    assert "not found" not in kosmos(*run).stdout


def test_commands__list_compare_gate_report_and_delete(
    filled: Engine, kosmos: Run, tmp_path: Path, tenant_name: str
) -> None:
    stored = Evaluations(filled.tenant(tenant_name))
    first, second = _run(filled, tenant_name, tmp_path), _run(filled, tenant_name, tmp_path)
    for item in (first, second):
        stored.add(item)
    to = ("-t", tenant_name)
    listed = json.loads(kosmos("eval", "list", *to, "--json").stdout)["evaluations"]
    assert [item["name"] for item in listed] == [second.name, first.name]
    assert "as configured" in kosmos("eval", "list", *to).stdout
    assert "RR@10" in kosmos("eval", "compare", first.name, second.name).stdout

    assert kosmos("eval", "gate", *to).exit_code == 0
    strict = ("--set", "evaluation.targets={P@5: 0.9}")
    assert "has no P@5" in kosmos("eval", "gate", *to, *strict).stderr
    bounds = ("--set", "evaluation.targets={degraded: 0.0, AP@10: 1.0}", "--set", "evaluation.alerts={AP@10: 0.1}")
    assert kosmos("eval", "gate", *to, *bounds).exit_code == 0
    worse = replace(
        second,
        id=uuid4(),
        measures={**second.measures, "AP@10": 0.5},
        results=tuple(replace(item, question_id=f"{item.question_id}x") for item in second.results),
    )
    stored.add(replace(worse, at=datetime.now(UTC)))
    failed = kosmos("eval", "gate", *to, *bounds, "--json")
    assert failed.exit_code == 1
    assert {item["measure"]: item["state"] for item in json.loads(failed.stdout)["measures"]} == {
        "degraded": "reached",
        "AP@10": "below target",
    }
    assert kosmos("eval", "gate", *to, *bounds, "--alert").exit_code == 0

    assert kosmos("eval", "report", first.name, second.name, "-o", "out.html").exit_code == 0
    assert "</html>" in (tmp_path / "out.html").read_text()
    assert kosmos("eval", "delete", first.name).exit_code == 0
    assert "has no evaluation" in kosmos("eval", "report", first.name).stderr


class Writer:
    """A language model that always writes the same."""

    name = "writer-7b"

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Generator[str]:
        del messages, max_tokens
        yield "Parental leave lasts twelve months after a birth. [1]"


def test_language_model__is_stored_with_what_it_answered_and_named_where_two_differ(
    filled: Engine, kosmos: Run, tmp_path: Path, settings: Settings, tenant_name: str
) -> None:
    stored = Evaluations(filled.tenant(tenant_name))
    with opened(settings, {"rag.answer.mode": "generative"}, language_model=Writer()) as engine:
        outcome = [
            _run(filled, tenant_name, tmp_path, answers=True),
            *(_run(engine, tenant_name, tmp_path, answers=response) for response in (True, False)),
        ]
    for item in outcome:
        stored.add(item)
    plain, value, reranked = (stored.get(str(item.id)) for item in outcome)
    assert [item.index_state["language_model"] for item in (plain, value, reranked)] == [None, "writer-7b", None]
    compared = kosmos("eval", "compare", plain.name, value.name)
    assert f'{value.name}: language_model is "writer-7b", null in the baseline' in compared.stdout
    response = json.loads(kosmos("eval", "compare", plain.name, value.name, "--json").stdout)["changed"]
    assert {item["what"] for item in response} == {"language_model", "rag.answer.mode"}


def test_calibrate__writes_the_threshold_that_a_stored_evaluation_gives(
    filled: Engine, kosmos: Run, tmp_path: Path, tenant_name: str
) -> None:
    outcome = _run(filled, tenant_name, tmp_path, answers=True)
    stored = Evaluations(filled.tenant(tenant_name))
    stored.add(outcome)
    refused = kosmos("eval", "calibrate", outcome.name)
    assert (refused.exit_code, "10 of each are needed" in refused.stderr) == (1, True)
    results = tuple(
        replace(
            result, question_id=f"{number}", judged={"a": 1} if number % 2 else {}, confidence=number % 2 / 2 + 0.25
        )
        for number, result in enumerate(outcome.results * 5)
    )
    more = replace(outcome, id=uuid4(), results=results)
    stored.add(more)
    printed = kosmos("eval", "calibrate", more.name).stdout
    assert "10 questions with an answer, 10 without, AUC of the confidence 1.000" in printed
    assert Settings.load(tmp_path / "calibrated.yaml").rag.answer.threshold == 0.75
    response = json.loads(kosmos("eval", "calibrate", more.name, "-o", "again.yaml", "--json").stdout)
    assert response["chosen"] == {"threshold": 0.75, "refused": 1.0, "wrongly_refused": 0.0}


def test_calibrate__answers_the_questions_that_readers_rated(filled: Engine, kosmos: Run, tenant_name: str) -> None:
    assert "one of the two" in kosmos("eval", "calibrate").stderr
    nothing = kosmos("eval", "calibrate", "--ratings", "-t", tenant_name)
    assert (nothing.exit_code, "no stored rating says" in nothing.stderr) == (1, True)
    reader = filled.tenant(tenant_name, subject="ada")
    for number in range(10):
        reader.feedback("up", question=f"Parental leave lasts twelve months after a birth{' ?' * number}")
        reader.feedback("down", question=f"Who conducts zoo orchestra {number}?", reason="not_covered")
    rated = read_rated_questions(filled.tenant(tenant_name), limit=500)
    answered = answer_rated_questions(filled.tenant(tenant_name), rated)
    result = calibrate(answered, 0.0, configured=0.5)
    assert (result.evaluation, result.answerable, result.unanswerable, result.auc) == (None, 10, 10, 1.0)
    assert (result.chosen.refused, result.chosen.wrongly_refused) == (1.0, 0.0)
    assert render_threshold(result, None).startswith("# Calibrated with the rated questions, on half of")


def test_command__that_would_write_over_a_file_is_refused_before_its_work(kosmos: Run, tmp_path: Path) -> None:
    file = tmp_path / "questions.yaml"
    file.write_text("- {question: mine, source: a.md}")
    for command in (("questions",), ("tune", "questions.yaml", "-o", "questions.yaml")):
        refused = kosmos("eval", *command)
        assert (refused.exit_code, "exists already" in refused.stderr) == (1, True)
        assert "does not exist" in kosmos("eval", *command, "-o", "none/here.yaml").stderr
    assert file.read_text() == "- {question: mine, source: a.md}"


def test_questions__of_documents_that_a_log_is_kept_of_are_refused(
    filled: Engine, kosmos: Run, tenant_name: str
) -> None:
    acme = filled.tenant(tenant_name)
    assert not acme.audited
    acme.collections.create("hr", preset="corporate")
    assert filled.tenant(tenant_name).audited  # what is read without a collection is of this one too
    assert "these documents have an audit log" in kosmos("eval", "questions", "-t", tenant_name).stderr
    assert kosmos("eval", "questions", "-t", tenant_name, "-C", "default", "-o", "made.yaml").exit_code == 0


@pytest.mark.model
@pytest.mark.slow
def test_commands__run_a_sweep(kosmos: Run, tmp_path: Path) -> None:
    _beir(tmp_path / "tiny", DOCUMENTS)
    ran = kosmos("eval", "run", "tiny", "--grid", "retrieval.rrf_k=5,60", "--json")
    first, second = json.loads(ran.stdout)["evaluations"]
    assert first["tenant"].startswith("eval-tiny-")
    assert [item["settings"]["retrieval"]["rrf_k"] for item in (first, second)] == [5, 60]
    assert first["measures"] == pytest.approx(second["measures"], abs=0.3)
    again = json.loads(kosmos("eval", "run", "tiny", "--set", "rag.retrieval.rrf_k=5", "--json").stdout)["evaluations"]
    assert again[0]["measures"] == first["measures"]
    refused = kosmos("eval", "run", "tiny", "--grid", "retrieval.rrfk=5")
    assert refused.exit_code == 1
    assert "rrfk" in refused.stderr


@pytest.mark.model
@pytest.mark.slow
def test_commands__questions_of_documents_and_their_answers(kosmos: Run, tmp_path: Path) -> None:
    for name, text in KB.items():
        (tmp_path / name).write_text(text)
    assert kosmos("ingest", *KB).exit_code == 0
    assert kosmos("eval", "questions", "-o", "made.yaml").exit_code == 0
    process = kosmos("eval", "run", "made.yaml", "--answers", "--json")
    (item,) = json.loads(process.stdout)["evaluations"]
    assert item["measures"]["RR@10"] > 0.9
    assert "abstention" in item["measures"]


@pytest.mark.model
@pytest.mark.slow
def test_commands__tuning(kosmos: Run, tmp_path: Path) -> None:
    _beir(tmp_path / "tiny", DOCUMENTS)
    alike = kosmos("eval", "tune", "tiny", "--grid", "retrieval.candidates=100,200")
    assert "nothing was better" in alike.stdout
    assert not (tmp_path / "tuned.yaml").exists()

    weights = ("--set", "rag.retrieval.semantic_weight=1.0", "--set", "rag.retrieval.keyword_weight=0.0")
    blind = ("--set", "rag.retrieval.similarity_threshold=0.99")
    tuned = kosmos(
        "eval", "tune", "tiny", "--grid", "retrieval.similarity_threshold=0.99,0.0", *weights, *blind, "--json"
    )
    response = json.loads(tuned.stdout)
    assert response["changes"] == {"rag.retrieval.similarity_threshold": 0.0}
    assert response["train"]["before"] < response["train"]["chosen"]
    assert response["test"]["p"] < 0.05
    assert (tmp_path / "tuned.yaml").read_text().startswith("# Tuned for nDCG@10")
    retrieval = Settings.load(tmp_path / "tuned.yaml").rag.retrieval
    assert (retrieval.similarity_threshold, retrieval.semantic_weight, retrieval.keyword_weight) == (0.0, 1.0, 0.0)
