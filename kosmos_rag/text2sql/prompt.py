"""Render a schema selection as a prompt block, and as JSON.

The block keeps to a token budget.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kosmos_rag.text2sql.catalog.joins import Join, JoinPlan
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.records import Ambiguity, ColumnRef, QueryExample, Recipe, ValueFilter
from kosmos_rag.text2sql.sql.quoting import join_condition, quote_identifier, quote_table

_MAX_COMMENT_CHARS = 80
_MAX_VALUES = 8
_MAX_PATHS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The parts of a schema for a prompt, most important first."""

    schema: DatabaseSchema
    tables: tuple[str, ...]
    """Full names, bridges of the joins included."""
    references: tuple[ColumnRef, ...]
    """The columns that the question supports; the tables' keys are always rendered."""
    columns: tuple[ColumnRef, ...] = ()
    """The columns that the SQL probably needs, most likely first, with the keys of joins."""
    plans: tuple[JoinPlan, ...] = ()
    further: tuple[Join, ...] = ()
    """Joins in addition to the plans, to a table that the question may need too."""
    filters: tuple[ValueFilter, ...] = ()
    ambiguities: tuple[Ambiguity, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    examples: tuple[QueryExample, ...] = ()

    @property
    def join_hints(self) -> tuple[str, ...]:
        """The hints of all paths, each once, the likeliest first; then those of further joins."""
        joins = (join for plan in self.plans for path in plan.paths for join in path.joins)
        return tuple(dict.fromkeys(join.hint for join in (*joins, *self.further)))


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptBlock:
    """A block of a prompt."""

    text: str
    tokens: int
    left_out: tuple[str, ...]
    """Tables that did not fit the budget."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """A line of the block."""

    key: tuple[str, str]
    """A later line of the same key is more detailed and replaces the earlier one."""
    text: str
    heading: str = ""
    tables: tuple[str, ...] = ()
    """Tables that the line refers to; without them it is left out."""


def prompt_block(selection: Selection, *, max_tokens: int, count: Callable[[str], int]) -> PromptBlock:
    """Render a selection within a token budget.

    Tables come first, each with its keys and the columns needed; then joins, filters, ambiguities, examples, recipes,
    and with the remaining budget the next likely columns, then all. A line that does not fit is left out.

    Args:
        count: Counts the tokens of a text.
    """
    included: dict[tuple[str, str], _Line] = {}
    for line in _lines_by_importance(selection):
        trial = {**included, line.key: line}
        if (
            all(("table", table) in included for table in line.tables)
            and count(_render(selection, trial)) <= max_tokens
        ):
            included = trial
    text = _render(selection, included)
    left_out = tuple(name for name in selection.tables if ("table", name) not in included)
    return PromptBlock(text=text, tokens=count(text) if text else 0, left_out=left_out)


def _lines_by_importance(selection: Selection) -> Iterator[_Line]:
    """Yield lines, the most important first."""
    schema = selection.schema
    tables = [table for name in selection.tables if (table := schema.table(name)) is not None]
    needed = {table.full_name: _needed_columns(table, set(selection.references)) for table in tables}
    for table in tables:
        yield _Line(key=("table", table.full_name), text=_table(table, needed[table.full_name]))
    for plan in selection.plans:
        yield from _joins(schema, plan)
    if selection.further:
        joins = _conditions(schema, selection.further)
        tables_of = tuple({table for join in selection.further for table in join.tables})
        yield _Line(key=("join", "further"), heading="Joins:", text=f"if needed {joins}", tables=tables_of)
    for item in selection.filters:
        yield _Line(
            key=("filter", item.condition),
            heading="Filters:",
            text=item.condition + _filter_comment(item),
            tables=(item.table,),
        )
    for table in tables:
        if table.comment:
            yield _Line(key=("table", table.full_name), text=_table(table, needed[table.full_name]) + _comment(table))
    for ambiguity in selection.ambiguities:
        heading = "Settled:" if ambiguity.settled else "To settle:"
        yield _Line(key=("open", ambiguity.text), heading=heading, text=ambiguity.text)
    yield from _experience(selection)
    likely = {*selection.references, *selection.columns}
    for table in tables:
        yield _Line(
            key=("table", table.full_name), text=_table(table, _needed_columns(table, likely)) + _comment(table)
        )
    for table in tables:
        yield _Line(key=("table", table.full_name), text=_table(table, table.columns) + _comment(table))


def _experience(selection: Selection) -> Iterator[_Line]:
    """Yield accepted queries and recipes."""
    for example in selection.examples:
        text = f"{example.question} {' '.join(example.sql.split())}"
        yield _Line(key=("example", example.id), heading="Accepted queries for similar questions:", text=text)
    ambiguity_texts = {ambiguity.text for ambiguity in selection.ambiguities}
    for recipe in selection.recipes:
        note = f" {recipe.note}" if recipe.note and recipe.note not in ambiguity_texts else ""
        negative = f" It is not {', nor '.join(recipe.not_for)}." if recipe.not_for else ""
        text = f"{recipe.title}: {recipe.text}{note}{negative}"
        yield _Line(key=("recipe", recipe.slug), heading="Recipes:", text=text)


def _joins(schema: DatabaseSchema, plan: JoinPlan) -> Iterator[_Line]:
    for number, path in enumerate(plan.paths[:_MAX_PATHS]):
        if path.joins:
            joins = _conditions(schema, path.joins)
            yield _Line(
                key=("join", f"{plan.tables[0]} {number}"),
                heading="Joins:",
                text=joins if number == 0 else f"or {joins}",
                tables=tuple({table for join in path.joins for table in join.tables}),
            )
    for join in plan.self_joins:
        itself = f"{join.table} with itself: {join.hint}"
        yield _Line(key=("join", join.hint), heading="Joins:", text=itself, tables=(join.table,))


def _conditions(schema: DatabaseSchema, joins: Sequence[Join]) -> str:
    """Return the condition of joins, with a comment where a key is a guess."""
    condition = " AND ".join(join_condition(schema, join) for join in joins)
    return f"{condition} -- guessed by names" if any(join.key.guessed for join in joins) else condition


def _render(selection: Selection, included: dict[tuple[str, str], _Line]) -> str:
    """Render lines by kind, each kind under its heading."""
    if not included:
        return ""
    dialect = f" ({selection.schema.dialect})" if selection.schema.dialect else ""
    lines = [f"Database {selection.schema.name}{dialect}"]
    heading = ""
    for line in included.values():
        if line.heading != heading:
            heading = line.heading
            lines.append(heading)
        lines.append(line.text)
    return "\n".join(lines)


def _needed_columns(table: TableSchema, needed: set[ColumnRef]) -> Sequence[ColumnSchema]:
    return [
        column
        for column in table.columns
        if (table.full_name, column.name) in needed or column.name in table.key_columns
    ]


def _table(table: TableSchema, columns: Sequence[ColumnSchema]) -> str:
    more = "" if len(columns) == len(table.columns) else ", …"
    return f"{quote_table(table)}({', '.join(_column(table, column) for column in columns)}{more})"


def _column(table: TableSchema, column: ColumnSchema) -> str:
    parts = [quote_identifier(column.name), column.type]
    if column.name in table.primary_key:
        parts.append("PK")
    keys = (key for key in table.foreign_keys if key.columns == (column.name,))
    parts += [f"-> {key.table}.{key.target[0]}{' (guess)' if key.guessed else ''}" for key in keys]
    meanings = dict(column.labels)
    if allowed := column.enum or tuple(meanings):
        values = (f"{value!r}={meanings[value]}" if value in meanings else repr(value) for value in allowed)
        parts.append("|".join([*islice(values, _MAX_VALUES), *(["…"] if len(allowed) > _MAX_VALUES else [])]))
    return " ".join(part for part in parts if part)


def _filter_comment(item: ValueFilter) -> str:
    """Return what the question says, where the condition is read into it."""
    if item.match == "exact":
        return ""
    remark = {"range": ", days in UTC", "unchecked": ", not looked up"}.get(item.match, "")
    return f" -- {' '.join(item.text.split())}{remark}"


def _comment(table: TableSchema) -> str:
    flat = " ".join((table.comment or "").split())
    if len(flat) > _MAX_COMMENT_CHARS:
        flat = f"{flat[:_MAX_COMMENT_CHARS].rsplit(' ', 1)[0]}…"
    return f" -- {flat}" if flat else ""


def selection_as_json(selection: Selection) -> dict[str, Any]:
    """Return tables, columns and joins of a selection as JSON values."""
    tables = [table for name in selection.tables if (table := selection.schema.table(name)) is not None]
    return {
        "database": selection.schema.name,
        "dialect": selection.schema.dialect,
        "tables": [{"table": table.full_name, "model": table.model, "comment": table.comment} for table in tables],
        "columns": [{"table": table, "column": column} for table, column in selection.columns],
        "joins": [_plan(selection.schema, plan) for plan in selection.plans],
        "further_joins": [join.hint for join in selection.further],
    }


def _plan(schema: DatabaseSchema, plan: JoinPlan) -> dict[str, Any]:
    return {
        "tables": list(plan.tables),
        "paths": [
            {
                "hints": [join.hint for join in path.joins],
                "conditions": [join_condition(schema, join) for join in path.joins],
                "bridges": list(path.bridges),
                "guessed": any(join.key.guessed for join in path.joins),
            }
            for path in plan.paths
        ],
        "more": plan.more,
        "self_joins": [join.hint for join in plan.self_joins],
    }
