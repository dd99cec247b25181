"""The errors of the wing as problem documents."""

from kosmos_rag.apps.http.toolkit.errors import extension_members, to_problem
from kosmos_rag.text2sql.errors import QueryRefused, SchemaInvalid


def test_refused_query__is_an_invalid_request_with_its_code() -> None:
    error = QueryRefused("locks", "x")
    assert to_problem(error).status == 422
    assert extension_members(error) == {"code": "locks"}


def test_invalid_schema__is_an_invalid_request_without_a_code() -> None:
    error = SchemaInvalid("x", ["y"])
    assert to_problem(error).status == 422
    assert extension_members(error) == {}
