"""Groups of unanswered questions, and what a group shows of them."""

import tracemalloc
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from kosmos_rag.evaluation.gaps.grouping import assign_groups, build_gaps, count_recent, measure_baseline, normalise
from kosmos_rag.evaluation.gaps.records import UnansweredQuestion, UnansweredReason

NOW = datetime(2026, 11, 20, tzinfo=UTC)
READERS = ("ada", "bob", "eve", "joe")
GROUP = uuid.UUID(int=99)


def _question(number: int, text: str, subject: str | None = "ada", **values: object) -> UnansweredQuestion:
    defaults = {
        "id": uuid.UUID(int=number), "first_at": NOW, "last_at": NOW, "times": 1, "collection": None,
        "subject": subject, "principals": ("everyone",), "question": text, "reason": UnansweredReason.REFUSED,
        "group_id": None, "answered_at": None, "checked_state": None,
    }  # fmt: skip
    return UnansweredQuestion(**{**defaults, **values})  # type: ignore[arg-type]


def _build_group(texts: Sequence[str], subjects: Sequence[str | None] = READERS) -> list[UnansweredQuestion]:
    return [
        _question(number, text, subject, group_id=GROUP)
        for number, (text, subject) in enumerate(zip(texts, subjects, strict=False), 1)
    ]


def test_assign_groups__joins_by_words_and_by_vectors_and_keeps_collections_apart() -> None:
    questions = [
        _question(1, "parking permit"),
        _question(2, "Where do I get a parking permit?"),  # the words
        _question(3, "dental insurance"),
        _question(4, "repair of teeth"),  # the vector
        _question(5, "parking permit", collection="hr"),
    ]
    vectors = np.eye(4, dtype=np.float32)[[0, 1, 2, 2, 0]]
    groups = assign_groups(questions, vectors, 0.0)
    assert [groups[question.id].int for question in questions] == [1, 1, 3, 3, 5]


def test_assign_groups__holds_no_matrix_of_questions_by_words() -> None:
    questions = [_question(number, " ".join(f"w{number}x{word}" for word in range(8))) for number in range(1000)]
    vectors = np.eye(2, dtype=np.float32)[[0] * len(questions)]
    tracemalloc.start()
    try:
        groups = assign_groups(questions, vectors, 1.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(set(groups.values())) == len(questions)
    assert peak < 10_000_000


def test_assign_groups__keeps_groups_that_exist() -> None:
    questions = [_question(1, "parking permit", group_id=GROUP), _question(2, "parking permit costs")]
    assert assign_groups(questions, np.eye(2, dtype=np.float32), 0.0) == {questions[1].id: GROUP}


def test_baseline__scales_cosines_of_models_whose_vectors_are_all_close() -> None:
    close = normalise(np.array([[1, 0.3, 0], [1, 0, 0.3], [1, 0, -0.3]], dtype=np.float32))
    baseline = measure_baseline(close)
    assert baseline > 0.8
    questions = [_question(1, "parking"), _question(2, "dentist"), _question(3, "visa")]
    assert len(set(assign_groups(questions, close, baseline).values())) == 3
    assert len(set(assign_groups(questions, close, 0.0).values())) == 1


@pytest.mark.parametrize(
    ("texts", "words", "question"),
    [
        (["How is the parental leave?"] * 3, ("leave", "parental"), "How is the parental leave?"),
        (
            ["parental leave", "parental leave Müller", "parental leave 4711"],
            ("leave", "parental"),
            "parental leave",
        ),
        (["parental leave Müller", "parental leave Meier", "parental leave 4711"], ("leave", "parental"), None),
    ],
    ids=["same", "one without more", "each with a name"],
)
def test_gap__shows_words_of_enough_readers_alone(
    texts: list[str], words: tuple[str, ...], question: str | None
) -> None:
    (gap,), hidden = build_gaps(_build_group(texts), min_readers=3, now=NOW)
    assert (gap.words, gap.question, hidden) == (words, question, [])
    assert "4711" not in repr(gap)
    assert "ller" not in repr(gap)


@pytest.mark.parametrize(
    "subjects",
    [("ada", "bob"), ("ada", "ada", "ada", "bob"), ("ada", "bob", None, None), (None, None, None, None)],
    ids=["two", "one asks often", "nameless", "all nameless"],
)
def test_gap__of_few_readers_is_a_number(subjects: Sequence[str | None]) -> None:
    questions = _build_group(["parental leave"] * len(subjects), subjects)
    assert build_gaps(questions, min_readers=3, now=NOW) == ([], [1])


def test_gap__of_readers_without_a_common_word_is_not_shown() -> None:
    questions = _build_group(["parking permit", "place for a car", "garage"])
    assert build_gaps(questions, min_readers=3, now=NOW) == ([], [3])


def test_gap__counts_and_closes_when_all_are_answered() -> None:
    questions = [
        _question(number, f"parental leave {age}", reader, group_id=GROUP, times=number, first_at=NOW - timedelta(age))
        for number, (reader, age) in enumerate(zip(READERS, (1, 8, 10, 30), strict=True), 1)
    ]
    (gap,), _ = build_gaps(questions, min_readers=3, now=NOW)
    assert (gap.questions, gap.entries, gap.times, gap.readers) == (4, 4, 10, 4)
    assert (gap.new, gap.earlier, gap.answered, gap.closed_at) == (1, 2, 0, None)
    again = replace(questions[3], id=uuid.UUID(int=5), subject="joe", first_at=NOW)
    assert count_recent([again, *questions], NOW) == (1, 2)
    answered = [
        _question(number, "parental leave", reader, group_id=GROUP, answered_at=NOW + timedelta(hours=number))
        for number, reader in enumerate(READERS)
    ]
    (closed,), _ = build_gaps(answered, min_readers=3, now=NOW)
    assert closed.closed_at == NOW + timedelta(hours=3)
    (open_gap,), _ = build_gaps([*answered[1:], questions[0]], min_readers=3, now=NOW)
    assert (open_gap.answered, open_gap.closed_at) == (3, None)
