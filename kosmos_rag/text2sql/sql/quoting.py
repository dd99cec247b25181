"""Quote SQL identifiers and texts."""

import re

from kosmos_rag.text2sql.catalog.joins import Join
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, TableSchema

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset(
    (
        *("all", "and", "any", "array", "as", "asc", "between", "both", "case", "cast", "check", "collate", "column"),
        *("constraint", "create", "cross", "current_date", "current_time", "current_user", "default", "delete", "desc"),
        *("distinct", "do", "drop", "else", "end", "except", "exists", "false", "fetch", "for", "foreign", "from"),
        *("full", "grant", "group", "having", "in", "index", "inner", "insert", "intersect", "into", "is", "join"),
        *("lateral", "leading", "left", "like", "limit", "natural", "not", "null", "offset", "on", "only", "or"),
        *("order", "outer", "overlaps", "primary", "references", "returning", "right", "select", "session_user"),
        *("set", "some", "symmetric", "table", "then", "to", "trailing", "transaction", "true", "union", "unique"),
        *("update", "user", "using", "values", "verbose", "when", "where", "window", "with"),
    )
)
"""Words that PostgreSQL or SQLite do not take as a name."""


def quote_identifier(name: str) -> str:
    """Quote an SQL identifier if necessary."""
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def quote_literal(text: str) -> str:
    """Return a text as an SQL literal, in plain quotes."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def quote_table(table: TableSchema) -> str:
    """Return the quoted full name of a table."""
    return ".".join(quote_identifier(part) for part in (table.schema, table.name) if part)


def join_condition(schema: DatabaseSchema, join: Join) -> str:
    """Return the SQL condition of a join over all key columns."""
    pairs = zip(join.key.columns, join.key.target, strict=True)
    left, right = _quote_full_name(schema, join.table), _quote_full_name(schema, join.key.table)
    return " AND ".join(
        f"{left}.{quote_identifier(source)} = {right}.{quote_identifier(target)}" for source, target in pairs
    )


def _quote_full_name(schema: DatabaseSchema, full_name: str) -> str:
    table = schema.table(full_name)
    return quote_identifier(full_name) if table is None else quote_table(table)
