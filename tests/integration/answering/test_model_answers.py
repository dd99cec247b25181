"""Answers of language models behind a real server: obedient, hallucinating, slow and broken ones, by both protocols."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.answering.abstention import REFUSAL
from kosmos_rag.core.config import DatabaseSettings, LanguageModelSettings
from kosmos_rag.core.errors import ConfigError, ModelError, RequestError, StatementFailed
from kosmos_rag.core.types import AnswerDone, AnswerPiece, AnswerSources, AuditKind, AuditOutcome, Turn
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import opened
from tests.unit.models.llm.chat_server import (
    ChatServer,
    Handler,
    Messages,
    breaks_off,
    drips,
    hangs_up,
    plays,
    running,
    writes,
    writes_and_then,
)

DOCUMENTS = {
    "leave.md": "# Leave\n\n## Annual Leave\n\nAll full-time employees receive 20 days of paid annual leave per year. "
    "Unused days expire on 31 March of the next year.\n",
    "expenses.md": "# Expenses\n\n## Travel\n\nTravel expenses are paid back within 14 days. Receipts above 50 euros "
    "are sent to Finance.\n",
}
QUESTION = "How many days of paid annual leave do employees get?"

Opened = Callable[..., AbstractContextManager[Engine]]


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as started:
        yield started


@pytest.fixture(params=["openai", "ollama"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def by_model(settings: Settings, chat: ChatServer) -> Opened:
    """Open an engine whose answers are written by the server's model, over vectors made of words."""

    def make(protocol: str = "openai", **changes: Any) -> AbstractContextManager[Engine]:
        base = chat.url("/v1" if protocol == "openai" else "")
        model = LanguageModelSettings(protocol=protocol, url=base, api_key=SecretStr("sk-hidden"))  # type: ignore[arg-type]
        usual = {"language_model": model, "rag.answer.mode": "generative", "rag.answer.threshold": 0.0}
        models = {"embedder": changes.pop("embedder", None) or HashingEmbedder(dimensions=512)}
        return opened(settings, usual | changes, **models)

    return make


@pytest.fixture
def by_both_models(by_model: Opened, minilm: SentenceTransformerEmbedder) -> Opened:
    """The same over the vectors of a real model, with the threshold as it is shipped."""
    return partial(by_model, embedder=minilm, **{"rag.answer.threshold": 0.5})


def _ingest(engine: Engine, tenant_name: str) -> Tenant:
    scope = engine.tenant(tenant_name)
    scope.ingest(SourceDocument(source=source, data=text.encode()) for source, text in DOCUMENTS.items())
    return scope


def obedient(messages: Messages) -> Iterator[str]:
    """Copy the sentence of the documents that has most words of the question, with its marker, in pieces."""
    documents, _, question = messages[-1]["content"].rpartition("Question: ")
    matches = set(re.findall(r"\w{4,}", question.lower()))
    best, marker, message = "", "[1]", -1
    for block in re.split(r"\n\n(?=\[\d+\] )", documents):
        for sentence in re.findall(r"[A-Z][^.\n]*\.", block.partition("\n")[2]):
            if (words := len(matches & set(re.findall(r"\w{4,}", sentence.lower())))) > message:
                best, marker, message = sentence, re.findall(r"\[\d+\]", block)[0], words
    yield from re.findall(r"\S+\s*", f"{best} {marker}")


def test_prompt__is_what_the_model_of_an_answer_gets(by_model: Opened, chat: ChatServer, tenant_name: str) -> None:
    chat.replies = [plays(obedient)]
    with by_model() as engine, by_model(**{"rag.answer.mode": "extractive"}) as other:
        context = _ingest(engine, tenant_name).context(QUESTION)
        prompt = other.tenant(tenant_name).build_prompt(context)  # without a model
        engine.tenant(tenant_name).answer(QUESTION)
    message_texts = [(message["role"], message["content"]) for message in chat.requests[0][2]["messages"]]
    fence = re.compile("[0-9a-f]{16}")
    assert [(message.role, fence.sub("", message.text)) for message in prompt] == [
        (role, fence.sub("", text)) for role, text in message_texts
    ]
    with pytest.raises(RequestError, match="the context has no passage to answer from"):
        other.tenant(f"{tenant_name}-empty").build_prompt(other.tenant(f"{tenant_name}-empty").context(QUESTION))


def hallucinating(messages: Messages) -> Iterator[str]:
    """Add what nobody said: another number, a sentence without a marker, a marker of nothing."""
    yield from obedient(messages)
    yield "\n\nManagers receive 35 days of paid annual leave. [1] "
    yield "Leave is granted by the board in Zurich.\n\nAll employees receive paid annual leave. [7]"


@pytest.mark.model
def test_obedient__is_answered_verified_and_cited(
    by_both_models: Opened, chat: ChatServer, protocol: str, tenant_name: str
) -> None:
    chat.replies = [plays(obedient)]
    with by_both_models(protocol) as engine:
        scope = _ingest(engine, tenant_name)
        answer = scope.answer(QUESTION)
        stored = dict(scope.texts())
    assert answer.text == f"All full-time employees receive 20 days of paid annual leave per year. {_marker(answer)}"
    assert (answer.mode, answer.verified, answer.refused) == ("generative", True, False)
    [cited] = answer.citations
    assert stored[cited.source][cited.start : cited.end] == answer.sentences[0].text
    assert (cited.source, cited.version, cited.location) == ("leave.md", 1, "Annual Leave | L5")
    assert len(chat.requests) == 1


def _marker(answer: Any) -> str:
    return str(next(of.marker for of in answer.context.citations if of.source == "leave.md"))


@pytest.mark.model
def test_hallucinating__is_flagged_by_sentence(
    by_both_models: Opened, chat: ChatServer, protocol: str, tenant_name: str
) -> None:
    chat.replies = [plays(hallucinating)]
    with by_both_models(protocol) as engine:
        answer = _ingest(engine, tenant_name).answer(QUESTION)
    assert not answer.verified
    assert answer.report is not None
    verdicts = [sentence.verdict for sentence in answer.report.sentences]
    assert verdicts == ["supported", "unsupported", "uncited", "unresolved"]
    assert "35" in str(answer.report.problems[0].reason)
    assert len(answer.citations) == 1


def test_stream__gives_sources_then_pieces_then_the_answer(
    by_model: Opened, chat: ChatServer, tenant_name: str
) -> None:
    chat.replies = [plays(obedient)]
    with by_model() as engine:
        scope = _ingest(engine, tenant_name)
        first, *pieces, last = scope.stream_answer(QUESTION)
        whole = scope.answer(QUESTION)
    assert isinstance(first, AnswerSources)
    assert isinstance(last, AnswerDone)
    assert len(pieces) > 5
    assert "".join(piece.text for piece in pieces if isinstance(piece, AnswerPiece)) == last.answer.text == whole.text
    assert first.context.citations == last.answer.context.citations


@pytest.mark.parametrize("mode", ["extractive", "generative"])
def test_stream__is_the_same_for_both_modes(by_model: Opened, chat: ChatServer, mode: str, tenant_name: str) -> None:
    chat.replies = [plays(obedient)]
    with by_model(**{"rag.answer.mode": mode}) as engine:
        events = list(_ingest(engine, tenant_name).stream_answer(QUESTION))
    assert [type(event) for event in events[:2]] == [AnswerSources, AnswerPiece]
    assert isinstance(events[-1], AnswerDone)
    assert events[-1].answer.verified
    assert events[-1].answer.mode == mode


@pytest.mark.model
def test_weak_evidence__is_refused_without_asking_the_model(
    by_both_models: Opened, chat: ChatServer, tenant_name: str
) -> None:
    with by_both_models() as engine:
        answer = _ingest(engine, tenant_name).answer("Which penguins live on the coast of Antarctica?")
        nothing = engine.tenant(f"{tenant_name}-nobody").answer(QUESTION)
    assert (answer.refused, answer.text) == (nothing.refused, nothing.text) == (True, REFUSAL)
    assert chat.requests == []


def test_refusal__of_the_model_is_one(by_model: Opened, chat: ChatServer, tenant_name: str) -> None:
    chat.replies = [writes("I don't have information about ", "that in the approved knowledge base.")]
    with by_model() as engine:
        answer = _ingest(engine, tenant_name).answer(QUESTION)
    assert (answer.refused, answer.verified, answer.citations) == (True, False, ())


def test_slow_model__holds_no_connection(by_model: Opened, chat: ChatServer, tenant_name: str) -> None:
    go_on = threading.Event()

    def slow(handler: Handler) -> None:
        handler.begin()
        handler.piece("All full-time employees ")
        assert go_on.wait(20)
        handler.piece("receive 20 days of paid annual leave per year. [1]")
        handler.end()

    chat.replies = [slow]
    with by_model(**{"database.pool_size": 1, "database.connect_timeout_s": 5.0}) as engine:
        scope = _ingest(engine, tenant_name)
        stream = scope.stream_answer(QUESTION)
        assert isinstance(next(stream), AnswerSources)
        assert isinstance(next(stream), AnswerPiece)
        assert scope.search(QUESTION).hits  # by the only connection there is
        go_on.set()
        assert stream.answer().text.startswith("All full-time employees receive 20 days")


def test_closing__ends_the_request_at_once(by_model: Opened, chat: ChatServer, protocol: str, tenant_name: str) -> None:
    chat.replies = [writes_and_then(drips, "All full-time employees ")]
    with by_model(protocol) as engine:
        stream = _ingest(engine, tenant_name).stream_answer(QUESTION)
        next(stream)
        next(stream)
        stream.close()
        assert chat.given_up.wait(5)
        assert list(stream) == []


def test_closing__from_another_thread_ends_the_waiting(by_model: Opened, chat: ChatServer, tenant_name: str) -> None:
    chat.replies = [writes_and_then(drips)]
    with by_model() as engine:
        stream = _ingest(engine, tenant_name).stream_answer(QUESTION)
        next(stream)
        closing = threading.Timer(0.2, stream.close)
        closing.start()
        started = time.monotonic()
        with pytest.raises(ModelError, match="cancelled"):
            next(stream)
        assert time.monotonic() - started < 15
        closing.join()


@pytest.mark.parametrize("reply", [breaks_off, writes_and_then(hangs_up, "All ")])
def test_broken_model__is_an_error_that_says_so(
    by_model: Opened, chat: ChatServer, reply: Any, tenant_name: str
) -> None:
    chat.replies = [reply]
    with by_model() as engine:
        scope = _ingest(engine, tenant_name)
        with pytest.raises(ModelError, match=r"ended the connection|ended before its answer was complete") as raised:
            scope.answer(QUESTION)
    assert "sk-hidden" not in str(raised.value)


def test_history__is_made_one_question(by_model: Opened, chat: ChatServer, tenant_name: str) -> None:
    chat.replies = [writes("How many days of paid annual leave do employees get?"), plays(obedient)]
    history = [Turn(question="Tell me about annual leave.", answer="It is paid. [1]")]
    with by_model(**{"rag.answer.history_turns": 3}) as engine:
        answer = _ingest(engine, tenant_name).answer("And how many days is it?", history=history)
    assert (answer.question, answer.search_query) == ("And how many days is it?", QUESTION)
    assert (answer.verified, answer.warnings) == (True, ())
    assert "Tell me about annual leave." in chat.requests[0][2]["messages"][1]["content"]
    assert "Tell me about annual leave." not in chat.requests[1][2]["messages"][1]["content"]


def test_history__with_a_model_that_fails_is_the_question_as_asked(
    by_model: Opened, chat: ChatServer, tenant_name: str
) -> None:
    chat.replies = [breaks_off, plays(obedient)]
    with by_model(**{"rag.answer.history_turns": 3}) as engine:
        answer = _ingest(engine, tenant_name).answer(QUESTION, history=[Turn(question="Leave?", answer="Yes.")])
    assert answer.search_query == QUESTION
    assert answer.warnings[0] == (
        "searched without the conversation: language model server failed; the log of the process has the error"
    )


def test_quotes__are_known_to_have_gone_after_another_ingestion(
    by_model: Opened, chat: ChatServer, tenant_name: str
) -> None:
    chat.replies = [plays(obedient)]
    with by_model() as engine:
        scope = _ingest(engine, tenant_name)
        answer = scope.answer(QUESTION)
        assert [status.state for status in scope.check_quotes(answer.sentences)] == ["unchanged"]
        text = DOCUMENTS["leave.md"]
        scope.ingest(SourceDocument(source="leave.md", data=f"Valid from May.\n\n{text}".encode()))
        assert [status.state for status in scope.check_quotes(answer.sentences)] == ["moved"]
        scope.ingest(SourceDocument(source="leave.md", data=text.replace("20", "25").encode()))
        assert [status.state for status in scope.check_quotes(answer.sentences)] == ["gone"]
        scope.delete("leave.md")
        assert [status.state for status in scope.check_quotes(answer.sentences)] == ["gone"]


def test_stream__is_in_the_log_before_anything_is_given_out(
    by_model: Opened, chat: ChatServer, tenant_name: str
) -> None:
    chat.replies = [plays(obedient)]
    with by_model(**{"rag.audit.enabled": True}) as engine:
        scope = _ingest(engine, tenant_name)
        stream = scope.stream_answer(QUESTION)
        [record] = scope.audit.find()
        assert (record.kind, record.outcome, chat.requests) == (AuditKind.ANSWER, AuditOutcome.HITS, [])
        stream.answer()
        scope.answer(QUESTION)
        assert len(scope.audit.find()) == 2


def test_stream__that_the_model_refuses_is_in_the_log_as_refused(
    by_model: Opened, chat: ChatServer, tenant_name: str
) -> None:
    chat.replies = [writes("I don't have information about ", "that in the approved knowledge base.")]
    with by_model(**{"rag.audit.enabled": True}) as engine:
        scope = _ingest(engine, tenant_name)
        for event in (stream := scope.stream_answer(QUESTION)):
            if not isinstance(event, AnswerDone):
                assert [record.outcome for record in scope.audit.find()] == [AuditOutcome.HITS]
        end, begin = scope.audit.find()
        assert (end.outcome, end.follows, end.passages) == (AuditOutcome.REFUSED, begin.id, ())
        assert begin.passages
        assert [
            (failed_question.question, failed_question.refused)
            for failed_question in scope.audit.list_failed_questions()
        ] == [(QUESTION, 1)]
        scope.audit.seal()
        assert scope.audit.verify().rows == 2
        stream.close()


@pytest.mark.own_database
def test_stream__whose_end_cannot_be_recorded_has_none(
    by_model: Opened, chat: ChatServer, database: DatabaseSettings, tenant_name: str
) -> None:
    chat.replies = [writes("I don't have information about ", "that in the approved knowledge base.")]
    with by_model(**{"rag.audit.enabled": True}) as engine:
        stream = _ingest(engine, tenant_name).stream_answer(QUESTION)
        with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
            admin.execute("REVOKE INSERT ON kosmos.audit_events FROM kosmos_app")
        with pytest.raises(StatementFailed, match="permission denied"):
            stream.answer()


def test_log__has_the_question_that_was_searched_for(by_model: Opened, chat: ChatServer, tenant_name: str) -> None:
    refusal = writes("I don't have information about ", "that in the approved knowledge base.")
    chat.replies = [writes(QUESTION), refusal, refusal]
    with by_model(**{"rag.audit.enabled": True, "rag.answer.history_turns": 3}) as engine:
        scope = _ingest(engine, tenant_name)
        scope.answer("And how many days is it?", history=[Turn(question="Tell me about leave.", answer="It is paid.")])
        scope.answer(QUESTION)
        plain, after = scope.audit.find()
        assert (after.question, after.search_query) == ("And how many days is it?", QUESTION)
        assert (plain.question, plain.search_query) == (QUESTION, None)
        [failed] = scope.audit.list_failed_questions()
        assert (failed.question, failed.question_sha256, failed.times) == (QUESTION, plain.question_sha256, 2)


@pytest.mark.usefixtures("tenant_name")
def test_engine__without_a_language_model_is_refused(settings: Settings) -> None:
    with (
        pytest.raises(ConfigError, match=r"mode=generative needs a language model; set language_model\.url"),
        opened(settings, {"rag.answer.mode": "generative"}),
    ):
        pytest.fail("an engine without a language model was built")


@pytest.mark.usefixtures("tenant_name")
def test_engine__with_a_broken_template_is_refused(by_model: Opened, tmp_path: Any) -> None:
    file = tmp_path / "mine.j2"
    file.write_text("{% block system %}{{ rules }}{% endblock %}{% block user %}{% endblock %}")
    with (
        pytest.raises(ConfigError, match=r"mine\.j2, line 1: 'rules' is undefined"),
        by_model(**{"rag.answer.template": str(file)}),
    ):
        pytest.fail("an engine with a broken template was built")
