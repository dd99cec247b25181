"""Conditions of a WHERE clause for values, names, numbers and times in a question."""

import re
from collections.abc import Iterator, Sequence

from kosmos_rag.engine.time_ranges import TimeRange
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.catalog.roles import is_measure, label_column
from kosmos_rag.text2sql.linking.known_values import known_texts, normalize_value
from kosmos_rag.text2sql.linking.words import question_words, stem, stem_name
from kosmos_rag.text2sql.records import ColumnRef, Entities, NumberBound, ValueFilter
from kosmos_rag.text2sql.sql.quoting import quote_identifier, quote_literal, quote_table

_DATE_TYPE = re.compile(r"date|timestamp", re.IGNORECASE)
"""Types that compare with a day; a year or a time of day does not."""
_TOKEN = re.compile(r"\w(?:[\w./-]*\w)?")
_MAX_COLUMNS = 2
"""Columns that one value is offered for; the question decides between them."""

_Pair = tuple[TableSchema, ColumnSchema]


def find_filters(
    schema: DatabaseSchema, columns: Sequence[ColumnRef], entities: Entities, *, question: str
) -> tuple[ValueFilter, ...]:
    """Return conditions for the values, names, numbers and times of a question.

    Args:
        schema: The schema of the question's database.
        columns: Ranked columns; of several columns with a value the first ones are taken.
        entities: Values and times of the question; the best column of dates gets the condition of a time.
        question: The question; a column that it names gets the condition of a number.
    """
    pairs = [
        (table, column)
        for full_name, name in columns
        if (table := schema.table(full_name)) is not None and (column := table.column(name)) is not None
    ]
    spellings = {value: text for text, value in entities.misspelt}
    filters = [
        condition
        for value in entities.values
        for condition in _value_filters(schema, columns, value, spellings.get(value))
    ]
    return (
        *filters,
        *_name_filters(pairs, entities),
        *_number_filters(pairs, entities.bounds, question),
        *_code_filters(pairs, entities, question),
        *_time_filters(pairs, entities.time_ranges, question),
    )


def _name_filters(pairs: Sequence[_Pair], entities: Entities) -> Iterator[ValueFilter]:
    """Yield a condition for each name that is no known value."""
    label = next(((table, column) for table, column in pairs if label_column(table) is column), None)
    if label is None or label[1].enum:
        return
    table, column = label
    names = (*entities.quoted, *(name for name in entities.names if name.islower()))
    for name in dict.fromkeys(names):
        padded = f" {normalize_value(name)} "
        if not any(f" {value} " in padded for value in entities.values):
            yield ValueFilter(
                table=table.full_name,
                column=column.name,
                text=name,
                value=name,
                match="unchecked",
                condition=f"{_qualify(table, column)} = {quote_literal(name)}",
            )


def _number_filters(pairs: Sequence[_Pair], bounds: Sequence[NumberBound], question: str) -> Iterator[ValueFilter]:
    """Yield the condition of each number, on the best column of numbers that the question names."""
    in_question = _find_in_question(pairs, question)
    numeric = ((table, column) for table, column in in_question if not column.type or is_measure(table, column))
    table, column = next(numeric, (None, None))
    if table is None or column is None:
        return
    for bound in bounds:
        yield ValueFilter(
            table=table.full_name,
            column=column.name,
            text=bound.text,
            value=bound.number,
            match="number",
            condition=f"{_qualify(table, column)} {bound.operator} {bound.number}",
        )


def _find_in_question(pairs: Sequence[_Pair], question: str) -> list[_Pair]:
    """Return the columns whose names have only words of the question."""
    stems = {stem(word) for word in question_words(question)}
    return [(table, column) for table, column in pairs if stems.issuperset(stem_name(column.name))]


def _code_filters(pairs: Sequence[_Pair], entities: Entities, question: str) -> Iterator[ValueFilter]:
    """Yield a condition for each number or code after the name of a column.

    `floor 1` and `error code E117` are such.
    """
    tokens = _TOKEN.findall(question)
    for at, value in enumerate(tokens):
        is_number = value.isdecimal()
        if not any(map(str.isdigit, value)) or (is_number and value not in entities.numbers):
            continue
        for table, column in pairs:
            name = stem_name(column.name)
            before = question_words(" ".join(tokens[max(at - len(name), 0) : at]))
            numeric = is_measure(table, column)
            if _DATE_TYPE.search(column.type) or tuple(map(stem, before)) != name or (numeric and not is_number):
                continue
            yield ValueFilter(
                table=table.full_name,
                column=column.name,
                text=value,
                value=value,
                match="number" if numeric else "unchecked",
                condition=f"{_qualify(table, column)} = {value if numeric else quote_literal(value)}",
            )
            break


def _qualify(table: TableSchema, column: ColumnSchema) -> str:
    return f"{quote_table(table)}.{quote_identifier(column.name)}"


def _time_filters(pairs: Sequence[_Pair], times: Sequence[TimeRange], question: str) -> Iterator[ValueFilter]:
    """Yield the condition of each time.

    It is on the best column of dates that the question names, else of the best column's table, else of all.
    """
    of_best_table = [pair for pair in pairs if pair[0] is pairs[0][0]]
    dates = [
        pair
        for pair in (*_find_in_question(pairs, question), *of_best_table, *pairs)
        if _DATE_TYPE.search(pair[1].type)
    ]
    if not dates:
        return
    table, column = dates[0]
    name = _qualify(table, column)
    for item in times:
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
                condition=f"{_qualify(table, column)} = {quote_literal(value)}",
            )
