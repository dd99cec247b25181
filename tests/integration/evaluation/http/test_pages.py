"""The pages of evaluations and of the monitor."""

import re
import uuid
from dataclasses import replace

import httpx
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.evaluation.offline import Evaluations, Plan, evaluate
from kosmos_rag.evaluation.offline.questions import Question, QuestionSet
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.console_visits import OWN, extract_text, visitor
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.evaluation.monitored import EXPERIMENT, store_history
from tests.integration.variants import changed

QUESTION = "How many days of paid annual leave do full-time employees receive?"
HANDBOOK = b"# Leave\n\n## Annual\n\nAll full-time employees receive 20 days of paid annual leave per year.\n"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def served(running: Running, tenant_name: str) -> Running:
    running.tenant().ingest(SourceDocument(source="leave.md", data=HANDBOOK))
    return running


def test_pages__have_the_headers_of_the_console(served: Running) -> None:
    with visitor(served, "admin") as client:
        for path in ("/evaluations", "/monitor"):
            page = client.get(path)
            assert page.status_code == 200, path
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert page.headers["cache-control"] == "no-store"
            assert "style=" not in page.text
            assert 'href="/inspector"' in page.text


def test_evaluations__are_listed_and_compared_question_by_question(served: Running) -> None:
    engine = served.service.engine.sync_engine
    store = Evaluations(engine.tenant(served.tenant_name))
    texts = {QUESTION: "leave.md", "Who <b>plays</b> the moon?": "moon.md"}
    questions = (Question(id=text, text=text, documents={source: 1}) for text, source in texts.items())
    with visitor(served, "admin") as client:
        assert "kosmos-rag eval run" in client.get("/evaluations").text
        question_set = QuestionSet(name="small", questions=tuple(questions))
        result = evaluate(served.tenant(), question_set, Plan(label="first", settings=engine.settings))
        store.add(result)
        results = tuple(replace(item, measures=dict.fromkeys(item.measures, 0.0)) for item in result.results)
        store.add(replace(result, id=uuid.uuid4(), label="second", results=results))
        listed = client.get("/evaluations").text
        assert {"first", "second"} <= set(re.findall(r'aria-label="Compare (\w+)"', listed))
        compared = client.get("/evaluations", params={"baseline": "first", "other": "second"}).text
        worse_part = compared.partition("Worse by")[2]
        assert QUESTION in worse_part
        assert "1.000" in worse_part
        assert "moon" not in worse_part
        assert client.get("/evaluations", params={"baseline": "first", "other": "third"}).status_code == 422
    with visitor(served, "read") as client:
        assert client.get("/evaluations").status_code == 403


@pytest.mark.own_database
def test_monitor__shows_what_is_stored_and_what_fills_it(served: Running) -> None:
    with visitor(served, "admin") as client:
        empty = extract_text(client.get("/monitor"))
        for command in (f"monitor run --tenant {served.tenant_name}", "eval questions", "experiment start"):
            assert f"kosmos-rag {command}" in empty
        assert "there can be no alerts" in empty
        store_history(served.service.engine.sync_engine, served.tenant_name, reason=f"because {HOSTILE}")
        page = client.get("/monitor")
        text = extract_text(page)
        assert HOSTILE not in page.text
        assert page.text.count('role="alert"') == 2
        for output in (
            "0.900 ± 0.012",
            "Goal: at least 0.95",
            "Goal: at most 0.410",
            "Recall@10 of leave",
            "0 leaks",
            f"{EXPERIMENT}: 40 questions, 40 compared",
            "rag.retrieval.fusion",
        ):
            assert output in text, output
        assert re.search(r"median latency, ms\s*27\s*31\s*\+4\s*yes, p < 0\.001", text), "as the command shows it"
        assert client.get("/monitor", params={"experiment": EXPERIMENT}).status_code == 200
        assert client.get("/monitor", params={"experiment": "none"}).status_code == 422
    with visitor(served, "read", "ingest") as client:
        assert client.get("/monitor").status_code == 403
        assert "0.900" not in client.get("/health").text


@pytest.mark.usefixtures("tenant_name")
def test_pages__without_the_worker_role_say_so(settings: Settings, signer: Signer) -> None:
    reading = changed(with_tokens(settings, signer), {"database.worker_url": None})
    with (
        Engine(reading, embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as served,
        httpx.Client(base_url=served.url, headers=OWN, timeout=60, trust_env=False, verify=False) as client,
    ):
        assert client.post("/sign-in", data={"credentials": signer.token(scope="admin")}).status_code == 303
        for path in ("/evaluations", "/monitor"):
            page = client.get(path)
            assert page.status_code == 200, path
            assert "no credentials of the worker role" in page.text, path
