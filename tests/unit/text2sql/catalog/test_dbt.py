"""dbt's artifacts as a source."""

import json
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.text2sql.catalog.model import ForeignKey
from kosmos_rag.text2sql.catalog.sources import SchemaSource, from_dbt, from_json, to_json
from kosmos_rag.text2sql.errors import SchemaInvalid


def _node(name: str, *columns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "resource_type": "model",
        "name": name,
        "schema": "mart",
        "package_name": "shop",
        "original_file_path": f"models/{name}.sql",
        "description": "",
        "columns": {column["name"]: column for column in columns},
        **fields,
    }


def _test(kind: str, column: str, nodes: list[str], **fields: Any) -> dict[str, Any]:
    arguments = {"column_name": column, **fields}
    return {
        "resource_type": "test",
        "name": f"{kind}_{column}",
        "test_metadata": {"name": kind, "kwargs": arguments},
        "depends_on": {"nodes": nodes},
        "attached_node": nodes[-1],
    }


MANIFEST = {
    "metadata": {"project_name": "shop", "adapter_type": "postgres"},
    "nodes": {
        "model.shop.orders": _node(
            "orders",
            {"name": "id", "data_type": "integer", "constraints": [{"type": "not_null"}, {"type": "unique"}]},
            {"name": "customer_id", "description": "Who ordered"},
            {"name": "status"},
            {"name": "previous_id"},
            description="One row an order",
            alias="orders_v2",
            constraints=[
                {"type": "primary_key", "columns": ["id"]},
                {"type": "foreign_key", "columns": ["region"], "to": '"db"."raw"."regions"', "to_columns": ["code"]},
            ],
        ),
        "model.shop.customers": _node("customers", {"name": "id"}),
        "model.shop.hidden": _node("hidden", config={"materialized": "ephemeral"}),
        "test.a": _test(
            "relationships", "customer_id", ["model.shop.customers", "model.shop.orders"], field="id"
        ),
        "test.b": _test("relationships", "previous_id", ["model.shop.orders"], field="id"),
        "test.c": _test("accepted_values", "status", ["model.shop.orders"], values=["open", "paid"]),
        "test.d": _test("unique", "id", ["model.shop.customers"]),
        "test.e": {"resource_type": "test", "name": "own", "depends_on": {"nodes": []}},
    },
    "sources": {
        "source.shop.raw.regions": _node(
            "regions", {"name": "code"}, resource_type="source", schema="raw", identifier="regions"
        )
    },
}  # fmt: skip
CATALOG = {
    "nodes": {
        "model.shop.orders": {
            "columns": {
                "REGION": {"name": "region", "type": "text", "index": 5},
                "id": {"name": "id", "type": "bigint", "index": 1},
            }
        }
    },
    "sources": {},
}


def _write_json(folder: Path, name: str, data: Any) -> Path:
    (folder / name).write_text(json.dumps(data))
    return folder / name


def test_manifest__gives_tables_keys_and_values(tmp_path: Path) -> None:
    schema = from_dbt(_write_json(tmp_path, "manifest.json", MANIFEST), _write_json(tmp_path, "catalog.json", CATALOG))
    assert (schema.name, schema.dialect) == ("shop", "postgresql")
    assert [table.full_name for table in schema.tables] == ["mart.orders_v2", "mart.customers", "raw.regions"]
    orders = schema.tables[0]
    assert (orders.model, orders.module, orders.comment) == ("orders", "shop", "One row an order")
    assert [(c.name, c.type) for c in orders.columns][:2] == [("id", "bigint"), ("region", "text")]
    assert orders.primary_key == ("id",)
    assert not orders.columns[0].nullable
    assert set(orders.foreign_keys) == {
        ForeignKey(columns=("region",), table="raw.regions", target=("code",)),
        ForeignKey(columns=("customer_id",), table="mart.customers", target=("id",)),
        ForeignKey(columns=("previous_id",), table="mart.orders_v2", target=("id",)),
    }
    status = orders.column("status")
    assert status is not None
    assert status.enum == ("open", "paid")
    assert schema.tables[1].unique == (("id",),)


def test_tables__that_are_none_or_have_no_columns_are_left_out_with_keys_to_them(tmp_path: Path) -> None:
    nodes = {
        "model.shop.orders": _node("orders", {"name": "customer_id"}, {"name": "region"}),
        "model.shop.customers": _node("customers", {"name": "id"}, config={"materialized": "ephemeral"}),
        "model.shop.regions": _node("regions"),
        "test.a": _test("relationships", "customer_id", ["model.shop.customers", "model.shop.orders"], field="id"),
        "test.b": _test("relationships", "region", ["model.shop.regions", "model.shop.orders"], field="code"),
    }
    manifest = _write_json(tmp_path, "manifest.json", {**MANIFEST, "nodes": nodes, "sources": {}})
    schema = from_dbt(manifest)
    assert [(table.name, table.foreign_keys) for table in schema.tables] == [("orders", ())]
    assert from_json(_write_json(tmp_path, "schema.json", json.loads(to_json(schema)))) == schema


def test_catalog__is_read_where_it_stands_beside_the_manifest(tmp_path: Path) -> None:
    manifest = _write_json(tmp_path, "manifest.json", MANIFEST)
    source = SchemaSource(kind="dbt", location=str(manifest))
    without = source.read()
    catalog = _write_json(tmp_path, "catalog.json", CATALOG)
    assert source.read() == from_dbt(manifest, catalog) != without


def test_manifest__of_another_shape_is_refused(tmp_path: Path) -> None:
    shapes: list[Any] = [[], {"nodes": {"a": {}}}, {"nodes": {}, "sources": {}}, {"nodes": 3}]
    for data in shapes:
        with pytest.raises(SchemaInvalid, match="dbt's layout"):
            from_dbt(_write_json(tmp_path, "manifest.json", data))


def test_table_of_two_sources__is_read_once(tmp_path: Path) -> None:
    node = _node("users", {"name": "id"}, resource_type="source", database="raw")
    sources = {"source.shop.app.users": node, "source.shop.audit.users": {**node, "description": "again"}}
    (table,) = from_dbt(_write_json(tmp_path, "manifest.json", MANIFEST | {"nodes": {}, "sources": sources})).tables
    assert (table.full_name, table.comment) == ("mart.users", None)
    sources["source.shop.audit.users"]["database"] = "other"
    with pytest.raises(SchemaInvalid, match=r"two tables are named mart\.users"):
        from_dbt(_write_json(tmp_path, "manifest.json", MANIFEST | {"nodes": {}, "sources": sources}))


def test_what_only_the_second_source_of_a_table_has__is_read(tmp_path: Path) -> None:
    node = _node("users", {"name": "id"}, resource_type="source", database="raw")
    sources = {
        "source.shop.app.users": node,
        "source.shop.audit.users": {**node, "columns": {name: {"name": name} for name in ("email", "ID")}},
    }
    tests = {"test.a": _test("unique", "email", ["source.shop.audit.users"])}
    manifest = _write_json(tmp_path, "manifest.json", MANIFEST | {"nodes": tests, "sources": sources})
    (table,) = from_dbt(manifest).tables
    assert ([column.name for column in table.columns], table.unique) == (["id", "email"], (("email",),))


def test_tests__find_columns_that_the_catalog_has_in_capitals(tmp_path: Path) -> None:
    nodes = {
        "model.shop.orders": _node("orders", constraints=[{"type": "primary_key", "columns": ["id"]}]),
        "test.a": _test("not_null", "status", ["model.shop.orders"]),
        "test.b": _test("accepted_values", "status", ["model.shop.orders"], values=["open"]),
    }
    manifest = _write_json(tmp_path, "manifest.json", MANIFEST | {"nodes": nodes, "sources": {}})
    columns = {name: {"name": name, "index": at, "type": "TEXT"} for at, name in enumerate(["ID", "STATUS"])}
    catalog = {"nodes": {"model.shop.orders": {"columns": columns}}}
    (orders,) = from_dbt(manifest, _write_json(tmp_path, "catalog.json", catalog)).tables
    assert [(column.nullable, column.enum) for column in orders.columns] == [(False, ()), (False, ("open",))]


def test_keys__name_columns_as_the_catalog_does(tmp_path: Path) -> None:
    nodes = {
        "model.shop.orders": _node("orders", {"name": "customer_id"}),
        "model.shop.customers": _node("customers"),
        "test.a": _test("relationships", "customer_id", ["model.shop.customers", "model.shop.orders"], field="id"),
        "test.b": _test("unique", "id", ["model.shop.customers"]),
    }
    manifest = _write_json(tmp_path, "manifest.json", MANIFEST | {"nodes": nodes, "sources": {}})
    catalog = {"nodes": {"model.shop.customers": {"columns": {"ID": {"name": "ID", "index": 1, "type": "NUMBER"}}}}}
    orders, customers = from_dbt(manifest, _write_json(tmp_path, "catalog.json", catalog)).tables
    assert orders.foreign_keys == (ForeignKey(columns=("customer_id",), table="mart.customers", target=("ID",)),)
    assert customers.unique == (("ID",),)
