"""SQL read against a schema: which tables and columns a query uses, and by which columns it joins."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, QueryRefused, first_line
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, TableSchema

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
class TableUse:
    """A place of a query where a table of the schema stands."""

    node: "exp.Table"
    """In the query as parsed."""
    alias: str
    """What the table is called there, folded as the database folds names."""
    table: TableSchema


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryReading:
    """What a query uses of a schema; what inner queries use comes first."""

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
    """Parse one query. Raises QueryRefused where it is none, or more than one; ConfigError without sqlglot."""
    try:
        import sqlglot
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
    except ModuleNotFoundError as error:
        raise ConfigError("reading SQL needs sqlglot: pip install 'kosmos-rag[schema]'") from error
    try:
        parsed = sqlglot.parse(sql, dialect=sqlglot_dialect(dialect))
        # A comment behind the last semicolon is no statement.
        statements = [found for found in parsed if found is not None and not isinstance(found, exp.Semicolon)]
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
    return read_tree(parse_query(sql, schema.dialect), schema)


def read_tree(tree: "exp.Query", schema: DatabaseSchema) -> QueryReading:
    """Read a query that is parsed already, and leave it as it is. Raises as `read_query`."""
    from sqlglot.errors import SqlglotError

    try:
        return _Reader(schema).read(tree)
    except (SqlglotError, RecursionError) as error:
        raise QueryRefused(
            "unreadable", f"the SQL cannot be read ({one_line(first_line(error))}); correct it"
        ) from error


def folded(identifier: "exp.Identifier", dialect: str | None) -> str:
    """Return a name as the database compares it: PostgreSQL knows `"Name"` from `name`, the others do not."""
    exact = dialect == "postgresql" and identifier.args.get("quoted")
    return identifier.name if exact else identifier.name.lower()


class _Reader:
    def __init__(self, schema: DatabaseSchema) -> None:
        self._dialect = schema.dialect
        self._namespace = _DEFAULT_NAMESPACE.get(schema.dialect or "")
        self._tables = {(self._fold(table.schema), self._fold(table.name)): table for table in schema.tables}

    def read(self, tree: "exp.Query") -> QueryReading:
        """Read a tree, and leave it as it is."""
        from sqlglot.optimizer.scope import traverse_scope

        uses = self._uses(tree)
        resolved: exp.Query = tree.copy()
        named = self._name_tables(resolved)
        self._fold_identifiers(resolved)
        self._read_text_in_double_quotes(resolved, named)
        qualified = self._qualify(resolved, named)
        found = dict(_columns(traverse_scope(qualified), named))
        return QueryReading(
            tree=tree,
            uses=tuple(uses),
            tables=tuple(dict.fromkeys(use.table.full_name for use in uses)),
            columns=tuple(dict.fromkeys(ref for _, ref in found.values())),
            joins=tuple(dict.fromkeys(_joins(qualified, found))),
        )

    def _fold(self, name: str | None) -> str | None:
        """Return a name of the schema as it is compared."""
        return name if name is None or self._dialect == "postgresql" else name.lower()

    def _fold_identifiers(self, tree: "exp.Query") -> None:
        from sqlglot import exp

        for identifier in tree.find_all(exp.Identifier):
            identifier.set("this", folded(identifier, self._dialect))

    def _uses(self, tree: "exp.Query") -> list[TableUse]:
        """Find the tables of the schema in a tree, those of inner queries first. All others are refused."""
        from sqlglot import exp
        from sqlglot.optimizer.scope import traverse_scope

        in_scopes = [node for scope in traverse_scope(tree) for node in scope.tables]
        # What is in no scope is no part of a query that is understood.
        nodes = {id(node): node for node in (*in_scopes, *tree.find_all(exp.Table))}.values()
        return [self._use(node) for node in nodes if not self._gives_rows(node) and not self._is_of_with(node)]

    def _gives_rows(self, node: "exp.Table") -> bool:
        """Whether a function stands in the place of a table."""
        from sqlglot import exp

        if not isinstance(node.this, exp.Identifier | exp.Func):
            raise QueryRefused("unknown_table", one_line(f"{node.sql()} is no table: take one of the schema"))
        return isinstance(node.this, exp.Func)

    def _is_of_with(self, node: "exp.Table") -> bool:
        """Whether a name is that of a WITH clause that is in sight at its place.

        In a clause without RECURSIVE a query sees those before it; `WITH x AS (SELECT * FROM x)` reads the table x.
        """
        name = folded(node.this, self._dialect)
        under: exp.Expr = node
        child: exp.Expr = node
        parent = node.parent
        while parent is not None and not node.args.get("db"):
            if (clause := parent.args.get("with_")) is not None:
                seen = clause.expressions
                if child is clause and not clause.args.get("recursive"):
                    seen = seen[: next(at for at, query in enumerate(seen) if query is under)]
                if any(folded(query.args["alias"].this, self._dialect) == name for query in seen):
                    return True
            under, child, parent = child, parent, parent.parent
        return False

    def _use(self, node: "exp.Table") -> TableUse:
        alias = node.args.get("alias")
        called = alias.this if alias is not None and alias.this is not None else node.this
        return TableUse(node=node, alias=folded(called, self._dialect), table=self._table(node))

    def _table(self, node: "exp.Table") -> TableSchema:
        name, given = folded(node.this, self._dialect), node.args.get("db")
        namespace = folded(given, self._dialect) if given else None
        places = (None, self._namespace) if namespace in (None, self._namespace) else (namespace,)
        for place in places:
            if not node.catalog and (table := self._tables.get((place, name))):
                return table
        written = ".".join(part for part in (node.catalog, node.db, node.name) if part)
        near = get_close_matches(written, [table.full_name for table in self._tables.values()], n=1)
        remedy = f"did you mean {near[0]}?" if near else "take one of the schema"
        raise QueryRefused("unknown_table", one_line(f"there is no table {written}: {remedy}"))

    def _name_tables(self, tree: "exp.Query") -> dict[str, TableSchema]:
        """Give each use of a table a name that nothing else in the query has, and return what is behind each."""
        from sqlglot import exp

        mark = "t"
        while any(identifier.name.lower().startswith(mark) for identifier in tree.find_all(exp.Identifier)):
            mark += "_"
        named: dict[str, TableSchema] = {}
        for use in self._uses(tree):
            key = f"{mark}{len(named)}"
            named[key] = use.table
            if not use.node.args.get("alias"):
                use.node.set("alias", exp.TableAlias(this=exp.to_identifier(use.alias, quoted=True)))
            use.node.set("this", exp.to_identifier(key, quoted=True))
            use.node.set("db", None)
        return named

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
