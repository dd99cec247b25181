"""What a question asks for, and what is of that kind."""

import pytest

from kosmos_rag.answering.question_type import is_requested_sql, subject
from kosmos_rag.answering.units import units

SQL = next(units("```sql\nselect count(*)\nfrom accounts;\n```"))
SHELL = next(units("```sh\nkosmos-rag search churn\n```"))
SENTENCE = next(units("Select a plan from the list to compute churn."))


@pytest.mark.parametrize(
    "question", ["How is churn calculated?", "What is the SQL of churn?", "Which formula gives churn?"]
)
def test_requested_sql__is_a_statement_where_a_formula_is_asked_for(question: str) -> None:
    assert is_requested_sql(question, SQL)
    assert not is_requested_sql(question, SHELL)
    assert not is_requested_sql(question, SENTENCE)


def test_requested_sql__is_nothing_of_another_question() -> None:
    assert not is_requested_sql("Which computer holds the accounts?", SQL)


def test_subject__is_without_the_words_that_ask_for_a_formula() -> None:
    assert subject("How is churn calculated?") == "How is churn ?"
    assert subject("Which SQL query?") == "Which SQL query?", "nothing else would be left"
