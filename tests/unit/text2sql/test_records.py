"""The JSON shape of the records, in the examples of the OpenAPI document."""

from typing import Any

import pytest

from kosmos_rag.core.types.serialize import from_dict, to_dict
from kosmos_rag.text2sql import records
from kosmos_rag.text2sql.openapi_examples import EXAMPLES

RECORDS = {name: kind for name in EXAMPLES if isinstance(kind := getattr(records, name, None), type)}


def test_examples__are_of_all_results() -> None:
    assert RECORDS.keys() == {"Grounding", "QueryExample", "QueryExamples", "QueryResult", "SqlAnswer"}


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_record__is_read_from_what_it_writes(name: str) -> None:
    values: dict[str, Any] = EXAMPLES[name]
    record: Any = from_dict(RECORDS[name], values | {"of_a_newer_service": 1})
    serialized = to_dict(record)
    assert {member: serialized[member] for member in values} == values
    assert from_dict(RECORDS[name], serialized) == record


def test_query_example__has_columns_whose_tables_have_a_dot() -> None:
    values = EXAMPLES["QueryExample"] | {"columns": ["sales.orders.total"]}
    example = records.QueryExample.from_dict(values)
    assert example.columns == (("sales.orders", "total"),)
    assert example.to_dict() == values


def test_query_result__writes_binary_values_as_base64() -> None:
    result = records.QueryResult(
        sql="SELECT 1",
        columns=("a",),
        tables=(),
        rows=((b"\x00\xff", float("inf")),),
        truncated=False,
        milliseconds=1.0,
    )
    assert result.to_dict()["rows"] == [["AP8=", "Infinity"]]
