"""What a question asks for, and what is of that kind."""

import pytest

from kosmos_rag.answering.question_type import fit
from kosmos_rag.answering.units import units

SQL = "```sql\nselect count(*)\nfrom accounts;\n```"


@pytest.mark.parametrize(
    ("question", "fitting", "other"),
    [
        ("How is churn calculated?", SQL, "Churn is watched by everybody."),
        ("How is churn calculated?", "Lost accounts divided by paying accounts.", "Churn is watched by everybody."),
        ("Who owns the rule?", "The owner is Data Platform.", "It is owned by nobody."),
        ("When is gold due?", "Gold is due at 04:30.", "Gold is frozen."),
        ("How many rows may fail?", "At most 5 rows.", "Rows may fail."),
        ("Which table holds refunds?", "See `silver.refunds`.", "See the other page."),
        ("What do I do when it is late?", "1. Ask the team.", "It is late."),
    ],
)
def test_fit__prefers_the_kind_that_is_asked_for(question: str, fitting: str, other: str) -> None:
    fits = fit(question)
    assert fits(next(units(fitting))) > fits(next(units(other))) == 0.0


def test_fit__prefers_sql_to_a_formula_in_words() -> None:
    fits = fit("How is churn calculated?")
    assert fits(next(units(SQL))) > fits(next(units("Lost accounts divided by paying ones.")))


def test_fit__of_a_question_of_no_kind_prefers_nothing() -> None:
    assert fit("Is churn bad?")(next(units(SQL))) == 0.0
