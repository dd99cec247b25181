"""Validate the text of a query before it reaches a database.

Only known constructs pass. Further protection: the read-only transaction, the role, and the limits of execute.py.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import first_line
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.errors import QueryRefused
from kosmos_rag.text2sql.sql.analyze import QueryAnalysis, analyze_tree, parse_query, sqlglot_dialect

if TYPE_CHECKING:
    from sqlglot import exp

_WORD = re.compile(r"\w+")
_PARAMETER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CALL = re.compile(r'\s*("(?:[^"]|"")+"|[^\W\d][\w$.]*)\s*\(')
_SYNTAX = frozenset(("all", "any", "array", "case", "cast", "exists", "in", "interval", "not", "row", "some"))
"""Keywords followed by a parenthesis that are not functions."""

_MAX_PADDING = 10_000
"""Characters that `lpad` may make."""
_MAX_GROWTH = 1_000
"""How many times as long a text may become by replacements in replacements."""
_COLUMN_GROWTH = 10
"""How many times as long a text may become where each place gets the value of a column, whose length nobody knows.

It counts again for each place of the call that has this column: texts put into themselves grow fastest.
"""
_COLLECTION = re.compile("agg|group")
"""In the names of functions that make one value of many rows."""

_TYPES = frozenset(
    (
        *("box", "cidr", "circle", "citext", "cube", "jsonpath", "line", "lquery", "ltree", "ltxtquery", "macaddr"),
        *("macaddr8", "path", "pg_lsn", "polygon", "tsquery", "tsvector", "varbit"),
    )
)
"""Types of PostgreSQL and its extensions that sqlglot treats as user-defined."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedQuery:
    """A validated query, generated from its syntax tree without comments."""

    sql: str
    """As SQLAlchemy's `text` takes it, parameters as `:name`."""
    analysis: QueryAnalysis
    parameters: Mapping[str, Any]
    """Parameter values and the row cap. With a bound value PostgreSQL accepts no second statement."""
    functions: frozenset[str]
    """Names of the functions that it calls."""


def check_query(
    sql: str,
    schema: DatabaseSchema,
    *,
    parameters: Mapping[str, Any] | None = None,
    functions: Collection[str] = (),
    max_rows: int | None = None,
) -> CheckedQuery:
    """Validate that SQL is one SELECT over a schema.

    It may call only functions without side effects.

    Args:
        sql: The query, with parameters as `:name`.
        schema: The tables and columns that it may use.
        functions: Lower-case names allowed in addition to functions.txt. A function of the database may do anything
            that its owner may.
        max_rows: Row cap of the generated query; None is no cap.

    Raises:
        QueryRefused: A rule is broken; its code names the rule.
    """
    values = dict(parameters or {})
    tree = parse_query(sql, schema.dialect)
    for rule in (_check_read_only, _check_text_literals, _check_parameter_names):
        rule(tree)
    if schema.dialect == "postgresql":
        _check_types(tree, schema)
    functions_used = _function_names(tree, schema.dialect)
    _check_functions(functions_used, frozenset(functions) | allowed_functions())
    _check_parameter_values(tree, values)
    _check_sizes(tree, values)
    analysis = analyze_tree(tree, schema)
    limited_tree, values = (tree, values) if max_rows is None else _limit_rows(tree, values, max_rows)
    return CheckedQuery(
        sql=_to_sql(limited_tree, schema.dialect),
        analysis=analysis,
        parameters=values,
        functions=frozenset(functions_used),
    )


@cache
def allowed_functions() -> frozenset[str]:
    """Return the allowed functions of PostgreSQL and SQLite, from functions.txt."""
    return frozenset(files(__package__).joinpath("functions.txt").read_text(encoding="utf-8").split())


def _check_read_only(tree: "exp.Query") -> None:
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


def _check_text_literals(tree: "exp.Query") -> None:
    """Refuse text literals that parser and database may read differently."""
    from sqlglot import exp

    forms = (exp.ByteString, exp.RawString, exp.UnicodeString, exp.National, exp.HexString, exp.BitString, exp.Heredoc)
    if (literal := tree.find(*forms)) is not None:
        raise QueryRefused("syntax", one_line(f"{literal.sql()}: write texts in single quotes, or bind them"))


def _check_types(tree: "exp.Query", schema: DatabaseSchema) -> None:
    """Refuse catalogue lookups (regclass) and row types.

    Row types expose the columns' names.
    """
    from sqlglot import exp

    column_types = {
        word for table in schema.tables for column in table.columns for word in _WORD.findall(column.type.lower())
    }
    for node in tree.find_all(exp.DataType, exp.ObjectIdentifier, exp.PseudoType):
        type_name = node.sql(comments=False).strip('"').lower()
        is_lookup = isinstance(node, exp.ObjectIdentifier | exp.PseudoType)
        if is_lookup or (node.this == exp.DType.USERDEFINED and type_name not in _TYPES | column_types):
            raise QueryRefused("syntax", one_line(f"{type_name} is no type of a column: cast to another type"))


def _function_names(tree: "exp.Query", dialect: str | None) -> list[str]:
    """Return the names of all functions as the generated SQL has them."""
    from sqlglot import exp

    if (dotted := tree.find(exp.Dot)) is not None:
        is_function = isinstance(dotted.expression, exp.Func)
        remedy = "write functions without their namespace" if is_function else "fields of a row cannot be asked for"
        raise QueryRefused("function" if is_function else "syntax", one_line(f"{dotted.sql()}: {remedy}"))
    function_names = (_function_name(node, sqlglot_dialect(dialect)) for node in tree.find_all(exp.Func))
    names = [name for name in function_names if name and name.lower() not in _SYNTAX]
    return [name[1:-1] if name.startswith('"') else name.lower() for name in names]


def _function_name(node: "exp.Func", form: str) -> str | None:
    """Return the written name of a function; None for operators and syntax."""
    text = node.sql(form, comments=False, normalize_functions=False)
    if call := _CALL.match(text):
        return call[1]
    is_bare = _WORD.fullmatch(text) and not any(node.iter_expressions())
    return text if is_bare else None  # CURRENT_USER and its like have no parenthesis


def _check_functions(names: Iterable[str], allowed: frozenset[str]) -> None:
    for name in names:
        if name not in allowed:
            raise QueryRefused("function", one_line(f"{name}() is not known to be harmless: take another function"))


def _check_sizes(tree: "exp.Query", values: Mapping[str, Any]) -> None:
    """Refuse what makes a large text of a small one in one call.

    The server makes the whole text before it looks at the time.
    """
    from sqlglot import exp

    for node in tree.find_all(exp.Pad):
        size = node.expression
        length = values.get(size.name) if isinstance(size, exp.Placeholder) else size.name if size.is_int else None
        if length is None or not str(length).isdigit() or int(length) > _MAX_PADDING:
            raise QueryRefused("size", one_line(f"{node.sql()}: pad to a number up to {_MAX_PADDING}"))
    growing: tuple[type[exp.Expression], ...] = (exp.Replace, exp.RegexpReplace, exp.ArrayToString)
    growths = {id(call): _measure_growth(call, values) for call in tree.find_all(*growing)}
    for call in tree.find_all(*growing):
        growth, outer = growths[id(call)], call.find_ancestor(*growing)
        while outer is not None and growth <= _MAX_GROWTH:
            growth *= growths[id(outer)]
            outer = outer.find_ancestor(*growing)
        if growth > _MAX_GROWTH:
            raise QueryRefused("size", one_line(f"{call.sql()} may become too long: replace by shorter texts"))


def _measure_growth(call: "exp.Expression", values: Mapping[str, Any]) -> int:
    """Return how many times as long a text may become by a replacement."""
    from sqlglot import exp

    parts = ("expression", "null") if isinstance(call, exp.ArrayToString) else ("replacement",)
    length = 0
    for node in (node for part in parts if (text := call.args.get(part)) is not None for node in text.walk()):
        if isinstance(node, exp.Pad):
            size = node.expression
            length += int(values[size.name] if isinstance(size, exp.Placeholder) else size.name)
        elif isinstance(node, exp.Placeholder):
            length += len(str(values[node.name]))
        elif isinstance(node, exp.Column):
            length += _COLUMN_GROWTH ** sum(column.name == node.name for column in call.find_all(exp.Column))
        elif isinstance(node, exp.Func) and _COLLECTION.search(f"{node.key} {node.name}".lower()):
            return _MAX_GROWTH + 1
        elif node.is_string:
            length += len(node.name)
    return max(1, length)


def _check_parameter_names(tree: "exp.Query") -> None:
    from sqlglot import exp

    for node in tree.find_all(exp.Placeholder, exp.Parameter, exp.SessionParameter):
        if not isinstance(node, exp.Placeholder) or not _PARAMETER.fullmatch(node.name):
            raise QueryRefused("parameters", one_line(f"{node.sql()} is no named parameter: write :name"))


def _check_parameter_values(tree: "exp.Query", values: Mapping[str, Any]) -> None:
    names = set(_placeholders(tree))
    if missing := sorted(names - values.keys()):
        raise QueryRefused("parameters", one_line(f"no value for {', '.join(missing)}: give each parameter one"))
    if unused := sorted(values.keys() - names):
        raise QueryRefused("parameters", one_line(f"the query has no parameter {', '.join(unused)}: leave it out"))


def _placeholders(tree: "exp.Query") -> Iterator[str]:
    from sqlglot import exp

    return (node.name for node in tree.find_all(exp.Placeholder))


def _limit_rows(tree: "exp.Query", parameters: Mapping[str, Any], max_rows: int) -> tuple["exp.Query", dict[str, Any]]:
    """Return a query with a row cap, and its parameters."""
    from sqlglot import exp

    name = "kosmos_rows"
    while name in parameters:
        name += "_"
    cap = exp.Placeholder(this=name)
    limit = tree.args.get("limit")
    if isinstance(limit, exp.Limit) and isinstance(limit.expression, exp.Literal) and limit.expression.is_int:
        return tree.limit(cap), {**parameters, name: min(max_rows, int(limit.expression.name))}
    values = {**parameters, name: max_rows}
    if limit is None and isinstance(tree, exp.Select | exp.SetOperation):
        return tree.limit(cap), values
    return exp.select("*").from_(tree.subquery("kosmos_rows")).limit(cap), values


def _to_sql(tree: "exp.Query", dialect: str | None) -> str:
    """Generate SQL from a tree.

    A colon that is not a parameter's is escaped, because SQLAlchemy's `text` would read one.
    """
    from sqlglot import exp
    from sqlglot.errors import ErrorLevel, UnsupportedError

    copy = tree.copy()
    prefix = "kosmos_parameter_"
    while prefix in copy.sql():
        prefix += "_"
    for node in list(copy.find_all(exp.Placeholder)):
        node.replace(exp.Var(this=f"{prefix}{node.name}"))
    try:
        plain: str = copy.sql(
            dialect=sqlglot_dialect(dialect),
            comments=False,
            normalize_functions=False,
            unsupported_level=ErrorLevel.RAISE,  # else what the dialect lacks would be left out unsaid
        )
    except UnsupportedError as error:
        raise QueryRefused(
            "syntax", one_line(f"this is no valid {dialect} SQL ({first_line(error)}): correct it")
        ) from error
    return plain.replace(":", "\\:").replace(prefix, ":")
