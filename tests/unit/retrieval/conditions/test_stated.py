"""Which words of a question are conditions on documents, and what they do to a ranking."""

import uuid
from datetime import date
from typing import Any

import pytest

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.conditions.stated import find_conditions, find_cues
from kosmos_rag.retrieval.fusion import PHRASE
from tests.unit.retrieval.signals.passages import passage

TODAY = date(2026, 5, 20)


def _passage(name: str, score: float, text: str = "some text", **metadata: Any) -> Passage:
    return passage(
        text, score, source=f"/kb/{name}.md", title=name, document_id=uuid.uuid4(), metadata=metadata, section=(name,)
    )


def _titles(question: str, *passages: Passage) -> list[str]:
    return [entry.title for entry in find_conditions(find_cues(question, TODAY), passages).order(passages)]


OLD, NEW, UNDATED = (
    _passage("old", 3.0, date="2025-11-01"),
    _passage("new", 2.0, date="2026-04-02"),
    _passage("undated", 1.0),
)


@pytest.mark.parametrize(
    ("question", "titles"),
    [
        ("What has changed since March?", ["new", "undated", "old"]),
        ("Was hat sich seit März geändert?", ["new", "undated", "old"]),
        ("What changed in Q4 2025?", ["old", "undated", "new"]),
        ("What changed since 2030?", ["old", "new", "undated"]),
        ("What has changed?", ["old", "new", "undated"]),
    ],
)
def test_times__put_documents_of_other_dates_last(question: str, titles: list[str]) -> None:
    assert _titles(question, OLD, NEW, UNDATED) == titles


def test_a_time__is_met_by_a_passage_that_says_it() -> None:
    late = _passage("late", 2.0, "Revenue of Q4 2025 was flat.", date="2026-02-01")
    assert _titles("What was revenue in Q4 2025?", NEW, late, OLD) == ["late", "old", "new"]


def test_a_time__is_no_matter_of_validity() -> None:
    valid = _passage("valid", 2.0, valid_until="2026-12-31")
    assert _titles("What has changed since March?", valid, NEW) == ["valid", "new"]


TRAVEL, LEAVE = _passage("Corporate Travel Policy 2026", 1.0), _passage("Leave", 2.0)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What is the daily rate in the travel policy?", TRAVEL),
        ("What is the daily rate in the corporate travel policy?", TRAVEL),
        ("What is said about the travel policy?", LEAVE),
        ("What is the rate in the policy?", LEAVE),
        ("Who travels in the company?", LEAVE),
    ],
)
def test_titles__are_named_after_a_preposition(question: str, first: Passage) -> None:
    assert _titles(question, LEAVE, TRAVEL)[0] == first.title


def test_titles__are_not_named_by_a_few_words_of_their_end() -> None:
    paper = _passage("The blunt-leading-edge problem in hypersonic flow", 1.0)
    assert _titles("What is known of transition in hypersonic flow?", LEAVE, paper)[0] == LEAVE.title


def test_a_file_name__is_a_title() -> None:
    assert _titles("laut travel-guide", LEAVE, _passage("travel_guide", 1.0)) == ["travel_guide", "Leave"]


FINANCE, SALES = _passage("f", 1.0, team="Finance"), _passage("s", 2.0, team="Sales", author="Jane Doe")


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What was written by the finance team?", "f"),
        ("What did the Finance department write?", "f"),
        ("Was hat die Abteilung Finance geschrieben?", "f"),
        ("the notes by finance", "f"),
        ("What was written by Jane Doe?", "s"),
        ("What does finance mean for the team?", "s"),
        ("What was written by the legal team?", "s"),
    ],
)
def test_values__are_named_next_to_their_field(question: str, first: str) -> None:
    assert _titles(question, SALES, FINANCE)[0] == first


def test_a_department__is_that_of_the_collection() -> None:
    hr = passage("a", 1.0, title="first", department="hr", document_id=uuid.uuid4())
    other = passage("b", 2.0, title="second", department="it", document_id=uuid.uuid4())
    conditions = find_conditions(find_cues("rules of the HR department", TODAY), [other, hr])
    assert [(item.field, item.value, item.text, item.matching) for item in conditions.stated] == [
        ("department", "hr", "HR department", 1)
    ]
    assert [entry.title for entry in conditions.order([other, hr])] == ["first", "second"]


def test_conditions__say_what_they_are_and_that_nothing_met_them() -> None:
    conditions = find_conditions(find_cues("notes since March by the finance team", TODAY), [OLD, FINANCE])
    assert [(item.field, item.value, item.matching) for item in conditions.stated] == [
        ("date", "2026-03-01/..", 0),
        ("metadata.team", "Finance", 1),
    ]
    assert [entry.title for entry in conditions.order([OLD, FINANCE])] == ["old", "f"]


def test_scores__never_contradict_the_order() -> None:
    conditions = find_conditions(find_cues("What has changed since March?", TODAY), [OLD, NEW, UNDATED])
    ranking = conditions.order([OLD, NEW, UNDATED])
    assert [entry.score for entry in ranking] == [2.0, 1.0, 1.0]
    assert [entry.signals for entry in ranking] == [{}, {}, {"condition": -2.0}]
    assert conditions.order(ranking) == ranking


def test_passages__with_a_phrase_of_the_question_stay_first() -> None:
    quoted = passage("q", 9.0, title="q", metadata={"date": "2020-01-01"}, score_contributions={PHRASE: 1.0})
    assert _titles("What has changed since March?", quoted, OLD, NEW) == ["q", "new", "old"]


@pytest.mark.parametrize(
    ("question", "fields", "title"),
    [
        ("How is churn calculated?", False, False),
        ("How is churn calculated in the handbook?", False, True),
        ("changes since March", True, False),
        ("notes by the finance team", True, False),
    ],
)
def test_questions__without_such_words_state_nothing(question: str, fields: bool, title: bool) -> None:
    cues = find_cues(question, TODAY)
    assert (bool(cues.fields or cues.times), bool(cues.title_starts)) == (fields, title)


@pytest.mark.parametrize(
    ("question", "metadata", "department", "concerned"),
    [
        ("flow by a wall", {}, None, False),
        ("flow by a wall", {"topic": "walls"}, None, False),
        ("flow by a wall", {"author": "Jane Doe"}, None, True),
        ("the notes of the HR department", {}, "it", True),
        ("changes since March", {"date": "2026-01-01"}, None, True),
        ("changes since March", {"valid_until": "2026-01-01"}, None, False),
        ("changes since March", {"author": "Jane Doe"}, None, False),
    ],
)
def test_cues__concern_documents_with_a_value_of_the_kind(
    question: str, metadata: dict[str, str], department: str | None, concerned: bool
) -> None:
    assert find_cues(question, TODAY).concern(metadata, department) is concerned
