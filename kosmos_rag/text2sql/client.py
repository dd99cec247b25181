"""Calls of the Python client for schemas and databases."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kosmos_rag.apps.client.transport import Call, omit_none
from kosmos_rag.core.types.serialize import from_dict
from kosmos_rag.text2sql.records import Grounding, QueryExample, QueryExamples, QueryResult, SqlAnswer


def ground_schema(
    question: str,
    k: int = 10,
    *,
    database: str | None = None,
    tables: int = 5,
    max_tokens: int = 700,
    collection: str = "schema",
    explain: bool = False,
) -> Call[Grounding]:
    """Find the tables, columns and joins that a question needs.

    Args:
        question: The question about a database.
        k: Number of columns.
        database: Only this database; None for all.
        tables: Number of tables.
        max_tokens: Budget of `Grounding.prompt`.
        explain: Add the scores of documents; needs the scope admin.
    """
    body = omit_none(
        question=question,
        k=k,
        database=database,
        tables=tables,
        max_tokens=max_tokens,
        collection=collection,
        explain=explain,
    )
    return Call(method="POST", path="/v1/schema/grounding", body=body, read=partial(from_dict, Grounding))


def query_schema(
    sql: str,
    *,
    database: str,
    parameters: Mapping[str, str | int | float | bool | None] | None = None,
    collection: str = "schema",
) -> Call[QueryResult]:
    """Run one SELECT on a described database, if the service enables it.

    Args:
        sql: The query; values as `:name`.
        database: Name of the database, as its schema has it.
        parameters: Values by name.
    """
    body = omit_none(sql=sql, database=database, parameters=dict(parameters or {}), collection=collection)
    return Call(method="POST", path="/v1/schema/query", body=body, read=partial(from_dict, QueryResult))


def add_schema_example(
    question: str, sql: str, *, database: str, readers: Sequence[str] | None = None, collection: str = "schema"
) -> Call[QueryExample]:
    """Accept a query for a question; it replaces the question's earlier one.

    Args:
        sql: One SELECT.
        database: Name of the database, as its schema has it.
        readers: Principals that may read it; None for everyone.
    """
    body = omit_none(
        question=question,
        sql=sql,
        database=database,
        readers=None if readers is None else list(readers),
        collection=collection,
    )
    return Call(method="POST", path="/v1/schema/examples", body=body, read=partial(from_dict, QueryExample))


def schema_examples(*, collection: str = "schema") -> Call[list[QueryExample]]:
    """List the accepted queries that you may read."""
    return Call(method="GET", path="/v1/schema/examples", params={"collection": collection}, read=_read_examples)


def ask_schema(question: str, *, database: str | None = None, collection: str = "schema") -> Call[SqlAnswer]:
    """Answer a question with rows of a described database.

    Args:
        database: Only this database; None for the likeliest.
    """
    body = omit_none(question=question, database=database, collection=collection)
    return Call(method="POST", path="/v1/schema/ask", body=body, read=partial(from_dict, SqlAnswer))


def _read_examples(payload: Mapping[str, Any]) -> list[QueryExample]:
    return list(from_dict(QueryExamples, payload).examples)


CALLS = {
    "ground_schema": ground_schema,
    "query_schema": query_schema,
    "ask_schema": ask_schema,
    "add_schema_example": add_schema_example,
    "schema_examples": schema_examples,
}
"""The methods that the client has while the wing is present."""
