"""Roles of columns by type and name: measures, times, statuses, labels."""

import re

from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.naming import humanize

_NUMBER = re.compile(r"int|num|dec|float|double|real|money|serial", re.IGNORECASE)
_TEMPORAL = re.compile(r"date|time(?!zone)|year$", re.IGNORECASE)
_TEMPORAL_NAME = re.compile(r"(?:^|[ _])(?:date|time|timestamp|year|at|on)$", re.IGNORECASE)
_STATUS_NAME = re.compile(r"(?:^|[ _])(?:status|state|phase|stage|outcome)$", re.IGNORECASE)
_LABELS = (
    *("name", "title", "label", "full name", "display name"),
    *("bezeichnung", "titel", "nombre", "titulo", "nom", "titre"),
    *("code", "slug"),
)


def is_measure(table: TableSchema, column: ColumnSchema) -> bool:
    """Return whether a column is a numeric measure."""
    return bool(_NUMBER.search(column.type)) and column.name not in table.key_columns and not is_temporal(column)


def is_temporal(column: ColumnSchema) -> bool:
    """Return whether a column holds dates or times."""
    if column.type:
        return bool(_TEMPORAL.search(column.type)) or (humanize(column.name).endswith("year") and not column.enum)
    return bool(_TEMPORAL_NAME.search(column.name))


def is_status(column: ColumnSchema) -> bool:
    """Return whether a column holds a status."""
    return bool(_STATUS_NAME.search(humanize(column.name)))


def label_column(table: TableSchema) -> ColumnSchema | None:
    """Return the column that labels a row: `name`, `title` or similar."""
    by_name = {humanize(column.name): column for column in table.columns if column.name not in table.key_columns}
    for label in _LABELS:
        if label in by_name:
            return by_name[label]
    suffixed = (column for name, column in by_name.items() if name.endswith((" name", " title")))
    return next(suffixed, None)


def foreign_keys_with_targets(schema: DatabaseSchema, table: TableSchema) -> list[tuple[ForeignKey, TableSchema]]:
    """Return the foreign keys to other tables of the schema, with these."""
    pairs = ((key, schema.table(key.table)) for key in table.foreign_keys)
    return [(key, target) for key, target in pairs if target is not None and target.full_name != table.full_name]


def variant_keys(schema: DatabaseSchema, table: TableSchema) -> list[tuple[ForeignKey, ForeignKey]]:
    """Return pairs of foreign keys (base, variant).

    A row of the base itself has null in the variant's columns. This is the case if a table references two others, one
    of which references the other, and that key may be null.
    """
    keys = foreign_keys_with_targets(schema, table)
    return [
        (base, variant)
        for base, parent in keys
        for variant, target in keys
        if target.full_name != parent.full_name
        and any(key.table == parent.full_name for key in target.foreign_keys)
        and all((column := table.column(name)) is not None and column.nullable for name in variant.columns)
    ]
