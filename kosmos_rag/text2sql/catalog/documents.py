"""The documents of a schema, one for each table, column and recipe.

Each is small enough for one chunk.

They are ingested like any document. Their ids, which are their sources, follow from names alone, so that what has not
changed is found unchanged.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kosmos_rag.core.types import EVERYONE, SourceDocument, storable
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.naming import aliases, humanize, words
from kosmos_rag.text2sql.catalog.sources.schema_json import column_as_json, table_as_json
from kosmos_rag.text2sql.records import Recipe

MAX_CHARS = 800
"""Characters of a document: about 200 tokens, within the input limit of the smallest models."""

_MAX_VALUES = 12


def schema_documents(
    schema: DatabaseSchema,
    recipes: Iterable[Recipe] = (),
    *,
    acl: tuple[str, ...] = (EVERYONE,),
    language: str | None = "english",
) -> Iterator[SourceDocument]:
    """Build the documents of a schema and of recipes, tables first.

    `metadata.kind` is `schema_model`, `schema_column` or `query_recipe`; docs/schema.md lists the other keys.

    Args:
        acl: Principals that may read the documents.
        language: Text search configuration of PostgreSQL; None detects it.
    """
    incoming = _incoming_keys(schema)
    for table in schema.tables:
        yield _document(
            table_source(schema, table),
            [
                *_table_lines(table, incoming.get(table.full_name, ())),
                _columns_line(table),
                f"Database: {schema.comment}" if schema.comment else "",
            ],
            title=table.full_name,
            metadata={
                "kind": "schema_model",
                **_table_metadata(schema, table),
                "keywords": _keywords(table.name),
                **({"dialect": schema.dialect} if schema.dialect else {}),
                **({"database_comment": storable(schema.comment)} if schema.comment else {}),
                "definition": _definition(table_as_json(table)),
            },
            acl=acl,
            language=language,
        )
        for position, column in enumerate(table.columns):
            yield _document(
                column_source(schema, table, column.name),
                _column_lines(table, column),
                title=f"{table.full_name}.{column.name}",
                metadata={
                    "kind": "schema_column",
                    **_table_metadata(schema, table),
                    **_column_metadata(table, column),
                    "position": position,
                    "definition": _definition(column_as_json(column)),
                },
                acl=acl,
                language=language,
            )
    for recipe in recipes:
        yield _document(
            # Two databases of a collection may have recipes of the same slug; derived slugs begin with the database.
            f"query_recipe:{f'{schema.name}.' if recipe.curated else ''}{recipe.slug}",
            _recipe_lines(recipe),
            title=recipe.title,
            metadata={"kind": "query_recipe", "database": schema.name, **_recipe_metadata(recipe)},
            acl=acl,
            language=language,
        )


def table_source(schema: DatabaseSchema, table: TableSchema) -> str:
    """Return the id of a table's document."""
    return storable(f"schema_model:{_owner(schema, table)}")


def column_source(schema: DatabaseSchema, table: TableSchema, column: str) -> str:
    """Return the id of a column's document.

    Args:
        table: The column's table.
    """
    return storable(f"schema_column:{_owner(schema, table)}.{column}")


def _owner(schema: DatabaseSchema, table: TableSchema) -> str:
    """Return `{module}.{model}`, or `{database}.{table}` for a table without a class."""
    if table.model and table.module:
        return f"{table.module}.{table.model}"
    return f"{schema.name}.{table.full_name}"


def _document(source: str, lines: Iterable[str], **fields: Any) -> SourceDocument:
    text = "\n".join(" ".join(line.split()) for line in lines if line)
    if len(text) > MAX_CHARS:
        text = text[: max(text.rfind(" ", 0, MAX_CHARS), 0) or MAX_CHARS].rstrip(",")
    fields["title"] = storable(fields["title"])
    return SourceDocument(source=storable(source), data=storable(text).encode(), **fields)


def _definition(definition: dict[str, Any]) -> str:
    """Return the JSON of a table or column as text.

    Text, because filters use the other keys.
    """
    return storable(json.dumps(definition, ensure_ascii=False, separators=(",", ":")))


def _incoming_keys(schema: DatabaseSchema) -> dict[str, list[tuple[str, ForeignKey]]]:
    incoming: dict[str, list[tuple[str, ForeignKey]]] = {}
    for table in schema.tables:
        for key in table.foreign_keys:
            if key.table != table.full_name:
                incoming.setdefault(key.table, []).append((table.full_name, key))
    return incoming


def _table_lines(table: TableSchema, incoming: Sequence[tuple[str, ForeignKey]]) -> Iterator[str]:
    names = ", ".join(dict.fromkeys([humanize(table.name), *table.aliases]))
    yield f"{names}: table {table.full_name}" + (f", model {_model_words(table)}" if table.model else "")
    yield table.comment or ""
    parents = dict.fromkeys(key.table for key in table.foreign_keys)
    if parents:
        yield f"Refers to {', '.join(map(humanize, parents))}."
    children = list(dict.fromkeys(name for name, _ in incoming))
    if children:
        more = f" and {len(children) - _MAX_VALUES} more" if len(children) > _MAX_VALUES else ""
        yield f"Referred to by {', '.join(map(humanize, children[:_MAX_VALUES]))}{more}."
    if table.relationships:
        yield f"Relationships: {', '.join(humanize(item.name) for item in table.relationships[:_MAX_VALUES])}."


def _model_words(table: TableSchema) -> str:
    """Return the name of a model with its words.

    No tokenizer splits `LocalLLMDecisionRun`.
    """
    model = table.model or ""
    return model if humanize(model) == model.lower() else f"{model} ({' '.join(words(model))})"


def _columns_line(table: TableSchema) -> str:
    # Keys last: they say what belongs together, and little of what a table is about.
    columns = sorted(table.columns, key=lambda column: column.name in table.key_columns)
    return "Columns: " + ", ".join(humanize(column.name) for column in columns)


def _column_lines(table: TableSchema, column: ColumnSchema) -> Iterator[str]:
    names = dict.fromkeys([*aliases(column.name), *column.aliases])
    yield f"{', '.join(names)}: column {column.name} of {humanize(table.name)}"
    context = f"Table {table.full_name}" + (f", model {_model_words(table)}" if table.model else "")
    yield ", ".join(filter(None, [context, column.type])) + "."
    yield column.comment or ""
    if column.values:
        labels = dict(column.labels)
        values = (f"{value} ({labels[value]})" if value in labels else value for value in column.values[:_MAX_VALUES])
        yield f"Values: {', '.join(values)}."
    for key in table.foreign_keys:
        if column.name in key.columns:
            yield f"Refers to {humanize(key.table)} ({key.table}.{key.target[key.columns.index(column.name)]})."


def _recipe_lines(recipe: Recipe) -> Iterator[str]:
    yield f"{recipe.title}."
    yield recipe.text
    yield f"Keywords: {', '.join(dict.fromkeys(recipe.keywords))}." if recipe.curated and recipe.keywords else ""
    yield recipe.note or ""


def _keywords(*names: str) -> list[str]:
    keywords = (word for name in names for word in (*words(name), *humanize(name).split()))
    return [storable(word) for word in dict.fromkeys(keywords)]


def _table_metadata(schema: DatabaseSchema, table: TableSchema) -> dict[str, Any]:
    values = {
        "database": schema.name,
        "table": table.full_name,
        "model": table.model or table.name,
        "module": table.module,
        "source_file": table.source_file,
    }
    return {key: storable(value) for key, value in values.items() if value is not None}


def _column_metadata(table: TableSchema, column: ColumnSchema) -> dict[str, Any]:
    return {
        "column": storable(column.name),
        "type": storable(column.type),
        "nullable": column.nullable,
        "key": column.name in table.key_columns,
        "keywords": _keywords(column.name, *column.aliases),
        "values": [storable(value) for value in column.values[:_MAX_VALUES]],
    }


def _recipe_metadata(recipe: Recipe) -> dict[str, Any]:
    return {
        "slug": recipe.slug,
        "text": recipe.text,
        "pattern": recipe.pattern,
        "curated": recipe.curated,
        "tables": list(recipe.tables),
        "columns": [f"{table}.{column}" for table, column in recipe.columns],
        "join_hints": list(recipe.join_hints),
        "keywords": list(dict.fromkeys(recipe.keywords)),
        **({"note": recipe.note} if recipe.note else {}),
        **({"sql": recipe.sql} if recipe.sql else {}),
        **({"not_for": list(recipe.not_for)} if recipe.not_for else {}),
    }
