"""A context in, an answer or a refusal out."""

import pytest

from kosmos_rag.answering.abstaining import COEFFICIENTS, REFUSAL, confidence, features
from kosmos_rag.answering.answerer import answer
from kosmos_rag.answering.evidence import weigh
from kosmos_rag.config import AnswerSettings
from kosmos_rag.records import Answer
from kosmos_rag.testing import HashingEmbedder
from tests.unit.answering.passages import context, passage

CHURN = passage(
    "Churn is watched by Finance.\n\nHow churn is calculated: accounts lost in the month divided by accounts paying "
    "on its first day.\n\n```sql\nselect count(*) as churn from accounts;\n```\n",
    section="Churn Calculation",
)
REFUNDS = passage("Money that went back is booked on the day of the refund.", index=2, section="Refunds")
EMBEDDER = HashingEmbedder(dimensions=512)


def _answer(question: str, **settings: float) -> Answer:
    return answer(
        context(question, CHURN, REFUNDS), embedder=EMBEDDER, settings=AnswerSettings.model_validate(settings)
    )


def test_answer__is_of_the_evidence_alone_and_the_same_always() -> None:
    said = _answer("How is churn calculated?", threshold=0.0)
    assert not said.refused
    assert "```sql\nselect count(*) as churn from accounts;\n```" in said.text
    assert all(sentence.text in CHURN.text + REFUNDS.text for sentence in said.sentences)
    assert said == _answer("How is churn calculated?", threshold=0.0)
    assert said.citations == tuple(sentence.citation for sentence in said.sentences)


def test_answer__keeps_to_the_number_of_sentences() -> None:
    assert len(_answer("How is churn calculated?", threshold=0.0, sentences=1).sentences) == 1


def test_answer__looks_at_the_best_passages_only() -> None:
    said = _answer("On which day is a refund booked?", threshold=0.0, passages=1)
    assert {citation.index for citation in said.citations} == {1}


def test_answer__refuses_below_the_threshold() -> None:
    said = _answer("Which exchange rate converts euros?", threshold=1.0)
    assert (said.refused, said.text, said.sentences) == (True, REFUSAL, ())
    assert set(said.features) == set(COEFFICIENTS)


def test_answer__refuses_without_evidence_whatever_the_threshold() -> None:
    said = answer(context("Why?"), embedder=EMBEDDER, settings=AnswerSettings(threshold=0.0))
    assert (said.refused, said.text, said.confidence, said.features) == (True, REFUSAL, 0.0, {})


def _features(question: str) -> dict[str, float]:
    passages = [CHURN, REFUNDS]
    return features(context(question, *passages), weigh(question, passages, EMBEDDER), EMBEDDER)


@pytest.mark.parametrize("question", ["What is it?", "?!", "🙂"])
def test_features__of_a_question_without_words(question: str) -> None:
    values = _features(question)
    assert (values["matched"], values["weakest"], values["moment"]) == (0.0, 0.0, 0.0)


def test_features__see_words_that_no_passage_has() -> None:
    known, unknown = _features("accounts lost in the month"), _features("penguins lost in the month")
    assert known["weakest"] == pytest.approx(1.0 + 3 * 0.04)
    assert unknown["weakest"] < known["weakest"] - 0.1
    assert known["moment"] == 0.0
    assert _features("What was churn last month?")["moment"] == 1.0


def test_confidence__rises_with_what_speaks_for_an_answer() -> None:
    little = {**dict.fromkeys(COEFFICIENTS, 0.2), "moment": 0.0}
    for name in ("meaning", "matched", "weakest"):
        assert 0 < confidence(little) < confidence({**little, name: 0.9}) < 1
    assert confidence({**little, "moment": 1.0}) < confidence(little)
