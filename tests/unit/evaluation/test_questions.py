"""Question files as they are read, and what counts as an answer."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.offline import Location, Question, read_questions
from kosmos_rag.evaluation.offline.questions import dump_questions, hash_question


@dataclass(frozen=True)
class At:
    """A location in a document."""

    source: str
    section: tuple[str, ...] = ()
    line_start: int = 1
    line_end: int = 1


def _read(tmp_path: Path, text: str) -> tuple[Question, ...]:
    file = tmp_path / "set.yaml"
    file.write_text(text)
    return read_questions(file).questions


@pytest.mark.parametrize(
    ("location", "at", "covered"),
    [
        (Location(source="a.md"), At("/kb/a.md"), True),
        (Location(source="a.md"), At("a.md"), True),
        (Location(source="kb/a"), At("/x/kb/a.pdf"), True),
        (Location(source="a.md"), At("/kb/aa.md"), False),
        (Location(source="a"), At("/kb/a.b/c"), False),
        (Location(source="a.md", section="Leave  Days"), At("a.md", ("HR", "leave days", "Sick")), True),
        (Location(source="a.md", section="Leave"), At("a.md", ("Leave Days",)), False),
        (Location(source="a.md", lines=(3, 5)), At("a.md", (), 5, 9), True),
        (Location(source="a.md", lines=(3, 5)), At("a.md", (), 6, 9), False),
    ],
)
def test_place__covers(location: Location, at: At, covered: bool) -> None:
    assert location.covers(at) is covered


def test_names__of_what_is_no_answer_are_as_fine_as_the_finest_place() -> None:
    at = At("/kb/b.md", ("B", "C"), 3, 4)
    locations = [Location(source="a.md"), Location(source="a.md", section="A"), Location(source="a.md", lines=(1, 2))]
    names = [
        Question(id="q", text="?", locations=tuple(locations[:count])).list_passage_names(at) for count in (1, 2, 3)
    ]
    assert names == [["/kb/b.md"], ["/kb/b.md#B / C"], ["/kb/b.md:3-4"]]


def test_names__are_those_of_all_places_that_a_passage_covers() -> None:
    first, second = Location(source="a.md", lines=(1, 4)), Location(source="a.md", lines=(5, 6), grade=2)
    question = Question(id="q", text="?", locations=(first, second))
    assert question.list_passage_names(At("/kb/a.md", (), 4, 5)) == ["a.md:1-4", "a.md:5-6"]
    assert question.grades == {"a.md:1-4": 1, "a.md:5-6": 2}


def test_file__in_all_its_forms(tmp_path: Path) -> None:
    result = _read(
        tmp_path,
        """
- {question: 'Who?', source: a.md, intent: ignored}
- {question: 'Where?', source: a.md, section: Places, lines: [3, 4], id: w}
- {question: 'What?', expected: [{source: a.md, grade: 2}, {source: b.md, lines: [7]}]}
- {question: 'Why?', answerable: false}
""",
    )
    assert [question.id for question in result] == [
        hash_question("Who?"),
        "w",
        hash_question("What?"),
        hash_question("Why?"),
    ]
    assert result[1].locations == (Location(source="a.md", section="Places", lines=(3, 4)),)
    assert result[2].grades == {"a.md": 2, "b.md:7-7": 1}
    assert [question.answerable for question in result] == [True, True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {question: 'Who?', source: a.md, answerable: false}", "question 1 of .* must either name"),
        ("- {question: 'Who?'}", "must either name"),
        ("- {question: 'Who?', source: a.md}\n- {question: 'Who?', source: b.md}", r"'Who\?' occurs twice"),
        ("- {question: 'Who?', source: 7}", "names no source"),
        ("- {question: 'Who?', source: a.md, lines: [5, 3]}", "`lines` of question 1"),
        ("- {question: 'Who?', source: a.md, lines: 5}", "`lines` of question 1"),
        ("- {question: 'Who?', source: a.md, section: [A]}", "`section` of question 1"),
        ("- {question: 'Who?', source: a.md, grade: true}", "`grade` of question 1"),
        ("- {question: 'Who?', expected: a.md}", "`expected` of question 1"),
        ("- {question: ' '}", "is not a list of questions"),
        ("[]", "is not a list of questions"),
    ],
)
def test_file__that_is_wrong_is_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=message):
        _read(tmp_path, text)


def test_written__is_read_again(tmp_path: Path) -> None:
    question = Question(
        id=hash_question("Wie?"), text="Wie?", locations=(Location(source="/kb/ä: b.md", lines=(2, 9)),)
    )
    assert _read(tmp_path, dump_questions([(question, "heading")])) == (question,)


def test_set__has_the_same_hash_in_another_order_and_another_with_other_judgements(tmp_path: Path) -> None:
    file = tmp_path / "set.yaml"
    hashes = []
    for text in (
        "[{question: A, source: a}, {question: B, source: b}]",
        "[{question: B, source: b}, {question: A, source: a}]",
        "[{question: A, source: a}, {question: B, source: c}]",
    ):
        file.write_text(text)
        hashes.append(read_questions(file).sha256)
    assert hashes[0] == hashes[1] != hashes[2]
