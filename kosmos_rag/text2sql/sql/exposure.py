"""Hidden columns: columns of a table that its schema lacks.

No query may return them or depend on them. The database resolves names by its own rules, and a name of the schema may
mean a hidden column for the database. So a query that may mean such a column is refused.
"""

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kosmos_rag.core.config.display import one_line
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.errors import QueryRefused
from kosmos_rag.text2sql.sql.analyze import QueryAnalysis, fold_identifier

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True, kw_only=True, slots=True)
class _HiddenColumns:
    """One use of a table that has hidden columns."""

    select: "exp.Expr | None"
    alias: str
    columns: Set[str]


def check_exposure(
    analysis: QueryAnalysis, schema: DatabaseSchema, database_columns: Mapping[str, Collection[str]]
) -> None:
    """Refuse a query that may read columns outside of the schema.

    Args:
        schema: The schema that the reader may use.
        database_columns: Columns of the database, by full name of the table.

    Raises:
        QueryRefused: The query may read a hidden column.
    """
    hidden = list(_find_hidden_columns(analysis, schema, database_columns))
    if not hidden:
        return
    _refuse_hidden_names(analysis, schema.dialect, hidden)
    _refuse_whole_rows(analysis, hidden)


def _find_hidden_columns(
    analysis: QueryAnalysis, schema: DatabaseSchema, database_columns: Mapping[str, Collection[str]]
) -> Iterator[_HiddenColumns]:
    from sqlglot import exp

    fold = str if schema.dialect == "postgresql" else str.lower
    for use in analysis.uses:
        schema_columns = {fold(column.name) for column in use.table.columns}
        if hidden := {fold(name) for name in database_columns.get(use.table.full_name, ())} - schema_columns:
            yield _HiddenColumns(select=use.node.find_ancestor(exp.Select), alias=use.alias, columns=hidden)


def _refuse_hidden_names(analysis: QueryAnalysis, dialect: str | None, hidden_uses: Collection[_HiddenColumns]) -> None:
    """Refuse names of hidden columns, and whole rows by table name."""
    from sqlglot import exp

    hidden = frozenset[str]().union(*(table_use.columns for table_use in hidden_uses))
    aliases = {table_use.alias for table_use in hidden_uses} | set(_join_aliases(analysis.tree, dialect))
    hidden_pairs = {(table_use.alias, name) for table_use in hidden_uses for name in table_use.columns}
    fold = str if dialect == "postgresql" else str.lower
    described_columns = {(use.alias, fold(column.name)) for use in analysis.uses for column in use.table.columns}
    for column in analysis.tree.find_all(exp.Column):
        if isinstance(column.this, exp.Identifier):
            name = fold_identifier(column.this, dialect)
            table = fold_identifier(column.args["table"], dialect) if column.args.get("table") else None
            if table is None and name in aliases:
                _refuse(column.sql(), "name the columns")
            if name in hidden and ((table, name) not in described_columns or (table, name) in hidden_pairs):
                _refuse(column.sql(), "write the name of its table before it")
    for join in analysis.tree.find_all(exp.Join):
        using = {fold_identifier(part, dialect) for item in join.args.get("using") or () for part in _identifiers(item)}
        if join.method.upper() == "NATURAL" or using & hidden:
            _refuse("the join", "join ON columns of the schema")


def _join_aliases(tree: "exp.Query", dialect: str | None) -> Iterator[str]:
    """Yield the aliases of parenthesised joins.

    Such an alias covers the rows of all their tables.
    """
    from sqlglot import exp

    for joined in tree.find_all(exp.Subquery):
        alias = joined.args.get("alias")
        if isinstance(joined.this, exp.Table) and alias is not None and isinstance(alias.this, exp.Identifier):
            yield fold_identifier(alias.this, dialect)


def _identifiers(tree: "exp.Expr") -> "Iterator[exp.Identifier]":
    from sqlglot import exp

    return tree.find_all(exp.Identifier)


def _refuse_whole_rows(analysis: QueryAnalysis, hidden_uses: Collection[_HiddenColumns]) -> None:
    from sqlglot import exp

    for alias in analysis.tree.find_all(exp.TableAlias):
        parent = alias.parent
        of_query = isinstance(parent, exp.UDTF) or (
            parent is not None and isinstance(parent.this, exp.Query | exp.Func)
        )
        if alias.columns and not of_query:
            _refuse(alias.sql(), "leave columns of tables their names")
    for star in analysis.tree.find_all(exp.Star):
        if isinstance(star.parent, exp.Count):
            continue
        if any(table_use.select is star.find_ancestor(exp.Select) for table_use in hidden_uses):
            _refuse("*", "name the columns")


def _refuse(subject: str, remedy: str) -> None:
    raise QueryRefused("unknown_column", one_line(f"{subject} may be a column that the schema does not have: {remedy}"))
