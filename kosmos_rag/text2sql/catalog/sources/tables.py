"""Tables of SQLAlchemy, declared or reflected, as records."""

import re
from typing import TYPE_CHECKING, Any

from kosmos_rag.text2sql.catalog.model import ColumnSchema, ForeignKey, TableSchema

if TYPE_CHECKING:
    from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, Table
    from sqlalchemy.engine import Dialect

# status IN ('a', 'b'), and what PostgreSQL makes of it: status::text = ANY (ARRAY['a'::text, 'b'::text]).
_ONE_OF = re.compile(r"^\(*\s*[\"`\[]?([^\"`\]\s():]+)[\"`\]]?\)*(?:::[\w ]+)*\)*\s*(?:IN|= ANY)\s*\(", re.IGNORECASE)
_TEXT = re.compile(r"'((?:[^']|'')*)'")
_JOINED = re.compile(r"\b(?:and|or|not)\b", re.IGNORECASE)


def table_record(table: "Table", dialect: "Dialect", **model: Any) -> TableSchema:
    """Return a table as a record; `model` is what is known of the class that is mapped to it."""
    allowed = _allowed(table)
    return TableSchema(
        name=str(table.name),
        schema=table.schema,
        comment=table.comment or None,
        columns=tuple(_column(column, dialect, allowed.get(column.name, ())) for column in table.columns),
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
    written = getattr(column.server_default, "arg", None)
    return None if written is None else str(written)


def _foreign_keys(table: "Table") -> tuple[ForeignKey, ...]:
    keys = [_foreign_key(constraint) for constraint in table.foreign_key_constraints]
    return tuple(sorted(keys, key=lambda key: (key.columns, key.table)))  # SQLAlchemy keeps them as a set


def _foreign_key(constraint: "ForeignKeyConstraint") -> ForeignKey:
    from sqlalchemy.exc import NoReferencedTableError

    try:
        targets = [element.column for element in constraint.elements]
    except NoReferencedTableError:  # it was not read: the name is all there is
        written = [element.target_fullname.rpartition(".") for element in constraint.elements]
        table, names = written[0][0], [name for _, _, name in written]
    else:
        table, names = targets[0].table.fullname, [column.name for column in targets]
    return ForeignKey(columns=tuple(constraint.column_keys), table=table, target=tuple(names))


def _unique(table: "Table") -> tuple[tuple[str, ...], ...]:
    from sqlalchemy import UniqueConstraint

    keys = {tuple(c.name for c in item.columns) for item in table.constraints if isinstance(item, UniqueConstraint)}
    keys |= {tuple(c.name for c in index.columns) for index in table.indexes if index.unique and _whole(index)}
    return tuple(sorted(key for key in keys if key))


def _whole(index: Any) -> bool:
    """Whether a unique index is over all rows, and over columns alone: another one identifies nothing."""
    partial = any(option.get("where") is not None for option in index.dialect_options.values())
    return not partial and len(index.columns) == len(index.expressions)


def _allowed(table: "Table") -> dict[str, tuple[str, ...]]:
    """Return the values that checks allow, by column."""
    from sqlalchemy import CheckConstraint

    checks = (constraint for constraint in table.constraints if isinstance(constraint, CheckConstraint))
    return dict(filter(None, (_values(check) for check in checks)))


def _values(check: "CheckConstraint") -> tuple[str, tuple[str, ...]] | None:
    text = str(check.sqltext)
    named = _ONE_OF.match(text)
    if not named or _JOINED.search(_TEXT.sub("", text)):
        return None
    values = [value.replace("''", "'") for value in _TEXT.findall(text)]
    return named[1].rpartition(".")[2], tuple(dict.fromkeys(values))
