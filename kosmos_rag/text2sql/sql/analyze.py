"""Analyze SQL against a schema: tables, columns and join columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import first_line
from kosmos_rag.core.extras import require_extra
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, TableSchema
from kosmos_rag.text2sql.errors import QueryRefused
from kosmos_rag.text2sql.records import ColumnRef

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

_NAMED = "named"
"""Marks columns that the query names, in contrast to those that a star expands to."""
_DEFAULT_NAMESPACE = {"postgresql": "public", "sqlite": "main"}
_SQLGLOT_NAMES = {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TableUse:
    """One occurrence of a schema table in a query."""

    node: "exp.Table"
    """In the query as parsed."""
    alias: str
    """Its alias in the query, fold_identifier as the database folds names."""
    table: TableSchema


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryAnalysis:
    """Tables, columns and joins of a query, inner queries first."""

    tree: "exp.Query"
    """The query as parsed."""
    uses: tuple[TableUse, ...]
    tables: tuple[str, ...]
    columns: tuple[ColumnRef, ...]
    """Columns of tables; a star names none."""
    joins: tuple[tuple[ColumnRef, ColumnRef], ...]
    """Equalities between columns of two tables, or of one table under two names; each in the order of the names."""


def sqlglot_dialect(dialect: str | None) -> str:
    """Return sqlglot's name of a dialect."""
    return _SQLGLOT_NAMES.get(dialect or "", dialect or "")


def parse_query(sql: str, dialect: str | None) -> "exp.Query":
    """Parse one query.

    Raises:
        QueryRefused: The SQL is malformed, not a query, or more than one statement.
        ConfigError: sqlglot is not installed.
    """
    require_extra("schema", "reading SQL", "sqlglot")
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        parsed = sqlglot.parse(sql, dialect=sqlglot_dialect(dialect))
        # A comment behind the last semicolon is no statement.
        statements = [
            statement for statement in parsed if statement is not None and not isinstance(statement, exp.Semicolon)
        ]
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


def analyze_query(sql: str, schema: DatabaseSchema) -> QueryAnalysis:
    """Parse a query and resolve its tables and columns.

    Raises:
        QueryRefused: It is not a query, or uses tables or columns that the schema lacks.
    """
    return analyze_tree(parse_query(sql, schema.dialect), schema)


def analyze_tree(tree: "exp.Query", schema: DatabaseSchema) -> QueryAnalysis:
    """Resolve the tables and columns of a parsed query, left unchanged.

    Raises as `analyze_query`.
    """
    from sqlglot.errors import SqlglotError

    try:
        return _Analyzer(schema).analyze(tree)
    except (SqlglotError, RecursionError) as error:
        raise QueryRefused(
            "unreadable", f"the SQL cannot be read ({one_line(first_line(error))}); correct it"
        ) from error


def fold_identifier(identifier: "exp.Identifier", dialect: str | None) -> str:
    """Return a name as the database compares it.

    PostgreSQL distinguishes quoted names by case; the other databases do not.
    """
    exact = dialect == "postgresql" and identifier.args.get("quoted")
    return identifier.name if exact else identifier.name.lower()


class _Analyzer:
    def __init__(self, schema: DatabaseSchema) -> None:
        self._dialect = schema.dialect
        self._namespace = _DEFAULT_NAMESPACE.get(schema.dialect or "")
        self._tables = {(self._fold(table.schema), self._fold(table.name)): table for table in schema.tables}

    def analyze(self, tree: "exp.Query") -> QueryAnalysis:
        """Resolve a tree, left unchanged."""
        from sqlglot.optimizer.scope import traverse_scope

        uses = self._uses(tree)
        resolved: exp.Query = tree.copy()
        table_by_alias = self._name_tables(resolved)
        self._fold_identifiers(resolved)
        self._read_text_in_double_quotes(resolved, table_by_alias)
        qualified = self._qualify(resolved, table_by_alias)
        column_uses = dict(_columns(traverse_scope(qualified), table_by_alias))
        return QueryAnalysis(
            tree=tree,
            uses=tuple(uses),
            tables=tuple(dict.fromkeys(use.table.full_name for use in uses)),
            columns=tuple(dict.fromkeys(ref for _, ref in column_uses.values())),
            joins=tuple(dict.fromkeys(_joins(qualified, column_uses))),
        )

    def _fold(self, name: str | None) -> str | None:
        """Return a schema name in the form that comparisons use."""
        return name if name is None or self._dialect == "postgresql" else name.lower()

    def _fold_identifiers(self, tree: "exp.Query") -> None:
        from sqlglot import exp

        for identifier in tree.find_all(exp.Identifier):
            identifier.set("this", fold_identifier(identifier, self._dialect))

    def _uses(self, tree: "exp.Query") -> list[TableUse]:
        """Find the schema's tables in a tree, inner queries first.

        Raises QueryRefused on any other table.
        """
        from sqlglot import exp
        from sqlglot.optimizer.scope import traverse_scope

        in_scopes = [node for scope in traverse_scope(tree) for node in scope.tables]
        # A table outside of all scopes is refused like an unknown one.
        nodes = {id(node): node for node in (*in_scopes, *tree.find_all(exp.Table))}.values()
        return [self._use(node) for node in nodes if not self._is_table_function(node) and not self._is_cte(node)]

    def _is_table_function(self, node: "exp.Table") -> bool:
        """Return whether a function replaces a table."""
        from sqlglot import exp

        if not isinstance(node.this, exp.Identifier | exp.Func):
            raise QueryRefused("unknown_table", one_line(f"{node.sql()} is no table: take one of the schema"))
        return isinstance(node.this, exp.Func)

    def _is_cte(self, node: "exp.Table") -> bool:
        """Return whether a name refers to a visible common table expression."""
        name = fold_identifier(node.this, self._dialect)
        grandchild: exp.Expr = node
        child: exp.Expr = node
        parent = node.parent
        while parent is not None and not node.args.get("db"):
            if (clause := parent.args.get("with_")) is not None:
                visible = clause.expressions
                if child is clause and not clause.args.get("recursive"):
                    visible = visible[: next(at for at, query in enumerate(visible) if query is grandchild)]
                if any(fold_identifier(query.args["alias"].this, self._dialect) == name for query in visible):
                    return True
            grandchild, child, parent = child, parent, parent.parent
        return False

    def _use(self, node: "exp.Table") -> TableUse:
        alias = node.args.get("alias")
        identifier = alias.this if alias is not None and alias.this is not None else node.this
        return TableUse(node=node, alias=fold_identifier(identifier, self._dialect), table=self._table(node))

    def _table(self, node: "exp.Table") -> TableSchema:
        name, db = fold_identifier(node.this, self._dialect), node.args.get("db")
        namespace = fold_identifier(db, self._dialect) if db else None
        namespaces = (None, self._namespace) if namespace in (None, self._namespace) else (namespace,)
        for candidate in namespaces:
            if not node.catalog and (table := self._tables.get((candidate, name))):
                return table
        qualified = ".".join(part for part in (node.catalog, node.db, node.name) if part)
        near = get_close_matches(qualified, [table.full_name for table in self._tables.values()], n=1)
        remedy = f"did you mean {near[0]}?" if near else "take one of the schema"
        raise QueryRefused("unknown_table", one_line(f"there is no table {qualified}: {remedy}"))

    def _name_tables(self, tree: "exp.Query") -> dict[str, TableSchema]:
        """Rename each table use uniquely, and return the tables by new name."""
        from sqlglot import exp

        prefix = "t"
        while any(identifier.name.lower().startswith(prefix) for identifier in tree.find_all(exp.Identifier)):
            prefix += "_"
        tables: dict[str, TableSchema] = {}
        for use in self._uses(tree):
            key = f"{prefix}{len(tables)}"
            tables[key] = use.table
            if not use.node.args.get("alias"):
                use.node.set("alias", exp.TableAlias(this=exp.to_identifier(use.alias, quoted=True)))
            use.node.set("this", exp.to_identifier(key, quoted=True))
            use.node.set("db", None)
        return tables

    def _read_text_in_double_quotes(self, tree: "exp.Query", tables: dict[str, TableSchema]) -> None:
        """Read unknown double-quoted names as text: sqlite.org/quirks.html#dblquote."""
        from sqlglot import exp

        if self._dialect != "sqlite":
            return
        names = {column.name.lower() for table in tables.values() for column in table.columns}
        names |= {alias.alias for alias in tree.find_all(exp.Alias)}
        for column in list(tree.find_all(exp.Column)):
            name = column.this
            if isinstance(name, exp.Identifier) and name.quoted and not column.table and name.name not in names:
                column.replace(exp.Literal.string(name.name))

    def _qualify(self, tree: "exp.Query", tables: dict[str, TableSchema]) -> "exp.Query":
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
            key: {str(self._fold(column.name)): "text" for column in table.columns} for key, table in tables.items()
        }
        dialect = sqlglot_dialect(self._dialect)
        mapping = MappingSchema(columns, dialect=dialect, normalize=False)
        try:
            return qualify(tree, dialect=dialect, schema=mapping, quote_identifiers=False)
        except (SqlglotError, RecursionError) as error:
            message = one_line(first_line(error))
            raise QueryRefused(
                "unknown_column", f"{message}; take columns of the tables that the query names"
            ) from error


_ColumnUse = tuple[str, ColumnRef]


def _columns(scopes: list["Scope"], tables: dict[str, TableSchema]) -> Iterator[tuple[int, _ColumnUse]]:
    """Yield each use of a table's column, with the table's alias."""
    from sqlglot import exp

    for scope in scopes:
        for column in scope.columns:
            source: Any = scope.sources.get(column.table)
            if _NAMED in column.meta and isinstance(source, exp.Table) and (table := tables.get(source.name)):
                name = next(
                    (item.name for item in table.columns if item.name.lower() == column.name.lower()), column.name
                )
                yield id(column), (column.table, (table.full_name, name))


def _joins(tree: "exp.Query", column_uses: dict[int, _ColumnUse]) -> Iterator[tuple[ColumnRef, ColumnRef]]:
    from sqlglot import exp

    for equality in tree.find_all(exp.EQ):
        left, right = column_uses.get(id(equality.left)), column_uses.get(id(equality.right))
        if left and right and left[0] != right[0]:
            first, second = sorted((left[1], right[1]))
            yield first, second
