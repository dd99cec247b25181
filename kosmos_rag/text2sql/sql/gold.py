"""Gold tables, columns and joins of questions, from their SQL, for evaluation."""

import json
from dataclasses import dataclass
from pathlib import Path

from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources.schema_json import read_json
from kosmos_rag.text2sql.errors import QueryRefused, SchemaInvalid
from kosmos_rag.text2sql.records import ColumnRef
from kosmos_rag.text2sql.sql.analyze import QueryAnalysis, analyze_query


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldQuestion:
    """A question with the tables, columns and joins of its SQL."""

    question: str
    database: str
    sql: str
    tables: tuple[str, ...]
    """Full names; those of inner queries first."""
    columns: tuple[ColumnRef, ...]
    """A star names none."""
    requested_columns: tuple[ColumnRef, ...]
    """Those of the columns that do not only join: without both ends of joins and of foreign keys."""
    joins: tuple[tuple[ColumnRef, ColumnRef], ...]
    """Equalities of columns of two tables; empty where the SQL does not join."""


def gold_question(question: str, sql: str, schema: DatabaseSchema) -> GoldQuestion:
    """Build a gold question from its SQL.

    Raises:
        QueryRefused: The SQL does not fit the schema.
    """
    analysis = analyze_query(sql, schema)
    return GoldQuestion(
        question=question,
        database=schema.name,
        sql=sql,
        tables=analysis.tables,
        columns=analysis.columns,
        requested_columns=_find_requested_columns(analysis, schema),
        joins=analysis.joins,
    )


def _find_requested_columns(analysis: QueryAnalysis, schema: DatabaseSchema) -> tuple[ColumnRef, ...]:
    """Return the columns of a query that do not only join."""
    query_columns = set(analysis.columns)
    keys = {column for join in analysis.joins for column in join}
    for name in analysis.tables:
        table = schema.table(name)
        for key in table.foreign_keys if table else ():
            for source, target in zip(key.columns, key.target, strict=True):
                ends = {(name, source), (key.table, target)}
                keys |= ends if ends <= query_columns else set()
    return tuple(column for column in analysis.columns if column not in keys)


def read_questions(path: Path, schemas: list[DatabaseSchema]) -> list[GoldQuestion]:
    """Read questions in Spider's layout: `db_id`, `question` and `query`.

    Raises:
        SchemaInvalid: A question cannot be used; lists all of them with the reason.
    """
    by_name = {schema.name: schema for schema in schemas}
    rows = read_json(path)
    if not isinstance(rows, list):
        raise SchemaInvalid(f"questions {path}", ["it must be a list of questions"])
    gold, problems = [], []
    for number, row in enumerate(rows):
        try:
            gold.append(gold_question(str(row["question"]), str(row["query"]), by_name[row["db_id"]]))
        except (KeyError, TypeError) as error:
            problems.append(f"[{number}]: {json.dumps(str(error))} is missing, or is no database of the schemas")
        except QueryRefused as refused:
            problems.append(f"[{number}].query: {refused}")
    if problems:
        raise SchemaInvalid(f"questions {path}", problems)
    return gold
