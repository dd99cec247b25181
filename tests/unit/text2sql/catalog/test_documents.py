"""The documents of a schema."""

from kosmos_rag.core.types import is_text
from kosmos_rag.parsing import detect_small_text
from kosmos_rag.text2sql.catalog.documents import MAX_CHARS, schema_documents
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.recipes import read_recipes, template_recipes
from tests.unit.text2sql.catalog.worlds import EXAMPLE, database, table


def test_documents__have_the_ids_and_metadata_of_the_seed(example: DatabaseSchema) -> None:
    recipes = read_recipes(EXAMPLE / "recipes.yaml", example)
    documents = {document.source: document for document in schema_documents(example, recipes)}
    assert len(documents) == 14 + 86 + 7
    model = documents["schema_model:programs.ProgramStatistics"]
    assert "program statistics" in model.data.decode()
    assert "Referred to by" not in model.data.decode()
    assert (model.metadata["kind"], model.metadata["table"]) == ("schema_model", "program_statistics")
    column = documents["schema_column:programs.ProgramStatistics.success_count"]
    assert "number of successes" in column.data.decode()
    assert column.title == "program_statistics.success_count"
    expected = {
        "kind": "schema_column", "model": "ProgramStatistics", "table": "program_statistics", "column": "success_count",
        "type": "INTEGER", "nullable": False, "source_file": "programs.py", "database": "programs",
        "module": "programs",
    }  # fmt: skip
    assert expected.items() <= column.metadata.items()
    assert {"success", "count"} <= set(column.metadata["keywords"])
    recipe = documents["query_recipe:programs.success-count-for-program-name"]
    assert recipe.metadata["join_hints"] == ["program_statistics.program_id -> programs.id"]
    assert recipe.metadata["curated"] is True
    assert "variant_id IS NULL" in recipe.data.decode()


def test_documents__say_what_a_key_refers_to_and_which_values_there_are(example: DatabaseSchema) -> None:
    documents = {document.source: document.data.decode() for document in schema_documents(example)}
    assert "Refers to program variants" in documents["schema_column:programs.ProgramStatistics.variant_id"]
    assert "Values: pending, running" in documents["schema_column:programs.LocalLLMDecisionRun.status"]
    assert "Referred to by" in documents["schema_model:programs.Program"]


def test_documents__are_the_same_each_time(example: DatabaseSchema) -> None:
    recipes = template_recipes(example)
    assert list(schema_documents(example, recipes)) == list(schema_documents(example, template_recipes(example)))


def test_documents__of_strange_names_are_plain_text_of_one_chunk() -> None:
    names = ["select", 'qu"ote', "🙂", "json", "csv", "html", "eml", "a\nb", "x" * 500, "nul\x00", "\ud800"]
    wide = TableSchema(name='ta"ble 🙂', columns=tuple(ColumnSchema(name=name, comment="c " * 900) for name in names))
    many = table("many", *(f"column_number_{n}" for n in range(2000)))
    documents = list(schema_documents(database(wide, many)))
    assert len(documents) == 2 + len(names) + 2001
    assert len({document.source for document in documents}) == len(documents)
    for document in documents:
        text = document.data.decode()
        assert 0 < len(text) <= MAX_CHARS
        assert "\n\n" not in text
        assert is_text(document.source)
        assert is_text(document.title)
        assert document.language == "english"
        assert detect_small_text(document.data, document.source)


def test_documents__of_tables_without_classes_stand_in_their_database() -> None:
    sources = [document.source for document in schema_documents(database(table("orders", schema="sales")))]
    assert sources == ["schema_model:shop.sales.orders", "schema_column:shop.sales.orders.id"]
