"""What a query in SQL says is right for its question: tables, columns and joins, as the gold of an evaluation."""

import json
from dataclasses import dataclass
from pathlib import Path

from kosmos_rag.core.errors import QueryRefused, SchemaInvalid
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources.schema_json import read_json
from kosmos_rag.text2sql.sql.analyze import ColumnRef, read_query


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldQuestion:
    """A question with what its SQL uses."""

    question: str
    database: str
    sql: str
    tables: tuple[str, ...]
    """Full names; those of inner queries first."""
    columns: tuple[ColumnRef, ...]
    """A star names none."""
    joins: tuple[tuple[ColumnRef, ColumnRef], ...]
    """Equalities of columns of two tables; empty where the SQL does not join."""


def gold_question(question: str, sql: str, schema: DatabaseSchema) -> GoldQuestion:
    """Return a question with the gold of its SQL. Raises QueryRefused where the SQL does not fit the schema."""
    reading = read_query(sql, schema)
    return GoldQuestion(
        question=question,
        database=schema.name,
        sql=sql,
        tables=reading.tables,
        columns=reading.columns,
        joins=reading.joins,
    )


def read_questions(path: Path, schemas: list[DatabaseSchema]) -> list[GoldQuestion]:
    """Read a file of questions in Spider's layout: a list of `db_id`, `question` and `query`.

    Raises SchemaInvalid, which names every question that cannot be used and why.
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
