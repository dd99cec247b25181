"""The schema as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import from_json, to_json
from kosmos_rag.text2sql.catalog.sources.schema_json import json_schema
from kosmos_rag.text2sql.errors import SchemaInvalid

ROOT = Path(__file__).parents[4]


def test_json__says_all_that_a_schema_says(example: DatabaseSchema, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(to_json(example))
    assert from_json(file) == example


def test_example__is_the_export_of_the_models(example: DatabaseSchema) -> None:
    assert (ROOT / "examples" / "schema" / "programs.json").read_text() == to_json(example)


def test_json_schema__is_the_one_in_the_documentation_and_fits_the_example(example: DatabaseSchema) -> None:
    validator = pytest.importorskip("jsonschema")
    shipped = json.loads((ROOT / "docs" / "schema.schema.json").read_text())
    assert shipped == json_schema()
    validator.validate(json.loads(to_json(example)), shipped)
    with pytest.raises(validator.ValidationError):
        validator.validate({"name": "x", "models": [{"table": "a", "columns": []}]}, shipped)


def test_faults__are_named_at_once_each_with_its_path() -> None:
    data = {
        "dialect": 7,
        "models": [
            {
                "table": "a",
                "colums": [],
                "columns": [{"name": "x", "type": 1}, {"name": "x"}, {"nullable": "maybe"}],
                "primary_key": ["y"],
                "foreign_keys": [
                    {"columns": ["x", "z"], "table": "nowhere", "target": ["id"]},
                    {"columns": ["x"], "table": "b", "target": ["gone"]},
                ],
                "relationships": [{"name": "others", "table": "nowhere"}],
            },
            {"table": "b", "columns": [{"name": "id"}], "unique": [["q"]]},
            {"table": "b", "columns": []},
        ],
    }
    with pytest.raises(SchemaInvalid) as caught:
        from_json(data)
    places = [problem.partition(": ")[0] for problem in caught.value.problems]
    assert sorted(places) == sorted([
        "$.dialect",
        "$.models[0].colums",
        "$.models[0].columns[0].type",
        "$.models[0].columns[1].name",
        "$.models[0].columns[2].name",
        "$.models[0].columns[2].nullable",
        "$.models[0].foreign_keys[0]",
        "$.models[0].foreign_keys[0].columns[1]",
        "$.models[0].foreign_keys[0].table",
        "$.models[0].foreign_keys[1].target[0]",
        "$.models[0].primary_key[0]",
        "$.models[0].relationships[0].table",
        "$.models[1].unique[0][0]",
        "$.models[2].columns",
        "$.models[2].table",
        "$.name",
    ])  # fmt: skip
    assert "did you mean columns?" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [[], "x", None, {"name": "x", "models": {}}, {"name": "\x00", "models": []}])
def test_json__of_another_shape_is_refused(data: Any) -> None:
    with pytest.raises(SchemaInvalid, match=r"\$"):
        from_json(data)


def test_json__has_the_overview_of_the_database_and_the_meanings_of_codes() -> None:
    state = {"name": "state", "labels": {"AK": "Alaska", "IN": "Indiana"}}
    data = {"name": "shops", "description": "Shops of a chain.", "models": [{"table": "shops", "columns": [state]}]}
    schema = from_json(data)
    assert (schema.comment, schema.tables[0].columns[0].values) == ("Shops of a chain.", ("AK", "IN"))
    assert json.loads(to_json(schema)) == data


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe\x00", b"[" * 100_000])
def test_file__that_is_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_bytes(content)
    with pytest.raises(SchemaInvalid, match=r"schema\.json"):
        from_json(file)
    with pytest.raises(SchemaInvalid, match="cannot be read"):
        from_json(tmp_path / "none.json")


def test_names__may_hold_anything_but_nul() -> None:
    name = 'sel"ect 🙂; --\n'
    schema = from_json({"name": name, "models": [{"table": name, "columns": [{"name": name}]}]})
    assert from_json(json.loads(to_json(schema))) == schema
