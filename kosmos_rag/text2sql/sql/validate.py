"""The text of a query, checked before it comes near a database: what is not known to be harmless is refused.

This is the first fence. The others are the read-only transaction, the role, and the limits of execution.py.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import QueryRefused, first_line
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.sql.analyze import QueryReading, parse_query, read_tree, sqlglot_dialect

if TYPE_CHECKING:
    from sqlglot import exp

_WORD = re.compile(r"\w+")
_PARAMETER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CALL = re.compile(r'\s*("(?:[^"]|"")+"|[^\W\d][\w$.]*)\s*\(')
_SYNTAX = frozenset(("all", "any", "array", "case", "cast", "exists", "in", "interval", "not", "row", "some"))
"""What is written with a parenthesis behind it and is no function."""

_TYPES = frozenset(
    (
        *("box", "cidr", "circle", "citext", "cube", "jsonpath", "line", "lquery", "ltree", "ltxtquery", "macaddr"),
        *("macaddr8", "path", "pg_lsn", "polygon", "tsquery", "tsvector", "varbit"),
    )
)
"""Types of PostgreSQL and its extensions that sqlglot takes for types of somebody's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedQuery:
    """A query that passed, written anew from what was understood of it: no comment and no second reading is left."""

    sql: str
    """As SQLAlchemy's `text` takes it, parameters as `:name`."""
    reading: QueryReading
    parameters: Mapping[str, Any]
    """Those given, and the cap of rows: with a value to bind, PostgreSQL takes no second statement."""
    functions: frozenset[str]
    """Names of the functions that it calls, as they are written."""


def check_query(
    sql: str,
    schema: DatabaseSchema,
    *,
    parameters: Mapping[str, Any] | None = None,
    functions: Collection[str] = (),
    max_rows: int | None = None,
) -> CheckedQuery:
    """Check that SQL is one SELECT over tables and columns of a schema, with functions that only compute.

    Values stand in `parameters` and in the SQL as `:name`. `functions` are names, lower case, that are allowed beside
    those of functions.txt: a function of the database's own may do anything that its owner may. The query as written
    anew gives at most `max_rows`.
    Raises QueryRefused, whose code says which rule is broken.
    """
    given = dict(parameters or {})
    tree = parse_query(sql, schema.dialect)
    for rule in (_only_reads, _plain_texts, _named_parameters):
        rule(tree)
    if schema.dialect == "postgresql":
        _known_types(tree, schema)
    called = _functions(tree, schema.dialect)
    _known_functions(called, frozenset(functions) | harmless_functions())
    _parameters_given(tree, given)
    reading = read_tree(tree, schema)
    limited, values = (tree, given) if max_rows is None else _limited(tree, given, max_rows)
    return CheckedQuery(
        sql=_written(limited, schema.dialect), reading=reading, parameters=values, functions=frozenset(called)
    )


@cache
def harmless_functions() -> frozenset[str]:
    """Return the functions of PostgreSQL and SQLite that only compute, as functions.txt lists them."""
    return frozenset(files(__package__).joinpath("functions.txt").read_text(encoding="utf-8").split())


def _only_reads(tree: "exp.Query") -> None:
    from sqlglot import exp

    writes = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Command, exp.Copy, exp.Set)
    for node in tree.walk():
        if isinstance(node, writes):
            raise QueryRefused("not_a_query", f"the query contains {node.key.upper()}: only SELECT is run")
        if isinstance(node, exp.Into):
            raise QueryRefused("not_a_query", "SELECT INTO makes a table: leave INTO out")
        if isinstance(node, exp.Lock):
            raise QueryRefused("locks", "FOR UPDATE and FOR SHARE lock rows: leave them out")
        if isinstance(node, exp.Operator):
            raise QueryRefused("syntax", "OPERATOR() can name any function: write the operator itself")
        if isinstance(node, exp.Qualify):
            raise QueryRefused("syntax", "QUALIFY would be rewritten: filter an inner query by its window function")


def _plain_texts(tree: "exp.Query") -> None:
    """Refuse forms of text that parser and database may read differently: escapes, dollars, code points."""
    from sqlglot import exp

    forms = (exp.ByteString, exp.RawString, exp.UnicodeString, exp.National, exp.HexString, exp.BitString, exp.Heredoc)
    if (found := tree.find(*forms)) is not None:
        raise QueryRefused("syntax", one_line(f"{found.sql()}: write texts in single quotes, or bind them"))


def _known_types(tree: "exp.Query", schema: DatabaseSchema) -> None:
    """Refuse types that look names up in the catalogue (regclass), and those of rows, which have the columns' names."""
    from sqlglot import exp

    named = {word for table in schema.tables for column in table.columns for word in _WORD.findall(column.type.lower())}
    for node in tree.find_all(exp.DataType, exp.ObjectIdentifier, exp.PseudoType):
        written = node.sql(comments=False).strip('"').lower()
        looks_up = isinstance(node, exp.ObjectIdentifier | exp.PseudoType)
        if looks_up or (node.this == exp.DType.USERDEFINED and written not in _TYPES | named):
            raise QueryRefused("syntax", one_line(f"{written} is no type of a column: cast to another type"))


def _functions(tree: "exp.Query", dialect: str | None) -> list[str]:
    """Return the names of all functions as they will be written, by which the database finds them."""
    from sqlglot import exp

    if (dotted := tree.find(exp.Dot)) is not None:
        called = isinstance(dotted.expression, exp.Func)
        remedy = "write functions without their namespace" if called else "fields of a row cannot be asked for"
        raise QueryRefused("function" if called else "syntax", one_line(f"{dotted.sql()}: {remedy}"))
    found = (_name_of(node, sqlglot_dialect(dialect)) for node in tree.find_all(exp.Func))
    names = [name for name in found if name and name.lower() not in _SYNTAX]
    return [name[1:-1] if name.startswith('"') else name.lower() for name in names]


def _name_of(node: "exp.Func", form: str) -> str | None:
    """Return the name of a function as it is written, None where an operator or syntax is written instead."""
    written = node.sql(form, comments=False, normalize_functions=False)
    if called := _CALL.match(written):
        return called[1]
    alone = _WORD.fullmatch(written) and not any(node.iter_expressions())
    return written if alone else None  # CURRENT_USER and its like have no parenthesis


def _known_functions(called: Iterable[str], known: frozenset[str]) -> None:
    for name in called:
        if name not in known:
            raise QueryRefused("function", one_line(f"{name}() is not known to be harmless: take another function"))


def _named_parameters(tree: "exp.Query") -> None:
    from sqlglot import exp

    for node in tree.find_all(exp.Placeholder, exp.Parameter, exp.SessionParameter):
        if not isinstance(node, exp.Placeholder) or not _PARAMETER.fullmatch(node.name):
            raise QueryRefused("parameters", one_line(f"{node.sql()} is no named parameter: write :name"))


def _parameters_given(tree: "exp.Query", given: Mapping[str, Any]) -> None:
    named = set(_placeholders(tree))
    if missing := sorted(named - given.keys()):
        raise QueryRefused("parameters", one_line(f"no value for {', '.join(missing)}: give each parameter one"))
    if unused := sorted(given.keys() - named):
        raise QueryRefused("parameters", one_line(f"the query has no parameter {', '.join(unused)}: leave it out"))


def _placeholders(tree: "exp.Query") -> Iterator[str]:
    from sqlglot import exp

    return (node.name for node in tree.find_all(exp.Placeholder))


def _limited(tree: "exp.Query", given: Mapping[str, Any], most: int) -> tuple["exp.Query", dict[str, Any]]:
    """Return a query that gives at most so many rows, and its values with that number among them."""
    from sqlglot import exp

    name = "kosmos_rows"
    while name in given:
        name += "_"
    cap = exp.Placeholder(this=name)
    own = tree.args.get("limit")
    if isinstance(own, exp.Limit) and isinstance(own.expression, exp.Literal) and own.expression.is_int:
        return tree.limit(cap), {**given, name: min(most, int(own.expression.name))}
    values = {**given, name: most}
    if own is None and isinstance(tree, exp.Select | exp.SetOperation):
        return tree.limit(cap), values
    return exp.select("*").from_(tree.subquery("kosmos_rows")).limit(cap), values


def _written(tree: "exp.Query", dialect: str | None) -> str:
    """Write a tree as SQL. A colon that is no parameter's is escaped, for `text` would take it for one."""
    from sqlglot import exp
    from sqlglot.errors import ErrorLevel, UnsupportedError

    copy = tree.copy()
    mark = "kosmos_parameter_"
    while mark in copy.sql():
        mark += "_"
    for node in list(copy.find_all(exp.Placeholder)):
        node.replace(exp.Var(this=f"{mark}{node.name}"))
    try:
        plain: str = copy.sql(
            dialect=sqlglot_dialect(dialect),
            comments=False,
            normalize_functions=False,
            unsupported_level=ErrorLevel.RAISE,  # else what the dialect lacks would be left out unsaid
        )
    except UnsupportedError as error:
        raise QueryRefused(
            "syntax", one_line(f"{dialect} has no such SQL ({first_line(error)}): write it anew")
        ) from error
    return plain.replace(":", "\\:").replace(mark, ":")
