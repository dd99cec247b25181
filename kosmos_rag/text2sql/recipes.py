"""Query recipes: from templates over keys, or hand-written in YAML."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.config.loading import read_yaml
from kosmos_rag.core.section import Section
from kosmos_rag.text2sql.catalog.joins import Join
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.naming import humanize, plural, singular
from kosmos_rag.text2sql.catalog.roles import (
    foreign_keys_with_targets,
    is_measure,
    is_status,
    is_temporal,
    label_column,
    variant_keys,
)
from kosmos_rag.text2sql.errors import SchemaInvalid
from kosmos_rag.text2sql.linking.words import is_content_word, question_words
from kosmos_rag.text2sql.records import ColumnRef, Pattern, Recipe, split_columns
from kosmos_rag.text2sql.settings import VariantChoice

_VARIANT_NOTE = re.compile(r"If multiple rows exist due to variants \((.+?)\), either ")
MAX_MEASURES_PER_KEY = 12
"""Measures of a table with a recipe for each key; more would crowd out other recipes."""


def slugify(*parts: str) -> str:
    """Return text as a slug: lower case, with hyphens.

    If that loses characters, a hash of the text keeps slugs distinct.
    """
    text = " ".join(parts)
    slug = re.sub(r"[^a-z0-9_.]+", "-", text.lower()).strip("-")
    if slug == text.replace(" ", "-"):
        return slug
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest


def template_recipes(schema: DatabaseSchema) -> list[Recipe]:
    """Derive recipes from keys, measures, times and statuses of a schema.

    In the order of the schema.
    """
    recipes: dict[str, Recipe] = {}
    for table in schema.tables:
        for recipe in _table_recipes(schema, table):
            recipes.setdefault(recipe.slug, recipe)
    return list(recipes.values())


def _table_recipes(schema: DatabaseSchema, table: TableSchema) -> Iterator[Recipe]:
    moment = next((column for column in table.columns if is_temporal(column)), None)
    state = next((column for column in table.columns if is_status(column)), None)
    if state:
        yield _status_recipe(schema, table, state)
    if moment:
        yield _temporal_recipe(schema, table, moment)
    for key, parent in foreign_keys_with_targets(schema, table):
        label = label_column(parent)
        yield _relationship_recipe(schema, table, key, parent, label)
        if label:
            measures = [column for column in table.columns if is_measure(table, column)]
            for measure in measures[:MAX_MEASURES_PER_KEY]:
                yield _measure_recipe(schema, table, key, parent, label, measure)


def _plural_noun(table: TableSchema) -> str:
    words = humanize(table.name).split()
    return " ".join([*words[:-1], plural(singular(words[-1]))])


def _singular_noun(table: TableSchema) -> str:
    words = humanize(table.name).split()
    return " ".join([*words[:-1], singular(words[-1])])


def _join(table: TableSchema, key: ForeignKey) -> tuple[str, str]:
    """Return a join as a sentence and as a hint."""
    join = Join(table=table.full_name, key=key)
    pairs = zip(key.target, key.columns, strict=True)
    equal = " and ".join(f"{key.table}.{target} = {table.full_name}.{source}" for target, source in pairs)
    return f"Join {key.table} to {table.full_name} on {equal}.", join.hint


def _measure_recipe(
    schema: DatabaseSchema,
    table: TableSchema,
    key: ForeignKey,
    parent: TableSchema,
    label: ColumnSchema,
    measure: ColumnSchema,
) -> Recipe:
    join, hint = _join(table, key)
    row = _singular_noun(parent)
    variants = [variant for base, variant in variant_keys(schema, table) if base == key]
    title = f"{humanize(measure.name)} for {row} {humanize(label.name)}"
    return Recipe(
        slug=slugify(schema.name, table.full_name, measure.name, "for", parent.full_name, *key.columns),
        title=title,
        text=f"{join} Filter by {parent.full_name}.{label.name}. Return {table.full_name}.{measure.name}.",
        pattern="aggregation",
        tables=(table.full_name, parent.full_name),
        columns=((table.full_name, measure.name), (parent.full_name, label.name)),
        join_hints=(hint,),
        keywords=(*humanize(measure.name).split(), *row.split()),
        note=variant_note(variants[0].columns) if variants else None,
    )


def variant_note(columns: tuple[str, ...]) -> str:
    """Describe the decision for rows per variant and in total."""
    names = ", ".join(columns)
    return (
        f"If multiple rows exist due to variants ({names}), either sum across rows or choose {names} IS NULL "
        "depending on requested semantics."
    )


def settle_variants(note: str, choice: VariantChoice) -> str:
    """Return a note with the decision on rows per variant.

    It is unchanged for `open`, and if it is about something else.
    """
    match = _VARIANT_NOTE.match(note)
    if match is None or choice == "open":
        return note
    if choice == "sum":
        return f"Sum across the rows of variants ({match[1]})."
    conditions = " and ".join(f"{name} IS NULL" for name in match[1].split(", "))
    return f"Leave out the rows of variants: {conditions}."


def _relationship_recipe(
    schema: DatabaseSchema, table: TableSchema, key: ForeignKey, parent: TableSchema, label: ColumnSchema | None
) -> Recipe:
    join, hint = _join(table, key)
    rows = _plural_noun(table)
    by = f" Filter by {parent.full_name}.{label.name}." if label else ""
    filtered: tuple[ColumnRef, ...] = ((parent.full_name, label.name),) if label else ()
    return Recipe(
        slug=slugify(schema.name, table.full_name, "of", parent.full_name, *key.columns),
        title=f"{rows} of a {_singular_noun(parent)}, number of {rows} per {_singular_noun(parent)}",
        text=f"{join}{by} Return rows of {table.full_name}, or count them by {parent.full_name}.",
        pattern="relationship",
        tables=(table.full_name, parent.full_name),
        columns=(*((table.full_name, name) for name in key.columns), *filtered),
        join_hints=(hint,),
        keywords=(*_singular_noun(table).split(), *_singular_noun(parent).split()),
    )


def _status_recipe(schema: DatabaseSchema, table: TableSchema, state: ColumnSchema) -> Recipe:
    path = f"{table.full_name}.{state.name}"
    values = f" Its values are {', '.join(state.enum[:12])}." if state.enum else ""
    return Recipe(
        slug=slugify(schema.name, table.full_name, "by", state.name),
        title=f"{_plural_noun(table)} by {humanize(state.name)}, {_plural_noun(table)} in a {humanize(state.name)}",
        text=f"Filter {table.full_name} by {path}, or group by it and count.{values}",
        pattern="status",
        tables=(table.full_name,),
        columns=((table.full_name, state.name),),
        keywords=(*_singular_noun(table).split(), humanize(state.name), *(value.lower() for value in state.enum[:12])),
    )


def _temporal_recipe(schema: DatabaseSchema, table: TableSchema, moment: ColumnSchema) -> Recipe:
    path = f"{table.full_name}.{moment.name}"
    return Recipe(
        slug=slugify(schema.name, table.full_name, "over", moment.name),
        title=f"latest {_singular_noun(table)}, {_plural_noun(table)} since a date or in a period",
        text=f"Order {table.full_name} by {path} descending and take the first row, or filter by {path}.",
        pattern="temporal",
        tables=(table.full_name,),
        columns=((table.full_name, moment.name),),
        keywords=(*_singular_noun(table).split(), *humanize(moment.name).split(), "latest", "since"),
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
    not_for: tuple[str, ...] = ()


def read_recipes(path: Path, schema: DatabaseSchema) -> list[Recipe]:
    """Read hand-written recipes: a YAML file with a list under `recipes`.

    Raises:
        ConfigError: The file is not YAML.
        SchemaInvalid: A recipe is invalid; lists all faults with their paths.
    """
    data = read_yaml(path, f"recipes {path}")
    entries = data.get("recipes") if isinstance(data, Mapping) else None
    if not isinstance(entries, list):
        raise SchemaInvalid(f"recipes {path}", ["$.recipes: it must be a list"])
    problems: list[str] = []
    recipes: dict[str, Recipe] = {}
    for number, values in enumerate(entries):
        item_path = f"$.recipes[{number}]"
        recipe, faults = _parse_curated(values, schema)
        if recipe and recipe.slug in recipes:
            faults.append(f".slug: {recipe.slug} exists already")
        problems += [one_line(f"{item_path}{fault}") for fault in faults]
        if recipe:
            recipes[recipe.slug] = recipe
    if problems:
        raise SchemaInvalid(f"recipes {path}", problems)
    return list(recipes.values())


def _parse_curated(values: Any, schema: DatabaseSchema) -> tuple[Recipe | None, list[str]]:
    try:
        parsed = _Curated.model_validate(values)
    except ValidationError as error:
        return None, [
            f"{''.join(f'.{part}' for part in detail['loc'])}: {detail['msg']}, and is {show(detail['input'])}"
            for detail in error.errors()
        ]
    tables = [table.full_name for table in schema.tables]
    columns = split_columns(parsed.columns, tables)
    recipe = Recipe(**{**parsed.model_dump(), "columns": columns}, curated=True)
    return recipe, [*missing_parts(recipe, schema), *_invalid_exclusions(recipe)]


def _invalid_exclusions(recipe: Recipe) -> list[str]:
    faults = [
        f".not_for: {show(phrase)} has no word that a question could name"
        for phrase in recipe.not_for
        if not any(map(is_content_word, question_words(phrase)))
    ]
    if recipe.not_for and not recipe.columns:
        faults.append(".not_for: it is about the first of .columns, and there is none")
    return faults


def missing_parts(recipe: Recipe, schema: DatabaseSchema) -> list[str]:
    """Return the tables, columns and joins of a recipe that are missing."""
    faults = [f".tables: there is no table {name}" for name in recipe.tables if schema.table(name) is None]
    for name, column in recipe.columns:
        table = schema.table(name)
        if table is None or table.column(column) is None:
            faults.append(f".columns: there is no column {name}.{column}")
    hints = {Join(table=table.full_name, key=key).hint for table in schema.tables for key in table.foreign_keys}
    return faults + [f".join_hints: there is no key {hint}" for hint in recipe.join_hints if hint not in hints]
