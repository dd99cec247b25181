"""Conditions of a WHERE clause for values and times in a question."""

import re
from collections.abc import Iterator, Sequence

from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.linking.known_values import known_texts
from kosmos_rag.text2sql.records import ColumnRef, Entities, TimeRange, ValueFilter
from kosmos_rag.text2sql.sql.quoting import quote_identifier, quote_literal, quote_table

_DATE_TYPE = re.compile(r"date|timestamp", re.IGNORECASE)
"""Types that compare with a day; a year or a time of day does not."""
_MAX_COLUMNS = 2
"""Columns that one value is offered for; the question decides between them."""


def find_filters(schema: DatabaseSchema, columns: Sequence[ColumnRef], entities: Entities) -> tuple[ValueFilter, ...]:
    """Return conditions for the known values and the times of a question.

    Args:
        schema: The schema of the question's database.
        columns: Ranked columns; of several columns with a value the first ones are taken.
        entities: Values and times of the question; the best column of dates gets the condition of a time.
    """
    spellings = {value: text for text, value in entities.misspelt}
    filters = [
        condition
        for value in entities.values
        for condition in _value_filters(schema, columns, value, spellings.get(value))
    ]
    return (*filters, *_time_filters(schema, columns, entities.time_ranges))


def _time_filters(
    schema: DatabaseSchema, columns: Sequence[ColumnRef], times: Sequence[TimeRange]
) -> Iterator[ValueFilter]:
    pairs = ((table, table.column(name)) for full, name in columns if (table := schema.table(full)) is not None)
    date_column = next(((table, column) for table, column in pairs if column and _DATE_TYPE.search(column.type)), None)
    if date_column is None:
        return
    table, column = date_column
    for item in times:
        name = f"{quote_table(table)}.{quote_identifier(column.name)}"
        sides = [
            f"{name} {operator} {quote_literal(day.isoformat())}"
            for operator, day in ((">=", item.start), ("<", item.end))
            if day is not None
        ]
        yield ValueFilter(
            table=table.full_name,
            column=column.name,
            text=item.text,
            value=f"{item.start or '..'}/{item.end or '..'}",
            match="range",
            condition=" AND ".join(sides),
        )


def _value_filters(
    schema: DatabaseSchema, columns: Sequence[ColumnRef], normalized: str, misspelt: str | None
) -> Iterator[ValueFilter]:
    count = 0
    for name, column_name in columns:
        table = schema.table(name)
        column = table.column(column_name) if table else None
        if table is None or column is None or count == _MAX_COLUMNS:
            continue
        value = known_texts(column).get(normalized)
        if value is not None:
            count += 1
            yield ValueFilter(
                table=table.full_name,
                column=column.name,
                text=misspelt or normalized,
                value=value,
                match="fuzzy" if misspelt else "exact",
                condition=f"{quote_table(table)}.{quote_identifier(column.name)} = {quote_literal(value)}",
            )
