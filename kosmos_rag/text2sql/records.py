"""Records of schema grounding and of queries, with their one JSON shape.

The library, the command line, HTTP, MCP and the client have this shape (`core/types/serialize.py`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, computed_field
from pydantic_core import from_json, to_json

from kosmos_rag.core.types.serialize import Serializable
from kosmos_rag.engine.time_ranges import TimeRange

ColumnRef = tuple[str, str]
"""Full name of a table, name of a column."""


def split_column(name: str, tables: Iterable[str] = ()) -> ColumnRef:
    """Split `table.column`, where both names may have dots.

    Args:
        tables: Full names of tables; the longest that the name begins with is its table.
    """
    table = max((table for table in tables if name.startswith(f"{table}.")), key=len, default=None)
    if table is None:
        table = name.rpartition(".")[0]
    return table, name[len(table) :].removeprefix(".")


def split_columns(names: Iterable[str], tables: Collection[str]) -> tuple[ColumnRef, ...]:
    """Split the names of columns of these tables."""
    return tuple(split_column(name, tables) for name in names)


def _split_names(columns: Sequence[ColumnRef | str]) -> list[ColumnRef]:
    """Return the columns of names like `table.column`."""
    return [split_column(name) if isinstance(name, str) else (name[0], name[1]) for name in columns]


def _join_names(columns: Sequence[ColumnRef]) -> list[str]:
    return [f"{table}.{column}" for table, column in columns]


ColumnNames = Annotated[
    tuple[ColumnRef, ...], BeforeValidator(_split_names), PlainSerializer(_join_names, when_used="json")
]
"""Columns, in JSON as `table.column`."""
Pattern = Literal["aggregation", "temporal", "status", "relationship"]


def json_row(row: Sequence[Any]) -> list[Any]:
    """Return a row as values for JSON.

    Binary values are in base64, values of unknown types are text.
    """
    values: list[Any] = from_json(to_json(list(row), bytes_mode="base64", inf_nan_mode="strings", fallback=str))
    return values


def _json_rows(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [json_row(row) for row in rows]


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedTable(Serializable):
    """A table with its score and the parts of the score."""

    database: str
    table: str
    score: float
    parts: Mapping[str, float]
    """Contribution of each part, by its name in `Weights`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaRef(Serializable):
    """A column that a question asks for or filters by."""

    database: str
    table: str
    """Full name."""
    model: str
    """Name of its class; the table's name if there is none."""
    column: str
    score: float
    parts: Mapping[str, float]
    """Parts of the score, by the names of `Weights`."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def name(self) -> str:
        """`Model.column`."""
        return f"{self.model}.{self.column}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe(Serializable):
    """A recipe that answers questions of one shape."""

    slug: str
    """Unique among all recipes of a collection; the id of its document is `query_recipe:` and this."""
    title: str
    """The question's shape: `success count for program name`."""
    text: str
    pattern: Pattern
    tables: tuple[str, ...]
    columns: ColumnNames
    join_hints: tuple[str, ...] = ()
    keywords: Annotated[tuple[str, ...], Field(exclude=True)] = ()
    note: str | None = None
    """A decision to take before use."""
    curated: bool = False
    """Whether it was written by hand."""
    sql: str | None = None
    not_for: tuple[str, ...] = ()
    """Questions about these are not answered by the first of `columns`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryExample(Serializable):
    """A question and the SQL that a person accepted for it."""

    id: str
    """Source of its document."""
    database: str
    question: str
    sql: str
    tables: tuple[str, ...]
    columns: ColumnNames


@dataclass(frozen=True, kw_only=True, slots=True)
class Ambiguity(Serializable):
    """One ambiguity."""

    kind: Literal["variant", "same_name", "join_path", "aggregate_or_latest", "excluded"]
    about: tuple[str, ...]
    """Full names of the tables, or `table.column`."""
    text: str
    """The possible meanings, in one sentence; the decision where it is settled."""
    settled: bool = False
    """Whether `text2sql.variants` decides it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueFilter(Serializable):
    """A condition on one column."""

    table: str
    """Full name."""
    column: str
    text: str
    """What the question says."""
    value: str
    """The value as the database writes it."""
    match: Literal["exact", "fuzzy", "range", "number", "unchecked"]
    """`fuzzy` for a value with a typo; `range` for a time, with the days as an ISO 8601 interval, the end excluded;
    `number` for a comparison with a number; `unchecked` for a name that was not looked up, as no values are known."""
    condition: str
    """In SQL: `programs.name = 'forest fire'`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberBound(Serializable):
    """A number that a question compares with: `greater than 100`."""

    text: str
    """As the question has it."""
    operator: Literal[">", ">=", "<", "<="]
    number: str
    """The value as SQL has it: `1000.5` of `mehr als 1.000,50`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entities(Serializable):
    """Entities of a question."""

    quoted: tuple[str, ...]
    values: tuple[str, ...]
    """Known column values as `normalize_value` writes them, those with typos last."""
    misspelt: tuple[tuple[str, str], ...]
    """Of those with a typo, what the question says and the value."""
    names: tuple[str, ...]
    """Capitalised words within a sentence, and unknown words next to the name of a table."""
    dates: tuple[tuple[str, date | None], ...]
    """Text and date; None if it is not one day."""
    time_ranges: tuple[TimeRange, ...]
    """The days that the dates mean, in UTC."""
    numbers: tuple[str, ...]
    bounds: tuple[NumberBound, ...]
    """The numbers that the question compares with."""
    comparisons: tuple[str, ...]
    """Of `>`, `<`, `between`, `max`, `min`, `average`, `sum`, `count`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaDocument(Serializable):
    """A matching document of a table, a column or a recipe."""

    id: str
    kind: str | None
    scores: Mapping[str, Any] | None = None
    """With `explain`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grounding(Serializable):
    """Tables and columns that a question needs, with a prompt."""

    question: str
    database: str | None
    """The likeliest database; None without a table."""
    prompt: str
    """Lists the selected tables and columns for a prompt."""
    tokens: int
    tables: tuple[LinkedTable, ...]
    """Of all databases, best first."""
    schema_refs: tuple[SchemaRef, ...]
    """Columns, best first."""
    join_hints: tuple[str, ...]
    recipes: tuple[Recipe, ...]
    """Recipes for questions like this one, best first."""
    examples: tuple[QueryExample, ...]
    """Accepted queries for similar questions."""
    ambiguities: tuple[Ambiguity, ...]
    """Decisions to take before SQL is written."""
    filters: tuple[ValueFilter, ...]
    """Conditions for values that the question says."""
    entities: Entities
    selection: Mapping[str, Any] | None
    """Tables, columns and joins."""
    left_out: tuple[tuple[str, str], ...]
    """Database and name of the tables that exceeded the token budget."""
    docs: tuple[SchemaDocument, ...]
    """The matching documents, best first."""
    warnings: tuple[str, ...]
    milliseconds: float
    timings_ms: Mapping[str, float] | None = None
    """With `explain`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryResult(Serializable):
    """Rows of a query."""

    sql: str
    """The executed SQL, with parameters as `:name`."""
    columns: tuple[str, ...]
    """Names of the result's columns."""
    tables: tuple[str, ...]
    """Full names of the tables that the query uses, inner queries first."""
    used_columns: Annotated[tuple[ColumnRef, ...], Field(exclude=True)] = ()
    """Columns of those tables that the query names."""
    rows: Annotated[tuple[tuple[Any, ...], ...], PlainSerializer(_json_rows, when_used="json")]
    truncated: bool
    """Whether there were more rows than the limits of rows and bytes allow."""
    milliseconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryAttempt(Serializable):
    """A query that the language model wrote."""

    sql: str
    code: str | None
    """Why it was refused, as `QueryRefused.code`; None if it ran."""
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaCitation(Serializable):
    """A document of the schema that the query uses."""

    id: str
    """Source of the document."""
    table: str
    column: str | None
    """None for the document of the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SqlAnswer(Serializable):
    """Rows that answer a question, with their query and its evidence."""

    question: str
    database: str
    attempts: tuple[QueryAttempt, ...]
    """One, or two if the first was refused."""
    result: QueryResult | None
    """None if the second attempt was refused too."""
    citations: tuple[SchemaCitation, ...]
    """Tables and columns of the query, inner queries first."""
    schema_refs: tuple[SchemaRef, ...]
    join_hints: tuple[str, ...]
    filters: tuple[ValueFilter, ...]
    ambiguities: tuple[Ambiguity, ...]
    warnings: tuple[str, ...]
    prompt: Annotated[str, Field(exclude=True)] = ""
    """The part of the schema that the language model got."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def refused(self) -> bool:
        """Whether both queries of the language model were refused."""
        return self.result is None


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryExamples(Serializable):
    """The accepted queries that fit the schemas."""

    examples: tuple[QueryExample, ...]
