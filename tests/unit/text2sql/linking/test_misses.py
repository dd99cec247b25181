"""What the benchmarks of grounding print of questions that they do not find."""

from dataclasses import replace

import pytest

from benchmarks.schema.spider import show_misses
from kosmos_rag.text2sql.linking.evaluation import QuestionScore
from kosmos_rag.text2sql.sql.gold import GoldQuestion


def test_misses__name_what_was_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    gold = GoldQuestion(
        question="How many singers are there?",
        sql="SELECT count(*) FROM singer",
        database="concert",
        tables=("singer",),
        columns=(("singer", "name"),),
        requested_columns=(("singer", "name"),),
        joins=(),
    )
    score = QuestionScore(
        gold=gold,
        database_first=True,
        tables_in_5=True,
        tables_in_10=True,
        prompt_tables=True,
        prompt_tokens=1,
        r_precision=1.0,
        references=(),
        columns=(("singer", "name"),),
        joins=True,
        joins_needed=True,
        join_hints=0,
    )
    show_misses([score, replace(score, columns=(("singer", "age"),), database_first=False)])
    first, second = capsys.readouterr().out.splitlines()
    assert first == "concert: How many singers are there? [database_first, columns_in_10]"
    assert second.strip() == gold.sql
