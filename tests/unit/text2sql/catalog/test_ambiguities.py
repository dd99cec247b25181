"""What a question leaves open."""

import pytest

from kosmos_rag.text2sql.ambiguity import find_ambiguities
from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.recipes import settle_variants, variant_note
from kosmos_rag.text2sql.settings import VariantChoice
from tests.unit.text2sql.catalog.worlds import database, table


def _list_notes(schema: DatabaseSchema, tables: list[str], *columns: str) -> dict[str, tuple[str, ...]]:
    refs = [tuple(column.rpartition(".")[::2]) for column in columns]
    plans = JoinGraph(schema).plans(tables)
    ambiguities = find_ambiguities(schema, tables, [(table, column) for table, column in refs], plans)
    return {ambiguity.kind: ambiguity.about for ambiguity in ambiguities}


def test_variants__are_open_as_in_the_seed(example: DatabaseSchema) -> None:
    tables = ["program_statistics", "programs"]
    plans = JoinGraph(example).plans(tables)
    ambiguities = find_ambiguities(example, tables, [("program_statistics", "success_count")], plans)
    assert [(item.kind, item.about) for item in ambiguities if item.kind == "variant"] == [
        ("variant", ("program_statistics.variant_id",))
    ]
    assert ambiguities[0].text == (
        "If multiple rows exist due to variants (variant_id), either sum across rows or choose variant_id IS NULL "
        "depending on requested semantics."
    )


@pytest.mark.parametrize(
    ("choice", "decision"),
    [
        ("sum", "Sum across the rows of variants (variant_id, region_id)."),
        ("base", "Leave out the rows of variants: variant_id IS NULL and region_id IS NULL."),
        ("open", None),
    ],
)
def test_variants__are_settled_by_a_choice(choice: VariantChoice, decision: str | None) -> None:
    note = variant_note(("variant_id", "region_id"))
    assert settle_variants(note, choice) == (decision or note)
    assert settle_variants("name is a column of several tables: a, b.", choice).startswith("name is a column")


def test_same_name__in_several_tables_is_open_but_not_of_keys(example: DatabaseSchema) -> None:
    result = _list_notes(example, ["programs", "program_variants"], "programs.name", "program_variants.program_id")
    assert result["same_name"] == ("programs.name", "program_variants.name")
    assert "same_name" not in _list_notes(example, ["programs", "program_variants"], "program_variants.program_id")
    assert "same_name" not in _list_notes(example, ["programs", "users"], "programs.name")


def test_join_paths__are_open_where_there_are_several() -> None:
    schema = database(table("team"), table("game", "home", "away", keys={"home": "team.id", "away": "team.id"}))
    assert _list_notes(schema, ["game", "team"])["join_path"] == ("game", "team")
    assert _list_notes(schema, ["game"]) == {}


def test_aggregate_or_latest__is_open_where_a_parent_has_several_measured_rows() -> None:
    parent = table("sensor", "name")
    readings = table("reading", "sensor_id integer", "value real", "taken timestamp", keys={"sensor_id": "sensor.id"})
    one_each = table(
        "total", "sensor_id integer", "value real", "taken timestamp",
        keys={"sensor_id": "sensor.id"}, unique=(("sensor_id",),),
    )  # fmt: skip
    schema = database(parent, readings, one_each)
    assert _list_notes(schema, ["reading"], "reading.value")["aggregate_or_latest"] == ("reading.value",)
    (note,) = find_ambiguities(schema, ["reading"], [("reading", "value")], JoinGraph(schema).plans(["reading"]))
    assert note.text.startswith("There may be several rows of reading for one row of sensor: aggregate value")
    assert _list_notes(schema, ["reading"], "reading.taken") == {}
    assert _list_notes(schema, ["total"], "total.value") == {}
