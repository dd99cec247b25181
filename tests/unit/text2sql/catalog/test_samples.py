"""Which sample values may be read."""

import pytest

from kosmos_rag.core.errors import RequestError
from kosmos_rag.text2sql.catalog.sources import SampleRules


@pytest.mark.parametrize(
    "column",
    [
        "password", "user_pwd", "apiKey", "api_key", "EmailAddress", "e_mail", "homephone", "mobile_number", "Street",
        "date_of_birth", "DOB", "age", "FirstName", "last_name", "surname", "salary", "account_number", "card_no", "IP",
        "client_ip", "lat", "zip_code", "remark", "session_token", "passport_no",
    ],
)  # fmt: skip
def test_private_columns__are_never_read(column: str) -> None:
    assert not SampleRules().allows("t", column)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("customers", "name"),
        ("Employee", "Title"),
        ("orders", "customer_name"),
        ("tasks", "created_by"),
        ("people", "name"),
    ],
)
def test_names_of_people__are_never_read(table: str, column: str) -> None:
    assert not SampleRules().allows(table, column)


@pytest.mark.parametrize(("table", "column"), [("products", "name"), ("employees", "state"), ("orders", "file_name")])
def test_names_of_things__may_be_read(table: str, column: str) -> None:
    assert SampleRules().allows(table, column)


@pytest.mark.parametrize(
    "column",
    ["language", "state", "kind", "region", "elevation", "template", "category", "usage", "relation", "colour"],
)
def test_plain_columns__may_be_read(column: str) -> None:
    assert SampleRules().allows("t", column)


def test_rules__exclude_columns_and_tables() -> None:
    assert not SampleRules(excluded=("^T[.]ki",)).allows("t", "kind")
    assert SampleRules(excluded=("^u[.]",)).allows("t", "kind")
    assert not SampleRules(tables=("u",)).allows("t", "kind")


def test_rules_of_names__read_nothing_where_no_table_is_named() -> None:
    assert SampleRules.from_options([], []) is None
    assert SampleRules.from_options(["a", "*"], []) == SampleRules(tables=None)
    assert SampleRules.from_options(["a"], ["x"]) == SampleRules(tables=("a",), excluded=("x",))
    with pytest.raises(RequestError, match="no table is named"):
        SampleRules.from_options([], ["x"])
