"""Columns that a table has and its schema lacks: no query may show them, or be decided by them.

Which name means which column is the database's own matter, and a name that the schema gives to one thing may be that of
a hidden column for the database. So a query that may mean such a column is refused, whatever else it may mean.
"""

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import QueryRefused
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.sql.analyze import QueryReading, folded

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hiding:
    """A place of the query where a table with hidden columns stands."""

    select: "exp.Expr | None"
    alias: str
    columns: Set[str]


def check_exposure(reading: QueryReading, schema: DatabaseSchema, found: Mapping[str, Collection[str]]) -> None:
    """Check that a query shows no column beside those of its schema.

    `found` are the columns that the database has, by full name of the table. Raises QueryRefused.
    """
    hiding = list(_hiding(reading, schema, found))
    if not hiding:
        return
    _no_hidden_names(reading, schema.dialect, hiding)
    _no_whole_rows(reading, hiding)


def _hiding(reading: QueryReading, schema: DatabaseSchema, found: Mapping[str, Collection[str]]) -> Iterator[_Hiding]:
    from sqlglot import exp

    known = str if schema.dialect == "postgresql" else str.lower
    for use in reading.uses:
        own = {known(column.name) for column in use.table.columns}
        if hidden := {known(name) for name in found.get(use.table.full_name, ())} - own:
            yield _Hiding(select=use.node.find_ancestor(exp.Select), alias=use.alias, columns=hidden)


def _no_hidden_names(reading: QueryReading, dialect: str | None, hiding: Collection[_Hiding]) -> None:
    """Refuse names that are those of hidden columns, and rows as a whole under the name of their table."""
    from sqlglot import exp

    hidden = frozenset[str]().union(*(place.columns for place in hiding))
    aliases = {place.alias for place in hiding} | set(_names_of_joins(reading.tree, dialect))
    taken = {(place.alias, name) for place in hiding for name in place.columns}
    fold = str if dialect == "postgresql" else str.lower
    known = {(use.alias, fold(column.name)) for use in reading.uses for column in use.table.columns}
    for column in reading.tree.find_all(exp.Column):
        if isinstance(column.this, exp.Identifier):
            name = folded(column.this, dialect)
            table = folded(column.args["table"], dialect) if column.args.get("table") else None
            if table is None and name in aliases:
                _refuse(column.sql(), "name the columns")
            if name in hidden and ((table, name) not in known or (table, name) in taken):
                _refuse(column.sql(), "write the name of its table before it")
    for join in reading.tree.find_all(exp.Join):
        using = {folded(part, dialect) for given in join.args.get("using") or () for part in _identifiers(given)}
        if join.method.upper() == "NATURAL" or using & hidden:
            _refuse("the join", "join ON columns of the schema")


def _names_of_joins(tree: "exp.Query", dialect: str | None) -> Iterator[str]:
    """Give the names of joins in parentheses, which stand for the rows of all their tables."""
    from sqlglot import exp

    for joined in tree.find_all(exp.Subquery):
        alias = joined.args.get("alias")
        if isinstance(joined.this, exp.Table) and alias is not None and isinstance(alias.this, exp.Identifier):
            yield folded(alias.this, dialect)


def _identifiers(tree: "exp.Expr") -> "Iterator[exp.Identifier]":
    from sqlglot import exp

    return tree.find_all(exp.Identifier)


def _no_whole_rows(reading: QueryReading, hiding: Collection[_Hiding]) -> None:
    from sqlglot import exp

    for alias in reading.tree.find_all(exp.TableAlias):
        given = alias.parent
        of_query = isinstance(given, exp.UDTF) or (given is not None and isinstance(given.this, exp.Query | exp.Func))
        if alias.columns and not of_query:
            _refuse(alias.sql(), "leave columns of tables their names")
    for star in reading.tree.find_all(exp.Star):
        if isinstance(star.parent, exp.Count):
            continue
        if any(place.select is star.find_ancestor(exp.Select) for place in hiding):
            _refuse("*", "name the columns")


def _refuse(what: str, remedy: str) -> None:
    raise QueryRefused("unknown_column", one_line(f"{what} may be a column that the schema does not have: {remedy}"))
