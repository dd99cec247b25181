"""Recipes: how questions of a common shape are answered, from templates over keys, or written by hand in YAML."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.config.loading import read_yaml
from kosmos_rag.core.config.values import Section
from kosmos_rag.core.errors import SchemaInvalid
from kosmos_rag.text2sql.catalog.joins import Join
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.naming import plural, singular, spoken
from kosmos_rag.text2sql.catalog.roles import is_measure, is_moment, is_state, label_of, referenced, variant_keys
from kosmos_rag.text2sql.sql.analyze import ColumnRef

Pattern = Literal["aggregation", "temporal", "status", "relationship"]

MEASURES_OF_A_KEY = 12
"""Measures of a table that get a recipe for each key; a table of 2,000 columns would drown the others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How questions of one shape are answered."""

    slug: str
    """Unique among all recipes of a collection; the id of its document is `query_recipe:` and this."""
    title: str
    """The question's shape: `success count for program name`."""
    text: str
    pattern: Pattern
    tables: tuple[str, ...]
    columns: tuple[ColumnRef, ...]
    join_hints: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    note: str | None = None
    """What is to be decided before it is used."""
    curated: bool = False
    """Whether it was written by hand."""
    sql: str | None = None


def slug_of(*parts: str) -> str:
    """Return text as a slug: lower case, hyphens; where that loses something, a hash of the text keeps slugs apart."""
    text = " ".join(parts)
    slug = re.sub(r"[^a-z0-9_.]+", "-", text.lower()).strip("-")
    if slug == text.replace(" ", "-"):
        return slug
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{slug}-{mark}" if slug else mark


def template_recipes(schema: DatabaseSchema) -> list[Recipe]:
    """Return recipes that follow from the keys, measures, moments and states of a schema, in its order."""
    recipes: dict[str, Recipe] = {}
    for table in schema.tables:
        for recipe in _of_table(schema, table):
            recipes.setdefault(recipe.slug, recipe)
    return list(recipes.values())


def _of_table(schema: DatabaseSchema, table: TableSchema) -> Iterator[Recipe]:
    moment = next((column for column in table.columns if is_moment(column)), None)
    state = next((column for column in table.columns if is_state(column)), None)
    if state:
        yield _status(schema, table, state)
    if moment:
        yield _latest(schema, table, moment)
    for key, parent in referenced(schema, table):
        label = label_of(parent)
        yield _related(schema, table, key, parent, label)
        if label:
            measures = [column for column in table.columns if is_measure(table, column)]
            for measure in measures[:MEASURES_OF_A_KEY]:
                yield _measure(schema, table, key, parent, label, measure)


def _rows(table: TableSchema) -> str:
    words = spoken(table.name).split()
    return " ".join([*words[:-1], plural(singular(words[-1]))])


def _row(table: TableSchema) -> str:
    words = spoken(table.name).split()
    return " ".join([*words[:-1], singular(words[-1])])


def _join(table: TableSchema, key: ForeignKey) -> tuple[str, str]:
    """Return a join as a sentence and as a hint."""
    join = Join(table=table.full_name, key=key)
    pairs = zip(key.target, key.columns, strict=True)
    equal = " and ".join(f"{key.table}.{target} = {table.full_name}.{own}" for target, own in pairs)
    return f"Join {key.table} to {table.full_name} on {equal}.", join.hint


def _measure(
    schema: DatabaseSchema,
    table: TableSchema,
    key: ForeignKey,
    parent: TableSchema,
    label: ColumnSchema,
    measure: ColumnSchema,
) -> Recipe:
    join, hint = _join(table, key)
    row = _row(parent)
    variants = [variant for base, variant in variant_keys(schema, table) if base == key]
    title = f"{spoken(measure.name)} for {row} {spoken(label.name)}"
    return Recipe(
        slug=slug_of(schema.name, table.full_name, measure.name, "for", parent.full_name, *key.columns),
        title=title,
        text=f"{join} Filter by {parent.full_name}.{label.name}. Return {table.full_name}.{measure.name}.",
        pattern="aggregation",
        tables=(table.full_name, parent.full_name),
        columns=((table.full_name, measure.name), (parent.full_name, label.name)),
        join_hints=(hint,),
        keywords=(*spoken(measure.name).split(), *row.split()),
        note=variant_note(variants[0].columns) if variants else None,
    )


def variant_note(columns: tuple[str, ...]) -> str:
    """Say what has to be decided where rows of variants lie beside those of the whole."""
    named = ", ".join(columns)
    return (
        f"If multiple rows exist due to variants ({named}), either sum across rows or choose {named} IS NULL "
        "depending on requested semantics."
    )


def _related(
    schema: DatabaseSchema, table: TableSchema, key: ForeignKey, parent: TableSchema, label: ColumnSchema | None
) -> Recipe:
    join, hint = _join(table, key)
    by = f" Filter by {parent.full_name}.{label.name}." if label else ""
    filtered: tuple[ColumnRef, ...] = ((parent.full_name, label.name),) if label else ()
    return Recipe(
        slug=slug_of(schema.name, table.full_name, "of", parent.full_name, *key.columns),
        title=f"{_rows(table)} of a {_row(parent)}, number of {_rows(table)} per {_row(parent)}",
        text=f"{join}{by} Return rows of {table.full_name}, or count them by {parent.full_name}.",
        pattern="relationship",
        tables=(table.full_name, parent.full_name),
        columns=(*((table.full_name, name) for name in key.columns), *filtered),
        join_hints=(hint,),
        keywords=(*_row(table).split(), *_row(parent).split()),
    )


def _status(schema: DatabaseSchema, table: TableSchema, state: ColumnSchema) -> Recipe:
    place = f"{table.full_name}.{state.name}"
    values = f" Its values are {', '.join(state.enum[:12])}." if state.enum else ""
    return Recipe(
        slug=slug_of(schema.name, table.full_name, "by", state.name),
        title=f"{_rows(table)} by {spoken(state.name)}, {_rows(table)} in a {spoken(state.name)}",
        text=f"Filter {table.full_name} by {place}, or group by it and count.{values}",
        pattern="status",
        tables=(table.full_name,),
        columns=((table.full_name, state.name),),
        keywords=(*_row(table).split(), spoken(state.name), *(value.lower() for value in state.enum[:12])),
    )


def _latest(schema: DatabaseSchema, table: TableSchema, moment: ColumnSchema) -> Recipe:
    place = f"{table.full_name}.{moment.name}"
    return Recipe(
        slug=slug_of(schema.name, table.full_name, "over", moment.name),
        title=f"latest {_row(table)}, {_rows(table)} since a date or in a period",
        text=f"Order {table.full_name} by {place} descending and take the first row, or filter by {place}.",
        pattern="temporal",
        tables=(table.full_name,),
        columns=((table.full_name, moment.name),),
        keywords=(*_row(table).split(), *spoken(moment.name).split(), "latest", "since"),
    )


class _Curated(Section):
    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str = Field(min_length=1)
    text: str = Field(min_length=1)
    pattern: Pattern
    tables: tuple[str, ...] = Field(min_length=1)
    columns: tuple[str, ...] = ()
    join_hints: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    note: str | None = None
    sql: str | None = None


def read_recipes(path: Path, schema: DatabaseSchema) -> list[Recipe]:
    """Read recipes that were written by hand: a YAML file with a list under `recipes`.

    Raises ConfigError where it is no YAML, SchemaInvalid with every fault of the recipes, each with its place.
    """
    data = read_yaml(path, f"recipes {path}")
    listed = data.get("recipes") if isinstance(data, Mapping) else None
    if not isinstance(listed, list):
        raise SchemaInvalid(f"recipes {path}", ["$.recipes: it must be a list"])
    problems: list[str] = []
    found: dict[str, Recipe] = {}
    for number, values in enumerate(listed):
        place = f"$.recipes[{number}]"
        recipe, faults = _curated(values, schema)
        if recipe and recipe.slug in found:
            faults.append(f".slug: {recipe.slug} is there already")
        problems += [one_line(f"{place}{fault}") for fault in faults]
        if recipe:
            found[recipe.slug] = recipe
    if problems:
        raise SchemaInvalid(f"recipes {path}", problems)
    return list(found.values())


def _curated(values: Any, schema: DatabaseSchema) -> tuple[Recipe | None, list[str]]:
    try:
        given = _Curated.model_validate(values)
    except ValidationError as error:
        return None, [
            f"{''.join(f'.{part}' for part in detail['loc'])}: {detail['msg']}, and is {show(detail['input'])}"
            for detail in error.errors()
        ]
    parts = (written.rpartition(".") for written in given.columns)
    columns = tuple((table, column) for table, _, column in parts)
    recipe = Recipe(**{**given.model_dump(), "columns": columns}, curated=True)
    return recipe, missing_parts(recipe, schema)


def missing_parts(recipe: Recipe, schema: DatabaseSchema) -> list[str]:
    """Return what a recipe names and the schema does not have, each with the field that names it."""
    faults = [f".tables: there is no table {name}" for name in recipe.tables if schema.table(name) is None]
    for name, column in recipe.columns:
        table = schema.table(name)
        if table is None or table.column(column) is None:
            faults.append(f".columns: there is no column {name}.{column}")
    hints = {Join(table=table.full_name, key=key).hint for table in schema.tables for key in table.foreign_keys}
    return faults + [f".join_hints: there is no key {hint}" for hint in recipe.join_hints if hint not in hints]
