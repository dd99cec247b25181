"""Conversations with a model behind a real server that counts: what their prompts repeat, and who may read it."""

import hmac
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from kosmos_rag import Engine, Filter, Settings, SourceDocument, Tenant
from kosmos_rag.apps.http.toolkit.bodies import TurnRequest, to_turns
from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.core.types import Answer, Turn
from kosmos_rag.core.types.serialize import from_dict, to_dict
from tests.integration.variants import opened
from tests.unit.models.llm.chat_server import ChatServer, Messages, plays, running

TOPICS = ("leave", "travel", "invoices", "laptops", "notice", "parking", "training", "badges", "visitors", "holidays")
SENTENCE = "All {0} are approved by the office of {0}, counted in the register of {0} and reviewed each quarter."
LEAST_SHARE = 0.6

Opened = Callable[..., AbstractContextManager[Engine]]


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as started:
        yield started


@pytest.fixture
def conversing(settings: Settings, chat: ChatServer) -> Opened:
    """Open an engine whose model rewrites questions and writes answers."""
    chat.replies = [plays(_write)]
    usual = {
        "language_model": LanguageModelSettings(url=chat.url()),
        "rag.answer.mode": "generative",
        "rag.answer.threshold": 0.0,
        "rag.answer.history_turns": 10,
    }
    return lambda **changes: opened(settings, usual | changes)


def _write(messages: Messages) -> Iterator[str]:
    """Return the last question of a conversation, or the passage with most of its words and its marker."""
    question = messages[-1]["content"].rpartition("uestion: ")[2]
    if "Last question: " in messages[-1]["content"]:
        yield question.partition("\n")[0]
        return
    words = set(re.findall(r"\w{4,}", question.lower()))
    text = "\n\n".join(message["content"] for message in messages if message["role"] == "user")
    blocks = re.findall(r"(?m)^(\[\d+\]) .*\n(.+)$", text)
    marker, sentence = max(blocks, key=lambda block: len(words & set(re.findall(r"\w{4,}", block[1].lower()))))
    yield f"{sentence} {marker}"


def _ingest(engine: Engine, name: str, acl: tuple[str, ...] = ("everyone",)) -> Tenant:
    engine.tenant(name).ingest(
        SourceDocument(source=f"{topic}.md", data=SENTENCE.format(topic).encode(), acl=acl) for topic in TOPICS
    )
    return engine.tenant(name, principals=["everyone", "group:staff"])


def _converse(tenant: Tenant, count: int = 10, history: tuple[Turn, ...] = ()) -> list[Answer]:
    answers = []
    for topic in TOPICS[:count]:
        answers.append(tenant.answer(f"How are {topic} approved, counted and reviewed?", k=4, history=history))
        history += (from_dict(Turn, to_dict(answers[-1].turn)),)
    return answers


def _prompts(chat: ChatServer) -> list[str]:
    """Return the prompts of answers, as texts."""
    conversations = [body["messages"] for _, _, body in chat.requests]
    return [
        "\0".join(f"{message['role']}\n{message['content']}" for message in messages)
        for messages in conversations
        if "Last question: " not in messages[-1]["content"]
    ]


def _count_common(first: str, second: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _share_cached(prompts: list[str]) -> float:
    cached = sum(
        max((_count_common(prompt, other) for other in prompts[:number]), default=0)
        for number, prompt in enumerate(prompts)
    )
    return cached / sum(map(len, prompts))


def test_prompts__of_ten_turns_begin_as_the_ones_before(conversing: Opened, chat: ChatServer, tenant_name: str) -> None:
    with conversing() as engine:
        answers = _converse(_ingest(engine, tenant_name))
    prompts = _prompts(chat)
    assert len(prompts) == 10
    assert _share_cached(prompts) >= LEAST_SHARE
    repeated = [body["messages"] for _, _, body in chat.requests][-1]
    assert [message["role"] for message in repeated] == ["system", *["user", "assistant"] * 9, "user"]
    assert [message["content"] for message in repeated if message["role"] == "assistant"] == [
        answer.text for answer in answers[:9]
    ]


def test_fence__follows_from_the_secret_of_the_settings_in_all_processes(
    conversing: Opened, chat: ChatServer, tenant_name: str
) -> None:
    secret = "f" * 32
    for _ in range(2):
        with conversing(**{"rag.answer.fence_secret": SecretStr(secret)}) as engine:
            _converse(_ingest(engine, tenant_name), 2)
    question = f"0 How are {TOPICS[0]} approved, counted and reviewed?"
    fence = hmac.digest(secret.encode(), question.encode(), "sha256").hex()[:16]
    assert [prompt.count(f"BEGIN DOCUMENTS {fence}") > 0 for prompt in _prompts(chat)] == [True] * 4


@pytest.mark.parametrize("history_tokens", [0, 400])
def test_prompts__of_smaller_budgets_repeat_less(
    conversing: Opened, chat: ChatServer, tenant_name: str, history_tokens: int
) -> None:
    with conversing(**{"rag.answer.history_tokens": history_tokens}) as engine:
        _converse(_ingest(engine, tenant_name))
    prompts = _prompts(chat)
    assert len(prompts[-1]) < (3000 if history_tokens == 0 else 5000)
    assert ("\0assistant\n" in prompts[-1]) == (history_tokens > 0)


def test_numbers__name_one_passage_in_the_whole_conversation(
    conversing: Opened, chat: ChatServer, tenant_name: str
) -> None:
    with conversing(**{"rag.answer.history_tokens": 400}) as engine:
        answers = _converse(_ingest(engine, tenant_name))
    sources: dict[int, str] = {}
    for answer in answers:
        for citation in answer.context.citations:
            assert sources.setdefault(citation.index, citation.source) == citation.source
        assert answer.verified, answer.report
        (cited,) = {sentence.citation.index for sentence in answer.sentences}
        assert f"[{cited}]" in answer.text
    assert len(set(sources.values())) == len(sources) == len(TOPICS)
    for prompt in _prompts(chat):
        marks = re.findall(r"(?m)^\[(\d+)\] ", prompt)
        assert len(marks) == len(set(marks))


def test_cited_evidence__stays_and_the_rest_goes(conversing: Opened, chat: ChatServer, tenant_name: str) -> None:
    with conversing(**{"rag.answer.history_tokens": 500}) as engine:
        answers = _converse(_ingest(engine, tenant_name), 4)
    cited = {f"[{answer.sentences[0].citation.index}] " for answer in answers[:3]}
    *_, messages = [body["messages"] for _, _, body in chat.requests]
    repeated = {mark for message in messages[1:-1] for mark in re.findall(r"(?m)^\[\d+\] ", message["content"])}
    all_marks = {f"[{number}] " for number in range(1, len(TOPICS) + 1)}
    assert cited <= repeated < all_marks


def _change_access(tenant: Tenant, engine: Engine) -> Mapping[str, Any]:
    engine.tenant(tenant.name).ingest(
        [SourceDocument(source="leave.md", data=b"All leave is secret now.", acl=("group:board",))]
    )
    return {}


def _erase(tenant: Tenant, engine: Engine) -> Mapping[str, Any]:
    engine.tenant(tenant.name).delete("leave.md")
    return {}


def _change_filter(tenant: Tenant, engine: Engine) -> Mapping[str, Any]:
    return {"filter": Filter(sources=("travel.md", "invoices.md"))}


@pytest.mark.parametrize("change", [_change_access, _erase, _change_filter])
def test_earlier_passage__that_the_reader_may_no_longer_read_is_not_repeated(
    conversing: Opened,
    chat: ChatServer,
    tenant_name: str,
    change: Callable[[Tenant, Engine], Mapping[str, Any]],
) -> None:
    with conversing() as engine:
        tenant = _ingest(engine, tenant_name)
        (first,) = _converse(tenant, 1)
        options = change(tenant, engine)
        answer = tenant.answer("How are travel approved?", k=2, history=[first.turn], **options)
    assert "leave.md" in {citation.source for citation in first.citations}
    assert "leave.md" not in {citation.source for citation in answer.context.citations}
    assert "leave.md" not in _prompts(chat)[-1]
    assert first.text in _prompts(chat)[-1]  # what was said stays: the caller sends it
    numbers = {citation.index: citation.source for citation in first.context.citations}
    citations = answer.context.citations
    assert all(numbers.get(citation.index, citation.source) == citation.source for citation in citations)


def test_earlier_passage__of_another_reader_or_tenant_is_not_read(
    conversing: Opened, chat: ChatServer, tenant_name: str
) -> None:
    with conversing() as engine:
        staff = _ingest(engine, tenant_name, ("group:staff",))
        (first,) = _converse(staff, 1)
        stranger, other = engine.tenant(tenant_name, principals=["everyone"]), engine.tenant(f"{tenant_name}-other")
        engine.tenant(tenant_name).ingest([SourceDocument(source="open.md", data=b"All doors are open.")])
        other.ingest([SourceDocument(source="open.md", data=b"All doors are open.")])
        for reader in (stranger, other):
            answer = reader.answer("Which doors are open?", history=[first.turn])
            assert {citation.source for citation in answer.context.citations} == {"open.md"}
            assert "leave.md" not in _prompts(chat)[-1]


def test_earlier_passage__is_of_the_collection_of_the_question(conversing: Opened, tenant_name: str) -> None:
    with conversing() as engine:
        (first,) = _converse(_ingest(engine, tenant_name), 1)
        desk = engine.tenant(tenant_name, collection="desk")
        desk.ingest([SourceDocument(source="open.md", data=b"All doors are open.")])
        answer = desk.answer("Which doors are open?", history=[first.turn])
    assert {citation.source for citation in answer.context.citations} == {"open.md"}


def test_earlier_passage__that_is_not_approved_any_more_is_not_repeated(
    conversing: Opened, chat: ChatServer, tenant_name: str
) -> None:
    with conversing(**{"rag.retrieval.require_approved": True}) as engine:
        tenant = engine.tenant(tenant_name)
        for topic in ("leave", "travel"):
            text = f"All {topic} are approved by the office.".encode()
            tenant.ingest([SourceDocument(source=f"{topic}.md", data=text, metadata={"approved": True})])
        first = tenant.answer("How are leave approved?", k=1)
        assert [citation.source for citation in first.context.citations] == ["leave.md"]
        tenant.update_metadata("leave.md", {"approved": False})
        answer = tenant.answer("How are travel approved?", k=1, history=[first.turn])
    assert [citation.source for citation in answer.context.citations] == ["travel.md"]
    assert "leave.md" not in _prompts(chat)[-1]


def test_joined_chunks__are_repeated_as_one_passage(conversing: Opened, chat: ChatServer, tenant_name: str) -> None:
    changes = {"rag.chunking.max_size": 150, "rag.chunking.min_size": 20, "rag.chunking.overlap": 0}
    text = "\n\n".join(f"Paragraph {number} says how leave is approved by office {number}." for number in range(6))
    with conversing(**changes) as engine:
        tenant = engine.tenant(tenant_name)
        tenant.ingest([SourceDocument(source="leave.md", data=text.encode())])
        first = tenant.answer("How is leave approved?", k=6)
        passage = max(first.context.passages, key=lambda entry: len(entry.chunk_ids))
        assert len(passage.chunk_ids) > 1
        answer = tenant.answer("And which office?", k=1, history=[first.turn])
        partly = replace(first.turn, passages={passage.citation.index: passage.chunk_ids[:1] * 2})
        forged = tenant.answer("And which office?", k=1, history=[partly])
    assert passage.text in {entry.text for entry in answer.context.passages}
    prompts = _prompts(chat)
    assert prompts[1].startswith(prompts[0])
    assert all(entry.text in text for entry in forged.context.passages)


def test_passage__has_one_number_where_a_caller_sends_two(conversing: Opened, tenant_name: str) -> None:
    with conversing() as engine:
        tenant = _ingest(engine, tenant_name)
        (first,) = _converse(tenant, 1)
        (number, chunk_ids), (other, _), *_ = first.turn.passages.items()
        forged = replace(first.turn, passages={number: chunk_ids, other: chunk_ids})
        answer = tenant.answer("How are parking approved?", k=1, history=[forged])
    indexes = [citation.index for citation in answer.context.citations]
    assert len(indexes) == len(set(indexes)) == 2
    assert answer.context.passages[1].chunk_ids == chunk_ids


def test_number__names_what_the_earliest_turn_says(conversing: Opened, tenant_name: str) -> None:
    with conversing() as engine:
        tenant = _ingest(engine, tenant_name)
        (first,) = _converse(tenant, 1)
        (number, chunk_ids), (_, others), *_ = first.turn.passages.items()
        later = replace(first.turn, question="And then?", passages={number: others})
        answer = tenant.answer("How are parking approved?", k=1, history=[first.turn, later])
    by_number = {passage.citation.index: passage.chunk_ids for passage in answer.context.passages}
    assert by_number[number] == chunk_ids


def test_turn_without_passages__is_not_repeated(conversing: Opened, chat: ChatServer, tenant_name: str) -> None:
    with conversing() as engine:
        tenant = _ingest(engine, tenant_name)
        history = [Turn(question="Tell me about leave.", answer="It is approved. [1]")]
        answer = tenant.answer("How are travel approved?", history=history)
    assert answer.context.citations[0].index == 1
    assert "Tell me about leave." not in _prompts(chat)[-1]


def test_body__of_a_request_has_the_turn_of_an_answer() -> None:
    turn = Turn(question="q", answer="a", search_query="s", passages={3: (uuid.UUID(int=7),)})
    body = TurnRequest.model_validate_json(json.dumps(to_dict(turn)))
    assert to_turns([body]) == [turn]
    too_many: dict[str, list[str]] = {str(number): [] for number in range(1, 202)}
    for passages in ({"0": [str(uuid.UUID(int=7))]}, {"1": ["no id"]}, too_many):
        with pytest.raises(ValidationError):
            TurnRequest.model_validate({"question": "q", "answer": "a", "passages": passages})


def test_turn__has_what_the_next_question_sends() -> None:
    turn = Turn(question="q", answer="a", search_query="s", passages={1: (uuid.UUID(int=7),)})
    assert from_dict(Turn, to_dict(turn)) == turn
