"""Candidates for judged questions from feedback."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.evaluation.judging.candidates import FeedbackRow, build_candidates
from kosmos_rag.evaluation.offline.questions import Location, Question, QuestionSet, read_questions

NOW = datetime(2026, 11, 20, tzinfo=UTC)
LEAVE = FeedbackRow(
    collection="hr", question="How long is leave?", subject="ada", rating="up", at=NOW, source="leave.md",
    section=("Leave", "Annual"), line_start=5, line_end=9, acl=(EVERYONE,),
)  # fmt: skip
NOTHING = LEAVE._replace(source=None, section=(), line_start=None, line_end=None, acl=())


def test_candidates__join_spellings_and_passages_under_one_heading() -> None:
    rows = [
        LEAVE,
        LEAVE._replace(question="how long is  LEAVE", subject="bob", at=NOW + timedelta(1), line_start=12, line_end=14),
        LEAVE._replace(rating="click", subject="eve"),
        LEAVE._replace(section=("Leave", "Parental")),
        LEAVE._replace(collection=None),
        LEAVE._replace(section=()),
        LEAVE._replace(section=(), line_start=90, line_end=95),
    ]
    candidates = build_candidates(rows)
    assert len(candidates) == 5
    candidate, subjects = candidates[0]
    assert (candidate.question, candidate.section, candidate.lines) == ("how long is  LEAVE", "Annual", None)
    assert (candidate.ups, candidate.clicks, candidate.readers, subjects) == (2, 1, 3, ("ada", "bob", "eve"))
    assert {entry.lines for entry, _ in candidates} == {None, (5, 9), (90, 95)}
    assert [entry.id for entry, _ in build_candidates(reversed(rows))] == [entry.id for entry, _ in candidates]


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([LEAVE], 1),
        ([LEAVE._replace(rating="down")], 0),
        ([LEAVE, LEAVE._replace(rating="down", subject="bob")], 0),
        ([LEAVE._replace(rating="click")], 0),
        ([LEAVE._replace(rating="click")] * 3, 0),
        ([LEAVE._replace(rating="click", subject=name) for name in ("ada", "bob")], 1),
        ([*(LEAVE._replace(rating="click", subject=name) for name in "ab"), LEAVE._replace(rating="down")], 0),
        ([NOTHING], 1),
        ([NOTHING, NOTHING._replace(rating="down", subject="bob")], 0),
    ],
    ids=["up", "down", "tie", "click", "clicks of one", "clicks of two", "a down", "not covered", "answered"],
)
def test_candidate__needs_a_majority_or_clicks_of_two_readers(rows: list[FeedbackRow], count: int) -> None:
    assert len(build_candidates(rows)) == count


@pytest.mark.parametrize(
    ("acl", "principal"),
    [
        ((EVERYONE, "department:hr"), EVERYONE),
        (("user:ada", "role:Editor", "department:hr"), "department:hr"),
        (("user:bob", "user:ada"), "user:ada"),
    ],
)
def test_candidate__is_for_a_reader_who_may_see_it(acl: tuple[str, ...], principal: str) -> None:
    ((candidate, _),) = build_candidates([LEAVE._replace(acl=acl)])
    assert candidate.principal == principal


def test_question_file__names_principals(tmp_path: Path) -> None:
    file = tmp_path / "questions.yaml"
    file.write_text("- {question: a, source: a.md, principals: ['department:hr']}\n- {question: b, source: b.md}\n")
    first, second = read_questions(file).questions
    assert (first.principals, second.principals) == (("department:hr",), ())
    file.write_text("- {question: a, source: a.md, principals: department}\n")
    with pytest.raises(RequestError, match="`principals` of question 1"):
        read_questions(file)


def test_set__without_principals_keeps_its_hash() -> None:
    """The hash is that of sets before questions had principals, so stored evaluations can still be compared."""
    question = Question(id="1", text="a", locations=(Location(source="a.md"),))
    sha256 = QuestionSet(name="s", questions=(question,)).sha256
    assert sha256 == "7619b9eba22524ad0c0fcedb8c0158af7884822898aa2d7d37df9bd5d81f5539"
    restricted = Question(id="1", text="a", locations=(Location(source="a.md"),), principals=("department:hr",))
    assert QuestionSet(name="s", questions=(restricted,)).sha256 != sha256
