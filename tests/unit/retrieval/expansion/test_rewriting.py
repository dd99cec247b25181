"""What is asked of a language model, and what is made of its answers."""

import re
from collections.abc import Generator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ModelError, ModelUnavailable
from kosmos_rag.core.protocols import Message
from kosmos_rag.core.types import is_text
from kosmos_rag.retrieval.expansion.llm import hypothetical_passage, other_wordings
from kosmos_rag.retrieval.expansion.words import normalize_words

QUESTION = "What is churn?"


class ScriptedModel:
    """A language model that always answers the same, and keeps what it was asked."""

    name = "scripted"

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.prompt = ""
        self.max_tokens = 0

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Generator[str]:
        [message] = messages
        self.prompt, self.max_tokens = message.text, max_tokens
        yield from self.answer


class DownModel:
    """A language model that cannot be reached."""

    name = "down"

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Generator[str]:
        yield "an ans"
        raise ModelUnavailable("the server is down")


def _wordings(answer: str, count: int = 5) -> tuple[str, ...]:
    return other_wordings(ScriptedModel(answer), QUESTION, count)


@pytest.mark.parametrize(
    "answer",
    [
        "How is attrition defined?\nWhy do customers leave?",
        "1. How is attrition defined?\n2. Why do customers leave?",
        "1) How is attrition defined?\n\n(2) Why do customers leave?\n",
        "1: How is attrition defined?\n2: Why do customers leave?",
        "- How is attrition defined?\r\n• Why do customers leave?",
        "* **How is attrition defined?**\n\u2013 `Why do customers leave?`",
        "**1.** How is attrition defined?\n**2.** Why do customers leave?",
        '"How is attrition defined?"\n“Why do customers leave?”',
        "'How is attrition defined?'\n\u2018Why do customers leave?\u2019",
        "1. «How is attrition defined?»\n2. „Why do customers leave?“",
        "Here are 2 other wordings:\n\nHow is attrition defined?\nWhy do customers leave?",
        "```text\nHow is attrition defined?\nWhy do customers leave?\n```",
        "<think>\nThe user asks about churn.\n</think>\n\nHow is attrition defined?\nWhy do customers leave?",
        "The user asks about churn.\n</think>\nHow is attrition defined?\nWhy do customers leave?",
        "How is attrition defined?\nWhy do customers leave?\n<think>One more would be",
        "what is CHURN\nHow is attrition defined?\nhow is attrition defined\nWhy do customers leave?",
        "How is attrition defined?\n---\n?\n\x00 no text\nWhy do customers leave?",
    ],
)
def test_other_wordings__are_read_from_any_list(answer: str) -> None:
    assert _wordings(answer) == ("How is attrition defined?", "Why do customers leave?")


@pytest.mark.parametrize(
    "line", ["3.5 percent of churn", "2024 churn", "the customers' churn", "churn in C++", "Was kostet 1&1?"]
)
def test_other_wordings__leaves_a_wording_as_it_is(line: str) -> None:
    assert _wordings(line) == (line,)


def test_other_wordings__are_at_most_as_many_as_asked_for() -> None:
    assert _wordings("one\ntwo\nthree", count=2) == ("one", "two")


def test_other_wordings__are_not_long() -> None:
    (wording,) = _wordings("churn " * 200)
    assert wording == ("churn " * 67)[:400]


@pytest.mark.parametrize("answer", ["", " \n ", "What is churn?", "Here they are:", "<think>Let me see", "?!\n---"])
def test_other_wordings__of_a_useless_answer_is_an_error(answer: str) -> None:
    with pytest.raises(
        ModelError, match=r"'scripted' wrote no other wording .* set rag\.expansion\.queries=0"
    ) as raised:
        _wordings(answer)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("answer", ["", " \n ", "Here it is:", "```\n```", "a thought</think>"])
def test_hypothetical_passage__of_a_useless_answer_is_an_error(answer: str) -> None:
    with pytest.raises(ModelError, match=r"'scripted' wrote no passage .* set rag\.expansion\.hyde=false"):
        hypothetical_passage(ScriptedModel(answer), QUESTION)


def test_hypothetical_passage__is_one_line_of_the_answer() -> None:
    answer = "Here is a passage:\n\n```\nChurn is the share of customers\nwho leave.\n\nIt is 3.5 %.\n```"
    passage = hypothetical_passage(ScriptedModel(answer), QUESTION)
    assert passage == "Churn is the share of customers who leave. It is 3.5 %."


def test_hypothetical_passage__is_not_long() -> None:
    assert len(hypothetical_passage(ScriptedModel("churn " * 10_000), QUESTION)) <= 2000


def test_rewriting__passes_on_the_error_of_the_model() -> None:
    with pytest.raises(ModelUnavailable, match="the server is down"):
        other_wordings(DownModel(), QUESTION, 3)
    with pytest.raises(ModelUnavailable, match="the server is down"):
        hypothetical_passage(DownModel(), QUESTION)


def test_other_wordings__asks_for_as_many() -> None:
    model = ScriptedModel("one")
    other_wordings(model, QUESTION, 7)
    assert model.prompt.startswith("Write 7 other wordings ")
    assert model.max_tokens == 700


@given(st.text(alphabet="`\n a$question{}%") | st.text())
def test_prompts__hold_the_question_within_a_fence_it_cannot_close(question: str) -> None:
    model = ScriptedModel("an answer")
    hypothetical_passage(model, question)
    other_wordings(ScriptedModel("an answer of 4 words"), question, 1)
    head, fence, rest = re.split(r"^(`{3,})$", model.prompt, maxsplit=1, flags=re.MULTILINE)
    assert rest == f"\n{question}\n{fence}\n"
    assert fence not in question
    assert "instruction" in head


@given(st.text(alphabet="ab12.)-*\"'\n:<think/>`\u2019 ") | st.text(), st.integers(1, 8))
def test_other_wordings__of_any_answer_are_few_short_and_distinct(answer: str, count: int) -> None:
    try:
        wordings = _wordings(answer, count)
    except ModelError:
        return
    assert 1 <= len(wordings) <= count
    assert len({tuple(normalize_words(wording)) for wording in (*wordings, QUESTION)}) == len(wordings) + 1
    for wording in wordings:
        assert normalize_words(wording)
        assert is_text(wording)
        assert len(wording.splitlines()) == 1
        assert len(wording) <= 400
        assert '"' not in wording
