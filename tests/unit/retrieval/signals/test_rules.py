"""Each signal by itself."""

from typing import Any

import pytest

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import ScoreSignal, SelectionSignal
from kosmos_rag.retrieval.signals.registry import build_signals
from kosmos_rag.retrieval.signals.rules import RULES
from tests.unit.retrieval.signals.passages import build_query, passage

SQL = "```sql\nselect 1\n```"


def _signal(name: str, **parameters: Any) -> ScoreSignal | SelectionSignal:
    return build_signals({name: parameters}, "rag.signals")[name]


def _value(name: str, hit: Passage, question: str = "", principals: tuple[str, ...] = (), **parameters: Any) -> float:
    signal = _signal(name, **{"weight": 1.0, **parameters})
    assert isinstance(signal, ScoreSignal)
    return signal.value(build_query(question, *principals), hit)


def _chosen(name: str, passages: list[Passage], question: str = "", **parameters: Any) -> list[Passage]:
    signal = _signal(name, **parameters)
    assert isinstance(signal, SelectionSignal)
    return signal.select(build_query(question), passages)


def test_signals__are_those_that_the_presets_need() -> None:
    assert set(RULES) == {
        "contains_sql", "department_match", "diversity", "exact_phrase", "header_match", "intro_penalty",
        "keyword_gate", "minimum_score", "one_per_source", "recency", "role_preference", "source_bonus",
        "sql_keywords", "word_overlap",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("section", "value"),
    [
        (("A", "Churn Calculation"), 1.0),
        (("A", "Churn Rate"), 0.5),
        (("Churn Calculation", "Revenue"), 0.0),
        (("A", "The and of"), 0.0),
        ((), 0.0),
    ],
)
def test_header_match__is_the_share_of_the_innermost_heading(section: tuple[str, ...], value: float) -> None:
    assert _value("header_match", passage(section=section), "How is churn calculated?") == value


def test_source_bonus__goes_by_the_name_of_the_file_and_by_its_kind() -> None:
    parameters: dict[str, Any] = {
        "files": {"example_sql.md": 1.0, "*_sql.md": 0.5},
        "media_types": {"text/markdown": 0.25},
    }
    assert _value("source_bonus", passage(source="/kb/example_sql.md"), **parameters) == 1.25
    assert _value("source_bonus", passage(source="/kb/more_sql.md"), **parameters) == 0.75
    other = passage(source="/example_sql.md/notes.txt", media_type="text/plain")
    assert _value("source_bonus", other, **parameters) == 0.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (SQL, 1.0),
        ("Prose.\n\n~~~SQL\nupdate t set a = 1\n~~~", 1.0),
        ("SELECT sum(x)\nFROM sales", 1.0),
        ("Select what you like.", 0.0),
        ("Take money from customers, and select a plan.", 0.0),
        ("```python\nprint()\n```", 0.0),
    ],
)
def test_contains_sql__is_a_fence_of_it_or_a_select_from(text: str, value: float) -> None:
    assert _value("contains_sql", passage(text)) == value


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"section": ("A", "Purpose of This Document")}, 1.0),
        ({"section": ("A", "Introduction")}, 1.0),
        ({"section": ("A",), "chunk_index": 0}, 1.0),
        ({"section": ("A", "Refunds"), "chunk_index": 0}, 0.0),
        ({"section": ("A", "Refunds")}, 0.0),
    ],
)
def test_intro_penalty__is_for_introductions(changes: dict[str, Any], value: float) -> None:
    assert _value("intro_penalty", passage(**changes)) == value


def test_keyword_gate__requires_the_term_where_the_question_has_it() -> None:
    holding, by_heading = passage("churned accounts"), passage("accounts", section=("Churn",))
    other = passage("subscription lifecycle, cancellation")
    others = [other, holding, by_heading]
    assert _chosen("keyword_gate", others, "How is churn calculated?", terms=["churn"]) == [holding, by_heading]
    assert _chosen("keyword_gate", others, "What are refunds?", terms=["churn"]) == others


def test_keyword_gate__leaves_all_where_no_passage_holds_the_term() -> None:
    passages = [passage("refunds"), passage("unchurned is no beginning")]
    assert _chosen("keyword_gate", passages, "churn?", terms=["churn"]) == passages


@pytest.mark.parametrize(
    ("text", "value"), [("The Total\n sales of a year", 1.0), ("sales in total", 0.0), ("total sale", 0.0)]
)
def test_exact_phrase__is_the_question_in_the_passage(text: str, value: float) -> None:
    assert _value("exact_phrase", passage(text), "Total sales?") == value


def test_word_overlap__is_the_share_of_the_questions_words() -> None:
    assert _value("word_overlap", passage("Churn by region"), "churn per region and month") == pytest.approx(0.5)
    assert _value("word_overlap", passage("churn"), "how is it?") == 0.0


@pytest.mark.parametrize(
    ("question", "text", "value"),
    [
        ("select the sum by group", "SELECT SUM(x) FROM t GROUP BY y", 3.0),
        ("sum of sales", "SELECT SUM(x)", 1.0),
        ("summary of sales", "SELECT SUM(x)", 0.0),
        ("total", "SELECT SUM(x)", 0.0),
    ],
)
def test_sql_keywords__counts_those_in_both(question: str, text: str, value: float) -> None:
    assert _value("sql_keywords", passage(text), question) == value


@pytest.mark.parametrize(
    ("principals", "department", "value"),
    [
        (("everyone", "department:hr"), "hr", 0.2),
        (("everyone", "department:hr"), "it", -0.1),
        (("department:hr", "role:Manager"), "it", 0.0),
        (("department:hr", "role:Clerk"), "it", -0.1),
        (("everyone",), "it", 0.0),
        (("department:hr",), None, 0.0),
    ],
)
def test_department_match__prefers_the_readers_own(
    principals: tuple[str, ...], department: str | None, value: float
) -> None:
    hit = passage(metadata={"department": department} if department else {})
    assert _value("department_match", hit, principals=principals, privileged=["Manager"]) == value


def test_role_preference__is_for_the_departments_listed_for_a_role() -> None:
    roles = {"SecurityAnalyst": ["security", "it"]}
    analyst = ("role:SecurityAnalyst",)
    for department, value in (("it", 1.0), ("hr", 0.0)):
        hit = passage(metadata={"department": department})
        assert _value("role_preference", hit, principals=analyst, roles=roles) == value
        assert _value("role_preference", hit, principals=("role:Clerk",), roles=roles) == 0.0


@pytest.mark.parametrize(
    ("date", "value"),
    [("2026-06-30", 1.0), ("2026-05-31", 0.5), ("2026-05-01T10:00", 0.25), ("2030-01-01", 1.0), ("soon", 0.0)],
)
def test_recency__halves_with_each_half_life(date: str, value: float) -> None:
    assert _value("recency", passage(metadata={"date": date}), half_life_days=30) == pytest.approx(value)


def test_recency__without_a_date_is_nothing() -> None:
    assert _value("recency", passage()) == 0.0


def test_minimum_score__leaves_out_what_scores_less() -> None:
    low, edge = passage(score=0.09), passage(score=0.1)
    assert _chosen("minimum_score", [edge, low], minimum=0.1) == [edge]


def test_one_per_source__keeps_the_first_of_each() -> None:
    passages = [passage(source=source) for source in ("a", "a", "b", "a", "b")]
    assert _chosen("one_per_source", passages) == [passages[0], passages[2]]
    assert _chosen("one_per_source", passages, limit=2) == [passages[0], passages[1], passages[2], passages[4]]


def test_diversity__puts_a_repetition_after_something_else() -> None:
    best, same, other = passage("net revenue churn", 1.0), passage("net revenue churn", 0.9), passage("trials", 0.7)
    chosen = _chosen("diversity", [best, same, other], penalty=0.5)
    assert [hit.chunk_id for hit in chosen] == [best.chunk_id, other.chunk_id, same.chunk_id]
    assert [hit.score for hit in chosen] == pytest.approx([1.0, 0.7, 0.4])
