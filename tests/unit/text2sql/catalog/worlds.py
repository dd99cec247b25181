"""Short ways to write schemas."""

from pathlib import Path
from typing import Any

from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema

EXAMPLE = Path(__file__).parents[4] / "examples" / "schema"


def table(name: str, *columns: str, keys: dict[str, str] | None = None, **fields: Any) -> TableSchema:
    """A table with `id` and columns, `name type`; `keys` maps columns, by commas, to `table.column, …`."""
    partitions = [column.partition(" ") for column in ("id integer", *columns)]
    return TableSchema(
        name=name,
        columns=tuple(ColumnSchema(name=column, type=kind or "text") for column, _, kind in partitions),
        primary_key=("id",),
        foreign_keys=tuple(_key(key_columns, target) for key_columns, target in (keys or {}).items()),
        **fields,
    )


def _key(key_columns: str, target: str) -> ForeignKey:
    parts = [part.strip().rpartition(".") for part in target.split(",")]
    columns = tuple(column.strip() for column in key_columns.split(","))
    return ForeignKey(columns=columns, table=parts[0][0], target=tuple(part[2] for part in parts))


def database(*tables: TableSchema, dialect: str = "postgresql") -> DatabaseSchema:
    """A database of tables."""
    return DatabaseSchema(name="shop", dialect=dialect, tables=tables)
