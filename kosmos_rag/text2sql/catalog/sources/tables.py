"""Convert SQLAlchemy tables, declared or reflected, to records."""

import re
from typing import TYPE_CHECKING, Any

from kosmos_rag.text2sql.catalog.model import ColumnSchema, ForeignKey, TableSchema

if TYPE_CHECKING:
    from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, Table
    from sqlalchemy.engine import Dialect

# status IN ('a', 'b'), and what PostgreSQL makes of it: status::text = ANY (ARRAY['a'::text, 'b'::text]).
_IN_LIST = re.compile(r"^\(*\s*[\"`\[]?([^\"`\]\s():]+)[\"`\]]?\)*(?:::[\w ]+)*\)*\s*(?:IN|= ANY)\s*\(", re.IGNORECASE)
_TEXT = re.compile(r"'((?:[^']|'')*)'")
_BOOLEAN = re.compile(r"\b(?:and|or|not)\b", re.IGNORECASE)


def table_record(table: "Table", dialect: "Dialect", **model: Any) -> TableSchema:
    """Convert a table; `model` holds fields of its mapped class."""
    check_values = _check_values(table)
    return TableSchema(
        name=str(table.name),
        schema=table.schema,
        comment=table.comment or None,
        columns=tuple(_column(column, dialect, check_values.get(column.name, ())) for column in table.columns),
        primary_key=tuple(column.name for column in table.primary_key.columns),
        foreign_keys=_foreign_keys(table),
        unique=_unique(table),
        **model,
    )


def _column(column: "Column[Any]", dialect: "Dialect", allowed: tuple[str, ...]) -> ColumnSchema:
    return ColumnSchema(
        name=str(column.name),
        type=_type(column, dialect),
        nullable=bool(column.nullable),
        default=_default(column),
        comment=column.comment or None,
        enum=tuple(str(value) for value in getattr(column.type, "enums", ())) or allowed,
    )


def _type(column: "Column[Any]", dialect: "Dialect") -> str:
    from sqlalchemy.exc import CompileError

    try:
        return column.type.compile(dialect)
    except CompileError:  # a type that the driver does not know, or one of another dialect
        return "" if type(column.type).__name__ == "NullType" else type(column.type).__name__.upper()


def _default(column: "Column[Any]") -> str | None:
    expression = getattr(column.server_default, "arg", None)
    return None if expression is None else str(expression)


def _foreign_keys(table: "Table") -> tuple[ForeignKey, ...]:
    keys = [_foreign_key(constraint) for constraint in table.foreign_key_constraints]
    return tuple(sorted(keys, key=lambda key: (key.columns, key.table)))  # SQLAlchemy keeps them as a set


def _foreign_key(constraint: "ForeignKeyConstraint") -> ForeignKey:
    from sqlalchemy.exc import NoReferencedTableError

    try:
        targets = [element.column for element in constraint.elements]
    except NoReferencedTableError:  # it was not read: the name is all there is
        references = [element.target_fullname.rpartition(".") for element in constraint.elements]
        table, names = references[0][0], [name for _, _, name in references]
    else:
        table, names = targets[0].table.fullname, [column.name for column in targets]
    return ForeignKey(columns=tuple(constraint.column_keys), table=table, target=tuple(names))


def _unique(table: "Table") -> tuple[tuple[str, ...], ...]:
    from sqlalchemy import UniqueConstraint

    keys = {tuple(c.name for c in item.columns) for item in table.constraints if isinstance(item, UniqueConstraint)}
    keys |= {
        tuple(c.name for c in index.columns) for index in table.indexes if index.unique and _covers_all_rows(index)
    }
    return tuple(sorted(key for key in keys if key))


def _covers_all_rows(index: Any) -> bool:
    """Return whether a unique index covers all rows, by columns alone.

    A partial or expression index does not identify rows.
    """
    partial = any(option.get("where") is not None for option in index.dialect_options.values())
    return not partial and len(index.columns) == len(index.expressions)


def _check_values(table: "Table") -> dict[str, tuple[str, ...]]:
    """Return the allowed values of check constraints, by column."""
    from sqlalchemy import CheckConstraint

    checks = (constraint for constraint in table.constraints if isinstance(constraint, CheckConstraint))
    return dict(filter(None, (_values(check) for check in checks)))


def _values(check: "CheckConstraint") -> tuple[str, tuple[str, ...]] | None:
    text = str(check.sqltext)
    match = _IN_LIST.match(text)
    if not match or _BOOLEAN.search(_TEXT.sub("", text)):
        return None
    values = [value.replace("''", "'") for value in _TEXT.findall(text)]
    return match[1].rpartition(".")[2], tuple(dict.fromkeys(values))
