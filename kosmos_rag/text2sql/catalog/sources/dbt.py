"""dbt's manifest.json as a schema source, with catalog.json for types.

Models, seeds, snapshots and sources are tables. Keys come from constraints and from the tests `unique`, `relationships`
and `accepted_values`; formats: docs.getdbt.com/reference/artifacts/manifest-json (v4 to v12).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.sources.schema_json import read_json
from kosmos_rag.text2sql.errors import SchemaInvalid

_TABLES = ("model", "seed", "snapshot", "source")


@dataclass(kw_only=True, slots=True)
class _Constraints:
    """Constraints of one table, from declarations and tests."""

    primary_key: tuple[str, ...] = ()
    unique: list[tuple[str, ...]] = field(default_factory=list)
    not_null: set[str] = field(default_factory=set)
    """In lower case."""
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By column, in lower case."""
    keys: list[ForeignKey] = field(default_factory=list)


def from_dbt(manifest: Path, catalog: Path | None = None, *, name: str | None = None) -> DatabaseSchema:
    """Read the tables of a dbt project.

    Ephemeral models are not tables, nor are those without known columns.

    Args:
        manifest: Path of manifest.json.
        catalog: Path of catalog.json, for types; None takes the types of the manifest.
        name: Name of the schema; the project's name by default.

    Raises:
        SchemaInvalid: A file cannot be read, or is not in dbt's layout.
    """
    data = read_json(manifest)
    catalog_data = read_json(catalog) if catalog else {}
    try:
        nodes = {**data["nodes"], **data.get("sources", {})}
        columns = {**catalog_data.get("nodes", {}), **catalog_data.get("sources", {})}
        tables = {
            key: node
            for key, node in nodes.items()
            if _is_table(node) and (node.get("columns") or columns.get(key, {}).get("columns"))
        }
        names = {key: _full_name(node) for key, node in tables.items()}
        # Two sources may describe one table: the first one counts, with what only the other one has.
        first: dict[tuple[Any, str], str] = {}
        owners = {key: first.setdefault((node.get("database"), names[key]), key) for key, node in tables.items()}
        facts = _collect_constraints(nodes, tables, names, owners)
        for key, owner in owners.items():
            tables[owner] = {**tables[owner], "columns": _merge_columns(tables[owner], tables[key])}
        records = [_table(tables[key], columns.get(key, {}), facts[key]) for key in tables if owners[key] == key]
        project = data["metadata"].get("project_name") or "dbt"
        adapter = data["metadata"].get("adapter_type")
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        fault = f"{type(error).__name__} {error}: it is not in dbt's layout"
        raise SchemaInvalid(f"file {manifest}", [fault]) from error
    dialect = "postgresql" if adapter == "postgres" else adapter
    return DatabaseSchema(name=name or project, dialect=dialect, tables=tuple(_match_columns(records)))


def _match_columns(tables: Sequence[TableSchema]) -> Iterator[TableSchema]:
    """Yield tables whose keys name columns as the tables do.

    Snowflake's catalog has `ID` where a test has `id`.
    """
    columns = {table.full_name: {column.name.lower(): column.name for column in table.columns} for table in tables}

    def match(table: str, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(columns[table].get(name.lower(), name) for name in names)

    for table in tables:
        keys = [
            replace(key, columns=match(table.full_name, key.columns), target=match(key.table, key.target))
            for key in table.foreign_keys
        ]
        yield replace(
            table,
            primary_key=match(table.full_name, table.primary_key),
            unique=tuple(match(table.full_name, names) for names in table.unique),
            foreign_keys=tuple(dict.fromkeys(keys)),
        )


def _merge_columns(*nodes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the columns of nodes by name; of equal names the first counts."""
    columns: dict[str, Any] = {}
    for node in nodes:
        for column in (node.get("columns") or {}).values():
            columns.setdefault(column["name"].lower(), column)
    return columns


def _is_table(node: Mapping[str, Any]) -> bool:
    kind = (node.get("config") or {}).get("materialized")
    return node["resource_type"] in _TABLES and kind != "ephemeral"


def _full_name(node: Mapping[str, Any]) -> str:
    return f"{node['schema']}.{_relation(node)}" if node.get("schema") else _relation(node)


def _relation(node: Mapping[str, Any]) -> str:
    return str(node.get("identifier") or node.get("alias") or node["name"])


def _table(node: Mapping[str, Any], catalog_node: Mapping[str, Any], constraints: _Constraints) -> TableSchema:
    manifest_columns = _merge_columns(node)
    catalog_columns = sorted((catalog_node.get("columns") or {}).values(), key=lambda column: column["index"])
    in_catalog = {column["name"].lower(): column for column in catalog_columns}
    names = dict.fromkeys([*in_catalog, *manifest_columns])
    return TableSchema(
        name=_relation(node),
        schema=node.get("schema") or None,
        model=node["name"],
        module=node.get("package_name"),
        source_file=node.get("original_file_path"),
        comment=node.get("description") or None,
        columns=tuple(_column(manifest_columns.get(name, {}), in_catalog.get(name, {}), constraints) for name in names),
        primary_key=constraints.primary_key,
        foreign_keys=tuple(dict.fromkeys(constraints.keys)),
        unique=tuple(dict.fromkeys(constraints.unique)),
    )


def _column(
    manifest_column: Mapping[str, Any], catalog_entry: Mapping[str, Any], constraints: _Constraints
) -> ColumnSchema:
    name = str(manifest_column.get("name") or catalog_entry["name"])
    return ColumnSchema(
        name=name,
        type=str(catalog_entry.get("type") or manifest_column.get("data_type") or ""),
        nullable=name.lower() not in constraints.not_null.union(map(str.lower, constraints.primary_key)),
        comment=manifest_column.get("description") or catalog_entry.get("comment") or None,
        enum=constraints.values.get(name.lower(), ()),
    )


def _collect_constraints(
    nodes: Mapping[str, Any], tables: Mapping[str, Any], names: Mapping[str, str], owners: Mapping[str, str]
) -> Mapping[str, _Constraints]:
    constraints: defaultdict[str, _Constraints] = defaultdict(_Constraints)
    for key, node in tables.items():
        for columns, constraint in _constraints(node):
            _add_constraint(constraints[owners[key]], columns, constraint, names)
    for node in nodes.values():
        test = node.get("test_metadata") if node["resource_type"] == "test" else None
        if test and (owner := _owner(node, tables)) is not None:
            _add_test(constraints[owners[owner]], owner, test, node, names)
    return constraints


def _constraints(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    for constraint in node.get("constraints") or ():
        yield tuple(constraint.get("columns") or ()), constraint
    for column in (node.get("columns") or {}).values():
        for constraint in column.get("constraints") or ():
            yield (str(column["name"]),), constraint


def _add_constraint(
    constraints: _Constraints, columns: tuple[str, ...], constraint: Mapping[str, Any], names: Mapping[str, str]
) -> None:
    kind = constraint["type"]
    if kind == "primary_key":
        constraints.primary_key = columns
    elif kind == "unique":
        constraints.unique.append(columns)
    elif kind == "not_null":
        constraints.not_null.update(map(str.lower, columns))
    elif kind == "foreign_key" and constraint.get("to") and constraint.get("to_columns"):
        # Compiled, the target is written as the database has it: "db"."schema"."table".
        parts = [part.strip('"`[]') for part in str(constraint["to"]).split(".")]
        target = next((name for name in names.values() if name.split(".") == parts[-name.count(".") - 1 :]), None)
        if target:
            constraints.keys.append(ForeignKey(columns=columns, table=target, target=tuple(constraint["to_columns"])))


def _owner(node: Mapping[str, Any], tables: Mapping[str, Any]) -> str | None:
    """Return the table of a test.

    Before v12 it is the last one that the test depends on.
    """
    model = node.get("attached_node")
    if model in tables:
        return str(model)
    depends = [key for key in node["depends_on"]["nodes"] if key in tables]
    return depends[-1] if depends else None


def _add_test(
    constraints: _Constraints, owner: str, test: Mapping[str, Any], node: Mapping[str, Any], names: Mapping[str, str]
) -> None:
    arguments = test.get("kwargs") or {}
    column = node.get("column_name") or arguments.get("column_name")
    if not column:
        return
    kind = test["name"]
    if kind == "unique":
        constraints.unique.append((str(column),))
    elif kind == "not_null":
        constraints.not_null.add(str(column).lower())
    elif kind == "accepted_values":
        constraints.values[str(column).lower()] = tuple(str(value) for value in arguments["values"])
    elif kind == "relationships":
        referenced = [key for key in node["depends_on"]["nodes"] if key != owner]
        target = names.get(referenced[0] if referenced else owner)  # a table may refer to itself
        if target:
            constraints.keys.append(ForeignKey(columns=(str(column),), table=target, target=(str(arguments["field"]),)))
