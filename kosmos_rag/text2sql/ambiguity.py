"""Ambiguities of a question about a schema.

They should be resolved before SQL is written.
"""

from collections.abc import Iterator, Mapping, Sequence

from kosmos_rag.text2sql.catalog.joins import JoinPlan
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.roles import foreign_keys_with_targets, is_measure, is_temporal, variant_keys
from kosmos_rag.text2sql.recipes import variant_note
from kosmos_rag.text2sql.records import Ambiguity, ColumnRef


def find_ambiguities(
    schema: DatabaseSchema, tables: Sequence[str], columns: Sequence[ColumnRef], plans: Sequence[JoinPlan]
) -> tuple[Ambiguity, ...]:
    """Find the ambiguities of these tables, columns and join plans.

    The result is deterministic.

    Args:
        tables: Full names of candidate tables; may hold more than those of `columns`.
        columns: The columns that the query uses.
        plans: Join plans of the tables.
    """
    selected = [table for name in dict.fromkeys(tables) if (table := schema.table(name)) is not None]
    used_columns = {name: {column for table, column in columns if table == name} for name, _ in columns}
    return (
        *_variants(schema, selected, used_columns),
        *_same_names(schema, selected, columns),
        *(ambiguity for plan in plans for ambiguity in _paths(plan)),
        *(
            ambiguity
            for table in selected
            for ambiguity in _several_rows(schema, table, used_columns.get(table.full_name, set()))
        ),
    )


def _variants(
    schema: DatabaseSchema, selected: Sequence[TableSchema], used_columns: Mapping[str, set[str]]
) -> Iterator[Ambiguity]:
    """Find used measures with rows per variant.

    A measure whose variant is used is left out. Each note comes once.
    """
    about: dict[str, list[str]] = {}
    for table in selected:
        columns = used_columns.get(table.full_name, set())
        if not any(column.name in columns and is_measure(table, column) for column in table.columns):
            continue
        for _, variant in variant_keys(schema, table):
            if not columns & set(variant.columns):
                about.setdefault(variant_note(variant.columns), []).extend(
                    f"{table.full_name}.{column}" for column in variant.columns
                )
    for text, names in about.items():
        yield Ambiguity(kind="variant", about=tuple(dict.fromkeys(names)), text=text)


def _same_names(
    schema: DatabaseSchema, selected: Sequence[TableSchema], columns: Sequence[ColumnRef]
) -> Iterator[Ambiguity]:
    """Find used columns whose name several tables have, keys excepted."""
    plain = {
        name
        for table_name, name in columns
        if (table := schema.table(table_name)) is not None and name not in table.key_columns
    }
    for name in dict.fromkeys(name for _, name in columns if name in plain):
        holders = [table for table in selected if table.column(name) and name not in table.key_columns]
        if len(holders) > 1:
            about = tuple(f"{table.full_name}.{name}" for table in holders)
            yield Ambiguity(
                kind="same_name", about=about, text=f"{name} is a column of several tables: {', '.join(about)}."
            )


def _paths(plan: JoinPlan) -> Iterator[Ambiguity]:
    if len(plan.paths) > 1:
        alternatives = " or ".join(f"({'; '.join(join.hint for join in path.joins)})" for path in plan.paths)
        more = ", and in more ways" if plan.more else ""
        text = f"{', '.join(plan.tables)} can be joined in several ways: {alternatives}{more}."
        yield Ambiguity(kind="join_path", about=plan.tables, text=text)


def _several_rows(schema: DatabaseSchema, table: TableSchema, used_columns: set[str]) -> Iterator[Ambiguity]:
    """Find measures with several rows over time for one parent."""
    measures = [column.name for column in table.columns if column.name in used_columns and is_measure(table, column)]
    if not measures:
        return
    moment = next((column for column in table.columns if is_temporal(column)), None)
    several = [key for key, _ in foreign_keys_with_targets(schema, table) if not table.identifies(key.columns)]
    if moment is None or not several:
        return
    yield Ambiguity(
        kind="aggregate_or_latest",
        about=tuple(f"{table.full_name}.{name}" for name in measures),
        text=f"There may be several rows of {table.full_name} for one row of {_parents(several)}: aggregate "
        f"{', '.join(measures)}, or take the latest row by {moment.name}.",
    )


def _parents(keys: Sequence[ForeignKey]) -> str:
    return " or ".join(dict.fromkeys(key.table for key in keys))
