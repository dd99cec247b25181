"""Names in the words of people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.text2sql.catalog.naming import aliases, humanize, plural, singular, words


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("success_count", ("success", "count")),
        ("LocalLLMDecisionRun", ("local", "llm", "decision", "run")),
        ("avgExecTime2", ("avg", "exec", "time", "2")),
        ("Home Town", ("home", "town")),
        ("größe_cm", ("größe", "cm")),
        ('na"me', ("na", "me")),
        ("🙂", ()),
    ],
)
def test_words__of_any_style(name: str, expected: tuple[str, ...]) -> None:
    assert words(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("success_count", "number of successes"),
        ("num_employees", "number of employees"),
        ("failureCount", "how many failures"),
        ("avg_execution_time", "average execution time"),
        ("max_execution_time", "highest execution time"),
        ("created_at", "when created"),
        ("started_by", "who started"),
        ("is_default", "whether it is default"),
        ("duration_ms", "duration in milliseconds"),
        ("dept_name", "name of the department"),
        ("program_id", "program"),
        ("last_login_at", "most recent login at"),
        ("order_date", "date of order"),
        ("status", "status"),
        ("🙂", "🙂"),
    ],
)
def test_aliases__say_what_people_say(name: str, expected: str) -> None:
    assert expected in aliases(name)


def test_aliases__begin_with_the_spoken_name() -> None:
    assert aliases("tot_qty")[:2] == ("total quantity", "tot qty")


@given(st.text(min_size=1, max_size=40))
def test_aliases__of_any_name_are_few_distinct_and_never_empty(name: str) -> None:
    result = aliases(name)
    assert 1 <= len(result) <= 8
    assert len(set(result)) == len(result)
    assert all(result)
    assert humanize(name) == result[0]


@pytest.mark.parametrize(
    ("item", "many"), [("success", "successes"), ("category", "categories"), ("day", "days"), ("box", "boxes")]
)
def test_plural_and_singular__are_inverse(item: str, many: str) -> None:
    assert plural(item) == many
    assert singular(many) == item


def test_plural__leaves_plurals_and_singular_leaves_what_only_looks_like_one() -> None:
    assert plural("statistics") == "statistics"
    assert singular("status") == "status"
    assert singular("analysis") == "analysis"
