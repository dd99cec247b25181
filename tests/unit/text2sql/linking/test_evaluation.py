"""Figures of grounding, by hand."""

from dataclasses import replace

import pytest

from benchmarks.schema.parts import ALL, HELD_OUT, TUNED_ON, parts
from kosmos_rag.core.errors import RequestError
from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.linking.evaluation import QuestionScore, aggregate, contains_all, contains_joins, r_precision
from kosmos_rag.text2sql.sql.gold import GoldQuestion

_KEY = (("singers", "id"), ("songs", "singer_id"))


def _gold(question: str = "songs of singers", *, database: str = "music", joins: bool = True) -> GoldQuestion:
    return GoldQuestion(
        question=question,
        database=database,
        sql="",
        tables=("singers", "songs"),
        columns=(("songs", "title"), *_KEY) if joins else (),
        requested_columns=(("songs", "title"),) if joins else (),
        joins=(_KEY,) if joins else (),
    )


def _judged(gold: GoldQuestion, *, correct: bool, tokens: int = 100, hints: int = 1) -> QuestionScore:
    return QuestionScore(
        gold=gold,
        database_first=correct,
        tables_in_5=correct,
        tables_in_10=True,
        prompt_tables=correct,
        prompt_tokens=tokens,
        r_precision=1.0 if correct else 0.5,
        references=(("songs", "title"), ("songs", "year")) if correct else (("songs", "year"),),
        columns=(("songs", "title"), ("songs", "year"), *_KEY) if correct else (("songs", "year"), *_KEY),
        joins=correct,
        joins_needed=False,
        join_hints=hints,
    )


def test_figures__are_shares_of_the_questions_that_they_are_about() -> None:
    right, wrong = _judged(_gold(), correct=True, tokens=200), _judged(_gold(), correct=False, hints=4)
    plain = _judged(_gold(joins=False), correct=False)
    result = aggregate([right, wrong, plain])
    assert result.questions == 3
    assert result.database_first == pytest.approx(1 / 3)
    assert result.tables_in_10 == 1.0
    assert result.r_precision == pytest.approx(2 / 3)
    assert (result.columns_in_5, result.joins, result.joins_needed) == (0.5, 0.5, 0.0), "without the plain question"
    assert (result.asked_first, result.asked_in_5, result.asked_in_10) == (0.5, 0.5, 0.5)
    assert (result.reference_precision, result.reference_recall, result.references) == (0.25, 0.5, 4 / 3)
    assert result.prompt_tokens == pytest.approx(400 / 3)
    assert result.join_hints == 2.0


def test_figures__that_no_question_is_about_are_left_out() -> None:
    result = aggregate([_judged(_gold(joins=False), correct=True)])
    assert (result.columns_in_5, result.joins) == (None, None)
    assert not {"columns_in_5", "columns_in_10", "joins", "joins_needed"} & result.as_json().keys()


def test_figures__of_nothing_are_refused() -> None:
    with pytest.raises(RequestError, match="no question"):
        aggregate([])


def test_recall_and_precision__by_hand() -> None:
    assert contains_all(["a", "b", "c"], ["b", "a"], 2)
    assert not contains_all(["a", "b", "c"], ["c"], 2)
    assert r_precision(["a", "x", "b"], ["a", "b"]) == 0.5


def test_joins__count_in_plans_and_beside_them() -> None:
    key = ForeignKey(columns=("singer_id",), table="singers", target=("id",))
    columns = (ColumnSchema(name="id"), ColumnSchema(name="singer_id"))
    songs = TableSchema(name="songs", columns=columns, foreign_keys=(key,))
    graph = JoinGraph(DatabaseSchema(name="music", tables=(TableSchema(name="singers", columns=columns[:1]), songs)))
    both, alone = graph.plans(["singers", "songs"]), graph.plans(["singers"])
    assert contains_joins(both, _gold())
    assert not contains_joins(alone, _gold())
    assert contains_joins(alone, _gold(), both[0].paths[0].joins)


def test_parts__are_disjoint_by_database_and_the_same_each_time() -> None:
    questions = [_gold(f"question {number}", database=f"database {number % 10}") for number in range(40)]
    split = parts(questions)
    database_sets = [{gold.database for gold in split[part]} for part in (TUNED_ON, HELD_OUT)]
    assert not database_sets[0] & database_sets[1]
    assert [len(databases) for databases in database_sets] == [5, 5]
    assert len(split[TUNED_ON]) + len(split[HELD_OUT]) == len(split[ALL]) == 40
    shuffled = parts([replace(gold) for gold in reversed(questions)])
    assert {gold.database for gold in shuffled[TUNED_ON]} == database_sets[0]


def test_parts__without_questions_are_left_out() -> None:
    only = parts([_gold("of one database")])
    assert len(only) == 2
    assert all(members for members in only.values())
