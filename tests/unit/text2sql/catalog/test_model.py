"""Records of schemas."""

from dataclasses import replace

import pytest

from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.errors import SchemaInvalid
from tests.unit.text2sql.catalog.worlds import database, table


def test_fingerprint__is_of_the_content_and_not_of_the_order_of_tables() -> None:
    item, other = table("a", "x integer"), table("b", keys={"id": "a.id"})
    print_of_both = database(item, other).fingerprint()
    assert database(other, item).fingerprint() == print_of_both
    commented = replace(item, columns=(replace(item.columns[0], comment="new"), *item.columns[1:]))
    assert database(commented, other).fingerprint() != print_of_both
    assert len(print_of_both) == 64


def test_schema__with_doubles_is_refused_with_all_of_them() -> None:
    with pytest.raises(SchemaInvalid) as caught:
        database(table("a", "x", "x"), table("a"))
    assert caught.value.problems == ("two tables are named a", "a: two columns are named x")


def test_schema__without_names_is_refused() -> None:
    nameless = ColumnSchema(name="")
    tables = (TableSchema(name=""), TableSchema(name="a", columns=(nameless, nameless)))
    with pytest.raises(SchemaInvalid) as caught:
        DatabaseSchema(name="", tables=tables)
    faults = ("it has no name", "a table has no name", "a: a column has no name", "a: two columns are named ")
    assert caught.value.problems == faults


def test_identifies__by_primary_key_or_unique_columns() -> None:
    accounts = table("a", "x", "y", unique=(("x", "y"),))
    assert accounts.identifies(["id"])
    assert accounts.identifies(["y", "x"])
    assert not accounts.identifies(["x"])
    assert not replace(accounts, primary_key=(), unique=()).identifies([])


def test_full_name__has_the_namespace() -> None:
    assert table("a").full_name == "a"
    assert table("a", schema="sales").full_name == "sales.a"
    assert database(table("a", schema="sales")).table("a") is None
