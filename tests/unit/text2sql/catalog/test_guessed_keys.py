"""Keys that are guessed by the names of columns."""

from dataclasses import replace

import pytest

from kosmos_rag.text2sql.catalog.guessed_keys import guess_keys
from kosmos_rag.text2sql.catalog.joins import Join, JoinGraph
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from tests.unit.text2sql.catalog.worlds import database


def _schema(**tables: str) -> DatabaseSchema:
    """A database of tables, each with its columns as one text: `id name`."""
    return database(
        *(
            TableSchema(name=name, columns=tuple(ColumnSchema(name=column, type="text") for column in columns.split()))
            for name, columns in tables.items()
        )
    )


def _guesses(schema: DatabaseSchema) -> set[str]:
    return {
        Join(table=table.full_name, key=key).hint for table in guess_keys(schema).tables for key in table.foreign_keys
    }


@pytest.mark.parametrize(
    ("tables", "keys"),
    [
        ({"orders": "customer_id total", "customers": "customer_id name"},
         {"orders.customer_id -> customers.customer_id"}),
        ({"orders": "id CustomerId", "customers": "id name"}, {"orders.CustomerId -> customers.id"}),
        ({"people": "address_id home_address_id", "addresses": "address_id city"},
         {"people.address_id -> addresses.address_id", "people.home_address_id -> addresses.address_id"}),
        ({"paper_word": "pid kid", "paper": "pid title", "word": "kid text"},
         {"paper_word.pid -> paper.pid", "paper_word.kid -> word.kid"}),
        ({"scores": "year State", "revenue_key": "state_code state", "revenue": "state_code amount"},
         {"revenue_key.state_code -> revenue.state_code", "scores.State -> revenue_key.state"}),
        ({"orders": "id name", "customers": "id name", "bids": "bid"}, set()),
    ],
)  # fmt: skip
def test_guesses__follow_from_names(tables: dict[str, str], keys: set[str]) -> None:
    assert _guesses(_schema(**tables)) == {f"{key} (guess)" for key in keys}


def test_guesses__are_none_where_the_schema_declares_a_key() -> None:
    orders, customers, visits = _schema(orders="customer_id", customers="customer_id", visits="customer_id").tables
    key = ForeignKey(columns=("customer_id",), table="customers", target=("customer_id",))
    schema = database(replace(orders, foreign_keys=(key,)), customers, visits)
    assert guess_keys(schema) == schema


def test_guessed_keys__join_tables() -> None:
    schema = guess_keys(_schema(orders="customer_id total", customers="customer_id name"))
    (plan,) = JoinGraph(schema).plans(["orders", "customers"])
    assert [join.hint for join in plan.paths[0].joins] == ["orders.customer_id -> customers.customer_id (guess)"]
