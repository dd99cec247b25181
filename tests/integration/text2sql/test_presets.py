"""The presets of collections of schemas."""

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config.presets import list_shipped, load
from kosmos_rag.retrieval.signals.apply import build_signal_rules
from kosmos_rag.text2sql.catalog.documents import schema_documents
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema


@pytest.mark.parametrize("name", ["schema", "schema-classic"])
def test_list_shipped__has_those_of_schemas(name: str) -> None:
    assert name in list_shipped()
    assert load(name, Settings(), validate=build_signal_rules).apply(Settings()) != Settings()


def test_schema_classic__weighs_as_its_document_says_and_schema_at_a_tenth_of_that(
    engine: Engine, tenant_name: str
) -> None:
    classic, tenth = (
        load(name, Settings(), validate=build_signal_rules).apply(Settings()).rag
        for name in ("schema-classic", "schema")
    )
    assert classic.signals["schema_recipe"] == {"curated": 4.0, "pattern": 2.0}
    assert classic.signals["schema_entities"] == {"names": 3.0, "temporal": 2.0, "moment": 2.0, "numeric": 1.0}
    assert classic.signals["schema_penalty"] == {"nothing": -3.0, "elsewhere": -2.0}
    assert [*tenth.signals, "schema_targets"] == list(classic.signals), "points add up in the classic preset alone"
    assert tenth.chunking == classic.chunking
    assert tenth.retrieval == classic.retrieval.model_copy(update={"top_k": 30, "fuzzy": False})
    columns = (ColumnSchema(name="status", type="text", enum=("failed", "passed")),)
    schema = DatabaseSchema(name="lab", tables=(TableSchema(name="probes", model="Probe", columns=columns),))
    signals = {}
    for name in ("schema-classic", "schema"):
        engine.tenant(tenant_name).collections.create(name, preset=name)
        scope = engine.tenant(tenant_name, collection=name)
        scope.ingest(schema_documents(schema))
        hits = {hit.metadata["kind"]: hit for hit in scope.search("probes with the status failed").hits}
        signals[name] = dict(hits["schema_column"].signals)
    lexical = 3.0 + 2.0 + 1.5
    assert signals["schema-classic"] == {"schema_lexical": lexical, "schema_status": 4.0 + 1.0, "schema_exact": 6.0}
    assert signals["schema"] == pytest.approx({name: value / 10 for name, value in signals["schema-classic"].items()})
