"""What columns are for, by their types and names: measures, moments, states, the name of a row."""

import re

from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.naming import spoken

_NUMBER = re.compile(r"int|num|dec|float|double|real|money|serial", re.IGNORECASE)
_MOMENT = re.compile(r"date|time(?!zone)|year$", re.IGNORECASE)
_MOMENT_NAME = re.compile(r"(?:^|[ _])(?:date|time|timestamp|year|at|on)$", re.IGNORECASE)
_STATE_NAME = re.compile(r"(?:^|[ _])(?:status|state|phase|stage|outcome)$", re.IGNORECASE)
_LABELS = ("name", "title", "label", "full name", "display name", "code", "slug")


def is_measure(table: TableSchema, column: ColumnSchema) -> bool:
    """Whether a column holds numbers that can be summed or averaged: no key, no moment."""
    return bool(_NUMBER.search(column.type)) and column.name not in table.key_columns and not is_moment(column)


def is_moment(column: ColumnSchema) -> bool:
    """Whether a column holds dates or times."""
    if column.type:
        return bool(_MOMENT.search(column.type)) or (spoken(column.name).endswith("year") and not column.enum)
    return bool(_MOMENT_NAME.search(column.name))


def is_state(column: ColumnSchema) -> bool:
    """Whether a column says in which state a row is."""
    return bool(_STATE_NAME.search(spoken(column.name)))


def label_of(table: TableSchema) -> ColumnSchema | None:
    """Return the column by which people name a row: `name`, `title`, or the one that ends so."""
    said = {spoken(column.name): column for column in table.columns if column.name not in table.key_columns}
    for label in _LABELS:
        if label in said:
            return said[label]
    ending = (column for name, column in said.items() if name.endswith((" name", " title")))
    return next(ending, None)


def referenced(schema: DatabaseSchema, table: TableSchema) -> list[tuple[ForeignKey, TableSchema]]:
    """Return the keys of a table to other tables that the schema has, with those."""
    found = ((key, schema.table(key.table)) for key in table.foreign_keys)
    return [(key, target) for key, target in found if target is not None and target.full_name != table.full_name]


def variant_keys(schema: DatabaseSchema, table: TableSchema) -> list[tuple[ForeignKey, ForeignKey]]:
    """Return pairs of keys (base, variant): rows of the base as a whole have null in the variant's.

    That is where a table refers to two others, one of them refers to the other, and that key may be null.
    """
    keys = referenced(schema, table)
    return [
        (base, variant)
        for base, parent in keys
        for variant, target in keys
        if target.full_name != parent.full_name
        and any(key.table == parent.full_name for key in target.foreign_keys)
        and all((column := table.column(name)) is not None and column.nullable for name in variant.columns)
    ]
