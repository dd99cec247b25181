"""Synonyms that a log suggests."""

from pathlib import Path

import pytest

from kosmos_rag.text2sql.errors import SchemaInvalid
from kosmos_rag.text2sql.linking.synonym_mining import LoggedQuestion, read_log, suggest_synonyms


def _log(*entries: tuple[str, str]) -> list[LoggedQuestion]:
    return [LoggedQuestion(question=question, chosen=(chosen,)) for question, chosen in entries]


WAGES = _log(
    ("wages of Anna", "employees.salary"),
    ("highest wages", "employees.salary"),
    ("wages by shop", "employees.salary"),
    ("shop with the best rating", "shops.rating"),
    ("name of the shop", "shops.name"),
)


def test_a_word__is_suggested_where_questions_agree() -> None:
    (suggestion,) = suggest_synonyms(WAGES)
    assert (suggestion.word, suggestion.name, suggestion.questions, suggestion.share) == ("wages", "salary", 3, 1.0)


def test_nothing__is_suggested_from_few_questions() -> None:
    assert suggest_synonyms(WAGES, minimum=4) == []


def test_a_question_that_is_repeated__counts_once() -> None:
    assert suggest_synonyms(_log(*[("wages of Anna", "employees.salary")] * 9)) == []


def test_a_word_that_goes_with_anything__is_not_suggested() -> None:
    log = _log(*((f"shop {word} wages", f"t.{word}x") for word in ("one", "two", "six", "ten")))
    assert all(suggestion.word != "shop" for suggestion in suggest_synonyms(log))


def test_a_name_that_the_question_says__needs_no_synonym() -> None:
    log = _log(*((f"salary wages {word}", "employees.salary") for word in ("one", "two", "six")))
    assert suggest_synonyms(log) == []


def test_a_broken_log__names_every_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"question": "a", "chosen": ["t.c"]}\nnot json\n\n{"question": "b"}\n{"question": 1, "chosen": []}\n'
    )
    with pytest.raises(SchemaInvalid) as raised:
        read_log(path)
    assert [problem.split(":")[0] for problem in raised.value.problems] == ["line 2", "line 4", "line 5"]


def test_a_log_that_is_not_there__is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaInvalid, match="cannot be read"):
        read_log(tmp_path / "none.jsonl")
