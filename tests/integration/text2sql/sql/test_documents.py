"""Documents of a schema in the pipeline: one chunk each, found unchanged the next time."""

from dataclasses import replace
from pathlib import Path

import pytest

from kosmos_rag import Engine
from kosmos_rag.text2sql.catalog.documents import schema_documents
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.catalog.sources import from_models
from kosmos_rag.text2sql.recipes import read_recipes, template_recipes

EXAMPLE = Path(__file__).parents[4] / "examples" / "schema"


def test_documents__are_ingested_as_one_chunk_each_and_only_what_changed_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tenant_name: str
) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    schema = from_models("programs:Base")
    recipes = [*read_recipes(EXAMPLE / "recipes.yaml", schema), *template_recipes(schema)]
    documents = list(schema_documents(schema, recipes))
    scope = engine.tenant(tenant_name)
    first = scope.ingest(documents)
    assert (first.new, first.failed, first.chunks) == (len(documents), (), len(documents))
    again = scope.ingest(schema_documents(schema, recipes))
    assert (again.unchanged, again.new, again.changed) == (len(documents), 0, 0)
    table = schema.tables[0]
    column = replace(table.columns[1], comment="Said anew")
    changed = replace(table, columns=(table.columns[0], column, *table.columns[2:]))
    third = scope.ingest(schema_documents(replace(schema, tables=(changed, *schema.tables[1:])), recipes))
    assert (third.changed, third.unchanged) == (1, len(documents) - 1)


def test_documents__of_columns_named_like_file_types_are_text(engine: Engine, tenant_name: str) -> None:
    names = ("json", "csv", "html", "md", "py", "eml", "pdf", "🙂", 'qu"ote', "select")
    table = TableSchema(name="files", columns=tuple(ColumnSchema(name=name, type="text") for name in names))
    report = engine.tenant(tenant_name).ingest(schema_documents(DatabaseSchema(name="shop", tables=(table,))))
    assert (report.new, report.failed) == (len(names) + 1, ())
