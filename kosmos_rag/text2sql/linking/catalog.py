"""Schemas as their documents tell of them: what a reader may not read is not there."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kosmos_rag.core.types import DocumentInfo, Passage
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import from_json
from kosmos_rag.text2sql.recipes import Recipe, missing_parts


def schemas_of(documents: Iterable[DocumentInfo]) -> list[DatabaseSchema]:
    """Return the schemas that documents of tables and columns tell of, by name.

    Keys and relationships that lead to what is not there are left out. Raises SchemaInvalid where documents were not
    made by `schema_documents`.
    """
    tables: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    columns: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for document in documents:
        said = document.metadata
        if said.get("kind") == "schema_model":
            tables[said["database"]][said["table"]] = said
        elif said.get("kind") == "schema_column":
            columns[said["database"], said["table"]].append(said)
    return [_schema(name, tables[name], columns) for name in sorted(tables)]


def _schema(
    name: str,
    tables: Mapping[str, Mapping[str, Any]],
    columns: Mapping[tuple[str, str], list[Mapping[str, Any]]],
) -> DatabaseSchema:
    models = []
    for table, said in tables.items():
        own = sorted(columns.get((name, table), ()), key=lambda column: column["position"])
        if own:
            models.append(json.loads(said["definition"]) | {"columns": [json.loads(it["definition"]) for it in own]})
    there = {_full_name(model): {column["name"] for column in model["columns"]} for model in models}
    dialect = next((said["dialect"] for said in tables.values() if "dialect" in said), None)
    data = {"name": name, "models": [_closed(model, there) for model in models]}
    return from_json(data | ({"dialect": dialect} if dialect else {}))


def _full_name(model: Mapping[str, Any]) -> str:
    return f"{model['schema']}.{model['table']}" if "schema" in model else str(model["table"])


def _closed(model: dict[str, Any], there: Mapping[str, set[str]]) -> dict[str, Any]:
    """Return a table without what leads out of what is there."""
    own = there[_full_name(model)]
    kept = {
        "primary_key": model.get("primary_key", []) if own >= set(model.get("primary_key", [])) else [],
        "unique": [columns for columns in model.get("unique", []) if own >= set(columns)],
        "foreign_keys": [
            key
            for key in model.get("foreign_keys", [])
            if own >= set(key["columns"]) and there.get(key["table"], set()) >= set(key["target"])
        ],
        "relationships": [item for item in model.get("relationships", []) if item["table"] in there],
    }
    return model | kept


def curated_of(documents: Iterable[DocumentInfo], schema: DatabaseSchema) -> list[Recipe]:
    """Return the recipes written by hand for a schema, without those that name what it no longer has."""
    found = (
        recipe_of(document)
        for document in documents
        if document.metadata.get("kind") == "query_recipe"
        and document.metadata["database"] == schema.name
        and document.metadata["curated"]
    )
    return [recipe for recipe in found if not missing_parts(recipe, schema)]


def recipe_of(document: DocumentInfo | Passage) -> Recipe:
    """Return the recipe that a document tells of."""
    said = document.metadata
    columns = (written.rpartition(".") for written in said["columns"])
    return Recipe(
        slug=said["slug"],
        title=document.title,
        text=said["text"],
        pattern=said["pattern"],
        tables=tuple(said["tables"]),
        columns=tuple((table, column) for table, _, column in columns),
        join_hints=tuple(said["join_hints"]),
        keywords=tuple(said["keywords"]),
        note=said.get("note"),
        curated=said["curated"],
        sql=said.get("sql"),
    )
