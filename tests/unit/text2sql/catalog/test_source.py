"""Sources of schemas as records."""

import json
from pathlib import Path

import pytest

from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.text2sql.catalog.sources import SchemaSource, from_json
from kosmos_rag.text2sql.recipes import read_recipes

EXAMPLE = Path(__file__).parents[4] / "examples" / "schema"


def test_source__comes_back_from_json_as_it_was() -> None:
    source = SchemaSource(
        kind="database",
        location="SHOP_URL",
        namespaces=("sales",),
        recipes="r.yaml",
        samples=("a",),
        not_sampled=("b",),
    )
    assert SchemaSource.from_json(json.loads(json.dumps(source.as_json()))) == source


def test_source__reads_its_schema_and_recipes() -> None:
    source = SchemaSource(kind="json", location=str(EXAMPLE / "programs.json"), recipes=str(EXAMPLE / "recipes.yaml"))
    schema = source.read()
    assert schema == from_json(EXAMPLE / "programs.json")
    assert source.read_recipes(schema) == read_recipes(EXAMPLE / "recipes.yaml", schema)
    assert SchemaSource(kind="json", location="x").read_recipes(schema) is None


@pytest.mark.parametrize("wrong", [{"kind": "oracle", "place": "x"}, {"kind": "json"}, {"kind": "json", "path": "x"}])
def test_source__that_cannot_be_is_named(wrong: dict[str, str]) -> None:
    with pytest.raises(RequestError, match=r"oracle|cannot be used"):
        SchemaSource.from_json(wrong)


def test_variable_that_is_not_set__is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_URL", raising=False)
    with pytest.raises(ConfigError, match="SHOP_URL is not set"):
        SchemaSource(kind="database", location="SHOP_URL").read()
