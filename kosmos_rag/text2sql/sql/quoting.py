"""Names as SQL has them: quoted where they must be."""

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


def quoted(name: str) -> str:
    """Return a name as SQL's standard has it: in double quotes where it is not plain, lower case and free."""
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def quoted_table(table: TableSchema) -> str:
    """Return a table's full name as SQL has it."""
    return ".".join(quoted(part) for part in (table.schema, table.name) if part)


def condition(schema: DatabaseSchema, join: Join) -> str:
    """Return a join as a condition over all columns of its key."""
    pairs = zip(join.key.columns, join.key.target, strict=True)
    here, there = _named(schema, join.table), _named(schema, join.key.table)
    return " AND ".join(f"{here}.{quoted(own)} = {there}.{quoted(target)}" for own, target in pairs)


def _named(schema: DatabaseSchema, full_name: str) -> str:
    table = schema.table(full_name)
    return quoted(full_name) if table is None else quoted_table(table)
