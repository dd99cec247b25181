"""What was chosen of a schema as a block of a prompt, within a budget of tokens, and as JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kosmos_rag.text2sql.ambiguity import Ambiguity
from kosmos_rag.text2sql.catalog.joins import Join, JoinPlan
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.recipes import Recipe
from kosmos_rag.text2sql.sql.analyze import ColumnRef
from kosmos_rag.text2sql.sql.quoting import condition, quoted, quoted_table

_LONGEST_COMMENT = 80
_VALUES_SHOWN = 8
_PATHS_SHOWN = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What a prompt is made of, each list with the most important first."""

    schema: DatabaseSchema
    tables: tuple[str, ...]
    """Full names, bridges of the joins included."""
    columns: tuple[ColumnRef, ...]
    """The columns that the question needs; keys of the tables are shown without being here."""
    plans: tuple[JoinPlan, ...] = ()
    further: tuple[Join, ...] = ()
    """Joins beside those of the plans, to a table that may be needed as well."""
    ambiguities: tuple[Ambiguity, ...] = ()
    recipes: tuple[Recipe, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptBlock:
    """A block of a prompt."""

    text: str
    tokens: int
    left_out: tuple[str, ...]
    """Tables that the budget had no room for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """A line of the block."""

    key: tuple[str, str]
    """A later line of the same key says more than the one before, and takes its place."""
    text: str
    heading: str = ""
    tables: tuple[str, ...] = ()
    """Tables without which the line says nothing."""


def prompt_block(selection: Selection, *, max_tokens: int, count: Callable[[str], int]) -> PromptBlock:
    """Render a selection in at most `max_tokens`, counted by `count`.

    Tables come first, each with its keys and the columns needed; then joins, what is open, recipes, and with what is
    left the other columns of the tables. What does not fit whole is left out.
    """
    kept: dict[tuple[str, str], _Line] = {}
    for line in _by_importance(selection):
        trial = {**kept, line.key: line}
        if all(("table", table) in kept for table in line.tables) and count(_written(selection, trial)) <= max_tokens:
            kept = trial
    text = _written(selection, kept)
    left_out = tuple(name for name in selection.tables if ("table", name) not in kept)
    return PromptBlock(text=text, tokens=count(text) if text else 0, left_out=left_out)


def _by_importance(selection: Selection) -> Iterator[_Line]:
    """Give lines, the most important first."""
    schema = selection.schema
    tables = [table for name in selection.tables if (table := schema.table(name)) is not None]
    needed = {table.full_name: _needed(table, set(selection.columns)) for table in tables}
    for table in tables:
        yield _Line(key=("table", table.full_name), text=_table(table, needed[table.full_name]))
    for plan in selection.plans:
        yield from _joins(schema, plan)
    if selection.further:
        joins = " AND ".join(condition(schema, join) for join in selection.further)
        tables_of = tuple({table for join in selection.further for table in join.tables})
        yield _Line(key=("join", "further"), heading="Joins:", text=f"if needed {joins}", tables=tables_of)
    for table in tables:
        if table.comment:
            yield _Line(key=("table", table.full_name), text=_table(table, needed[table.full_name]) + _comment(table))
    for ambiguity in selection.ambiguities:
        yield _Line(key=("open", ambiguity.text), heading="To settle:", text=ambiguity.text)
    for recipe in selection.recipes:
        note = f" {recipe.note}" if recipe.note else ""
        yield _Line(key=("recipe", recipe.slug), heading="Recipes:", text=f"{recipe.title}: {recipe.text}{note}")
    for table in tables:
        yield _Line(key=("table", table.full_name), text=_table(table, table.columns) + _comment(table))


def _joins(schema: DatabaseSchema, plan: JoinPlan) -> Iterator[_Line]:
    for way, path in enumerate(plan.paths[:_PATHS_SHOWN]):
        if path.joins:
            joins = " AND ".join(condition(schema, join) for join in path.joins)
            yield _Line(
                key=("join", f"{plan.tables[0]} {way}"),
                heading="Joins:",
                text=joins if way == 0 else f"or {joins}",
                tables=tuple({table for join in path.joins for table in join.tables}),
            )
    for join in plan.self_joins:
        itself = f"{join.table} with itself: {join.hint}"
        yield _Line(key=("join", join.hint), heading="Joins:", text=itself, tables=(join.table,))


def _written(selection: Selection, kept: dict[tuple[str, str], _Line]) -> str:
    """Write lines in the order of their kinds, each kind under its heading."""
    if not kept:
        return ""
    dialect = f" ({selection.schema.dialect})" if selection.schema.dialect else ""
    lines = [f"Database {selection.schema.name}{dialect}"]
    heading = ""
    for line in kept.values():
        if line.heading != heading:
            heading = line.heading
            lines.append(heading)
        lines.append(line.text)
    return "\n".join(lines)


def _needed(table: TableSchema, needed: set[ColumnRef]) -> Sequence[ColumnSchema]:
    return [
        column
        for column in table.columns
        if (table.full_name, column.name) in needed or column.name in table.key_columns
    ]


def _table(table: TableSchema, columns: Sequence[ColumnSchema]) -> str:
    more = "" if len(columns) == len(table.columns) else ", …"
    return f"{quoted_table(table)}({', '.join(_column(table, column) for column in columns)}{more})"


def _column(table: TableSchema, column: ColumnSchema) -> str:
    parts = [quoted(column.name), column.type]
    if column.name in table.primary_key:
        parts.append("PK")
    keys = (key for key in table.foreign_keys if key.columns == (column.name,))
    parts += [f"-> {key.table}.{key.target[0]}" for key in keys]
    if column.enum:
        more = "|…" if len(column.enum) > _VALUES_SHOWN else ""
        parts.append(f"{'|'.join(repr(value) for value in column.enum[:_VALUES_SHOWN])}{more}")
    return " ".join(part for part in parts if part)


def _comment(table: TableSchema) -> str:
    flat = " ".join((table.comment or "").split())
    if len(flat) > _LONGEST_COMMENT:
        flat = f"{flat[:_LONGEST_COMMENT].rsplit(' ', 1)[0]}…"
    return f" -- {flat}" if flat else ""


def as_json(selection: Selection) -> dict[str, Any]:
    """Return a selection as values of JSON: references, join paths, what is open, recipes."""
    tables = [table for name in selection.tables if (table := selection.schema.table(name)) is not None]
    return {
        "database": selection.schema.name,
        "dialect": selection.schema.dialect,
        "tables": [{"table": table.full_name, "model": table.model, "comment": table.comment} for table in tables],
        "columns": [{"table": table, "column": column} for table, column in selection.columns],
        "joins": [_plan(selection.schema, plan) for plan in selection.plans],
        "further_joins": [join.hint for join in selection.further],
        "ambiguities": [
            {"kind": found.kind, "about": list(found.about), "text": found.text} for found in selection.ambiguities
        ],
        "recipes": [
            {"slug": recipe.slug, "title": recipe.title, "text": recipe.text, "note": recipe.note, "sql": recipe.sql}
            for recipe in selection.recipes
        ],
    }


def _plan(schema: DatabaseSchema, plan: JoinPlan) -> dict[str, Any]:
    return {
        "tables": list(plan.tables),
        "paths": [
            {
                "hints": [join.hint for join in path.joins],
                "conditions": [condition(schema, join) for join in path.joins],
                "bridges": list(path.bridges),
            }
            for path in plan.paths
        ],
        "more": plan.more,
        "self_joins": [join.hint for join in plan.self_joins],
    }
