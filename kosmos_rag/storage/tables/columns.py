"""Columns and references that the tables share."""

from typing import Any

from sqlalchemy import Column, DateTime, ForeignKeyConstraint, MetaData, Text, Uuid
from sqlalchemy.types import TypeEngine

from kosmos_rag.storage.migrate import SCHEMA

metadata = MetaData(schema=SCHEMA)
"""The tables of all modules in this package."""


def column(name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], *, null: bool = False) -> Column[Any]:
    """Return a column, not null by default."""
    return Column(name, kind, nullable=null)


def tenant_id() -> Column[Any]:
    """Return the column that every key begins with."""
    return column("tenant_id", Uuid)


def collection(*, null: bool = False) -> Column[Any]:
    """Return the column of a collection's name, compared by bytes."""
    return column("collection", Text(collation="C"), null=null)


def time(name: str, *, null: bool = False) -> Column[Any]:
    """Return a column of points in time."""
    return column(name, DateTime(timezone=True), null=null)


def references(column: str, table: str, *, on_delete: str | None = "CASCADE") -> ForeignKeyConstraint:
    """Return a foreign key that includes the tenant.

    So no row can point into another tenant.

    Args:
        table: the referenced table, in the schema kosmos.
        on_delete: action of the referential constraint; None for no action.
    """
    return ForeignKeyConstraint(
        ["tenant_id", column], [f"{SCHEMA}.{table}.tenant_id", f"{SCHEMA}.{table}.id"], ondelete=on_delete
    )


def tenant_key() -> ForeignKeyConstraint:
    """Return the foreign key to the tenant; its deletion deletes the rows."""
    return ForeignKeyConstraint(["tenant_id"], [f"{SCHEMA}.tenants.tenant_id"], ondelete="CASCADE")
