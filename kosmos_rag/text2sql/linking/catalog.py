"""Build schemas and recipes from their documents.

Documents that the reader may not read are absent, and so is what they describe.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kosmos_rag.core.types import DocumentInfo, Passage, SourceDocument
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import from_json
from kosmos_rag.text2sql.recipes import missing_parts
from kosmos_rag.text2sql.records import Recipe, split_columns


def parse_schemas(documents: Iterable[DocumentInfo | SourceDocument]) -> list[DatabaseSchema]:
    """Build the schemas that documents describe, sorted by name.

    Keys and relationships to absent tables are left out.

    Raises:
        SchemaInvalid: The documents were not made by `schema_documents`.
    """
    tables: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    columns: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for document in documents:
        metadata = document.metadata
        if metadata.get("kind") == "schema_model":
            tables[metadata["database"]][metadata["table"]] = metadata
        elif metadata.get("kind") == "schema_column":
            columns[metadata["database"], metadata["table"]].append(metadata)
    return [_schema(name, tables[name], columns) for name in sorted(tables)]


def _schema(
    name: str,
    tables: Mapping[str, Mapping[str, Any]],
    columns: Mapping[tuple[str, str], list[Mapping[str, Any]]],
) -> DatabaseSchema:
    models = []
    for table, metadata in tables.items():
        table_columns = sorted(columns.get((name, table), ()), key=lambda column: column["position"])
        if table_columns:
            models.append(
                json.loads(metadata["definition"])
                | {"columns": [json.loads(column["definition"]) for column in table_columns]}
            )
    columns_by_table = {_full_name(model): {column["name"] for column in model["columns"]} for model in models}
    data = {"name": name, "models": [_drop_dangling(model, columns_by_table) for model in models]}
    for key, stored in (("dialect", "dialect"), ("description", "database_comment")):
        value = next((metadata[stored] for metadata in tables.values() if stored in metadata), None)
        data |= {key: value} if value else {}
    return from_json(data)


def _full_name(model: Mapping[str, Any]) -> str:
    return f"{model['schema']}.{model['table']}" if "schema" in model else str(model["table"])


def _drop_dangling(model: dict[str, Any], columns_by_table: Mapping[str, set[str]]) -> dict[str, Any]:
    """Remove references to tables and columns that are absent."""
    columns = columns_by_table[_full_name(model)]
    filtered = {
        "primary_key": model.get("primary_key", []) if columns >= set(model.get("primary_key", [])) else [],
        "unique": [names for names in model.get("unique", []) if columns >= set(names)],
        "foreign_keys": [
            key
            for key in model.get("foreign_keys", [])
            if columns >= set(key["columns"]) and columns_by_table.get(key["table"], set()) >= set(key["target"])
        ],
        "relationships": [item for item in model.get("relationships", []) if item["table"] in columns_by_table],
    }
    return model | filtered


def parse_curated_recipes(documents: Iterable[DocumentInfo], schema: DatabaseSchema) -> list[Recipe]:
    """Return the hand-written recipes of a schema that still fit it."""
    recipes = (
        parse_recipe(document)
        for document in documents
        if document.metadata.get("kind") == "query_recipe"
        and document.metadata["database"] == schema.name
        and document.metadata["curated"]
    )
    return [recipe for recipe in recipes if not missing_parts(recipe, schema)]


def parse_recipe(document: DocumentInfo | Passage) -> Recipe:
    """Build the recipe that a document describes."""
    metadata = document.metadata
    return Recipe(
        slug=metadata["slug"],
        title=document.title,
        text=metadata["text"],
        pattern=metadata["pattern"],
        tables=tuple(metadata["tables"]),
        columns=split_columns(metadata["columns"], metadata["tables"]),
        join_hints=tuple(metadata["join_hints"]),
        keywords=tuple(metadata["keywords"]),
        note=metadata.get("note"),
        curated=metadata["curated"],
        sql=metadata.get("sql"),
        not_for=tuple(metadata.get("not_for", ())),
    )
