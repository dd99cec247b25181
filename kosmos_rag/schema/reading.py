"""SQL read against a schema: which tables and columns a query uses, and by which columns it joins."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from kosmos_rag.config.display import one_line
from kosmos_rag.errors import ConfigError, QueryRefused, first_line
from kosmos_rag.schema.model import DatabaseSchema, TableSchema

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

ColumnRef = tuple[str, str]
"""Full name of a table, name of a column."""

_NAMED = "named"
"""Marks columns that the query names, apart from those that stand behind a star."""
_DEFAULT_NAMESPACE = {"postgresql": "public", "sqlite": "main"}
_SQLGLOT_NAMES = {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryReading:
    """What a query uses of a schema; what inner queries use comes first."""

    tree: "exp.Query"
    """The query as parsed."""
    tables: tuple[str, ...]
    columns: tuple[ColumnRef, ...]
    """Columns of tables; a star names none."""
    joins: tuple[tuple[ColumnRef, ColumnRef], ...]
    """Equalities between columns of two tables, or of one table under two names; each in the order of the names."""


def sqlglot_dialect(dialect: str | None) -> str:
    """Return sqlglot's name of a dialect."""
    return _SQLGLOT_NAMES.get(dialect or "", dialect or "")


def parse_query(sql: str, dialect: str | None) -> "exp.Query":
    """Parse one query. Raises QueryRefused where it is none, or more than one; ConfigError without sqlglot."""
    try:
        import sqlglot
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
    except ModuleNotFoundError as error:
        raise ConfigError("reading SQL needs sqlglot: pip install 'kosmos-rag[schema]'") from error
    try:
        statements = [found for found in sqlglot.parse(sql, dialect=sqlglot_dialect(dialect)) if found is not None]
    except (SqlglotError, RecursionError) as error:
        raise QueryRefused(
            "unreadable", f"the SQL cannot be read ({one_line(first_line(error))}); correct it"
        ) from error
    if len(statements) != 1:
        raise QueryRefused("several_statements", f"{len(statements)} statements were given: give one")
    (tree,) = statements
    if not isinstance(tree, exp.Query):
        raise QueryRefused("not_a_query", f"{tree.key.upper()} is no query: only SELECT is run")
    return tree


def read_query(sql: str, schema: DatabaseSchema) -> QueryReading:
    """Read a query of the tables of a schema.

    Raises QueryRefused where it is no query, and on a table or column that the schema does not have.
    """
    tree = parse_query(sql, schema.dialect)
    return _Reader(schema).read(tree)


class _Reader:
    def __init__(self, schema: DatabaseSchema) -> None:
        self._dialect = schema.dialect
        self._namespace = _DEFAULT_NAMESPACE.get(schema.dialect or "")
        self._tables = {(self._fold(table.schema), self._fold(table.name)): table for table in schema.tables}

    def read(self, tree: "exp.Query") -> QueryReading:
        """Read a tree, and leave it as it is."""
        from sqlglot.optimizer.scope import traverse_scope

        resolved: exp.Query = tree.copy()
        self._fold_identifiers(resolved)
        named = self._name_tables(resolved)
        self._read_text_in_double_quotes(resolved, named)
        qualified = self._qualify(resolved, named)
        found = dict(_columns(traverse_scope(qualified), named))
        return QueryReading(
            tree=tree,
            tables=tuple(dict.fromkeys(table.full_name for table in named.values())),
            columns=tuple(dict.fromkeys(ref for _, ref in found.values())),
            joins=tuple(dict.fromkeys(_joins(qualified, found))),
        )

    def _fold(self, name: str | None) -> str | None:
        """Return a name as it is compared: PostgreSQL knows `Name` from `name`, the others do not."""
        return name if name is None or self._dialect == "postgresql" else name.lower()

    def _fold_identifiers(self, tree: "exp.Query") -> None:
        from sqlglot import exp

        for identifier in tree.find_all(exp.Identifier):
            if self._dialect != "postgresql" or not identifier.args.get("quoted"):
                identifier.set("this", identifier.name.lower())

    def _name_tables(self, tree: "exp.Query") -> dict[str, TableSchema]:
        """Give each use of a table a name of its own, and return what is behind each."""
        from sqlglot import exp
        from sqlglot.optimizer.scope import traverse_scope

        named: dict[str, TableSchema] = {}
        seen: set[int] = set()
        for scope in traverse_scope(tree):
            for node in scope.tables:
                seen.add(id(node))
                if isinstance(scope.sources.get(node.alias_or_name), exp.Table) or node.args.get("db"):
                    self._name(node, named)
        # What is in no scope is no part of a query that is understood.
        for node in tree.find_all(exp.Table):
            if id(node) not in seen and isinstance(node.this, exp.Identifier):
                self._name(node, named)
        return named

    def _name(self, node: "exp.Table", named: dict[str, TableSchema]) -> None:
        from sqlglot import exp

        if not isinstance(node.this, exp.Identifier):  # a function that gives rows
            return
        table = self._table(node)
        key = f"t{len(named)}"
        named[key] = table
        if not node.args.get("alias"):
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
        node.set("this", exp.to_identifier(key, quoted=True))
        node.set("db", None)

    def _table(self, node: "exp.Table") -> TableSchema:
        given = node.db or None
        places = (None, self._namespace) if given in (None, self._namespace) else (given,)
        for place in places:
            if not node.catalog and (table := self._tables.get((place, node.name))):
                return table
        written = ".".join(part for part in (node.catalog, node.db, node.name) if part)
        near = get_close_matches(written, [table.full_name for table in self._tables.values()], n=1)
        remedy = f"did you mean {near[0]}?" if near else "take one of the schema"
        raise QueryRefused("unknown_table", one_line(f"there is no table {written}: {remedy}"))

    def _read_text_in_double_quotes(self, tree: "exp.Query", named: dict[str, TableSchema]) -> None:
        """Take a name in double quotes that names nothing for text: sqlite.org/quirks.html#dblquote."""
        from sqlglot import exp

        if self._dialect != "sqlite":
            return
        names = {column.name.lower() for table in named.values() for column in table.columns}
        names |= {alias.alias for alias in tree.find_all(exp.Alias)}
        for column in list(tree.find_all(exp.Column)):
            name = column.this
            if isinstance(name, exp.Identifier) and name.quoted and not column.table and name.name not in names:
                column.replace(exp.Literal.string(name.name))

    def _qualify(self, tree: "exp.Query", named: dict[str, TableSchema]) -> "exp.Query":
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
        from sqlglot.optimizer.qualify import qualify
        from sqlglot.schema import MappingSchema

        for column in tree.find_all(exp.Column):
            column.set("db", None)
            column.meta[_NAMED] = True
        for identifier in tree.find_all(exp.Identifier):
            identifier.set("quoted", True)
        columns: dict[str, object] = {
            key: {str(self._fold(column.name)): "text" for column in table.columns} for key, table in named.items()
        }
        dialect = sqlglot_dialect(self._dialect)
        known = MappingSchema(columns, dialect=dialect, normalize=False)
        try:
            return qualify(tree, dialect=dialect, schema=known, quote_identifiers=False)
        except (SqlglotError, RecursionError) as error:
            said = one_line(first_line(error))
            raise QueryRefused("unknown_column", f"{said}; take columns of the tables that the query names") from error


_Found = tuple[str, ColumnRef]


def _columns(scopes: list["Scope"], named: dict[str, TableSchema]) -> Iterator[tuple[int, _Found]]:
    """Find each use of a column of a table, with the name that the table goes by there."""
    from sqlglot import exp

    for scope in scopes:
        for column in scope.columns:
            source: Any = scope.sources.get(column.table)
            if _NAMED in column.meta and isinstance(source, exp.Table) and (table := named.get(source.name)):
                own = next(
                    (item.name for item in table.columns if item.name.lower() == column.name.lower()), column.name
                )
                yield id(column), (column.table, (table.full_name, own))


def _joins(tree: "exp.Query", found: dict[int, _Found]) -> Iterator[tuple[ColumnRef, ColumnRef]]:
    from sqlglot import exp

    for equality in tree.find_all(exp.EQ):
        left, right = found.get(id(equality.left)), found.get(id(equality.right))
        if left and right and left[0] != right[0]:
            one, other = sorted((left[1], right[1]))
            yield one, other
