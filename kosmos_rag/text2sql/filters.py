"""Conditions of a WHERE clause for the values that a question says."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.sql.analyze import ColumnRef
from kosmos_rag.text2sql.sql.quoting import quote_identifier, quote_literal, quote_table

_MAX_COLUMNS = 2
"""Columns that one value is offered for; the question decides between them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueFilter:
    """A condition on one column."""

    table: str
    """Full name."""
    column: str
    text: str
    """What the question says."""
    value: str
    """The value as the database writes it."""
    match: Literal["exact"]
    condition: str
    """In SQL: `programs.name = 'forest fire'`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the filter as values for JSON."""
        return asdict(self)


def find_filters(
    schema: DatabaseSchema, columns: Sequence[ColumnRef], values: Sequence[str]
) -> tuple[ValueFilter, ...]:
    """Return conditions for the known values of a question.

    Args:
        schema: The schema of the question's database.
        columns: Ranked columns; of several columns with a value the first ones are taken.
        values: Values that the question says, in lower case.
    """
    return tuple(found for value in values for found in _value_filters(schema, columns, value))


def _value_filters(schema: DatabaseSchema, columns: Sequence[ColumnRef], text: str) -> Iterator[ValueFilter]:
    offered = 0
    for name, column_name in columns:
        table = schema.table(name)
        column = table.column(column_name) if table else None
        if table is None or column is None or offered == _MAX_COLUMNS:
            continue
        value = next((value for value in (*column.enum, *column.samples) if value.lower() == text), None)
        if value is not None:
            offered += 1
            yield ValueFilter(
                table=table.full_name,
                column=column.name,
                text=text,
                value=value,
                match="exact",
                condition=f"{quote_table(table)}.{quote_identifier(column.name)} = {quote_literal(value)}",
            )
