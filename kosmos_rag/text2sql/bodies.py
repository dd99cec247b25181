"""Bodies of the requests and responses of schema grounding."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from kosmos_rag.apps.http.toolkit.bodies import RequestBody
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.text2sql.answer import SqlAnswer
from kosmos_rag.text2sql.linking.result import GroundingResult
from kosmos_rag.text2sql.sql.execute import QueryResult

_COLLECTION = "Collection of the schemas, from `kosmos-rag schema build`."


class GroundingRequest(RequestBody):
    """A question about a database."""

    question: Annotated[str, Field(min_length=1, examples=["What is the success count for the forest fire program"])]
    collection: str = Field(default="schema", description=_COLLECTION)
    database: str | None = Field(default=None, description="Only this database; else all.")
    k: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(default=10, description="How many columns at most.")
    tables: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(default=5, description="How many tables.")
    max_tokens: Annotated[int, Field(ge=1, le=100_000, strict=True)] = Field(
        default=700, description="Budget of the prompt."
    )
    explain: bool = Field(default=False, strict=True, description="Add the scores of documents; needs the scope admin.")


class QueryRequest(RequestBody):
    """A query on a database that a schema describes."""

    sql: Annotated[str, Field(min_length=1, max_length=20_000, description="One SELECT; values as :name.")]
    database: Annotated[str, Field(min_length=1, description="Name of the database, as its schema has it.")]
    parameters: dict[str, str | int | float | bool | None] = Field(default={}, description="Values by name.")
    collection: str = Field(default="schema", description=_COLLECTION)


class QueryView(BaseModel):
    """Rows of a query."""

    sql: str = Field(description="The executed SQL.")
    columns: list[str]
    tables: list[str]
    rows: list[list[Any]]
    truncated: bool = Field(description="Whether there were more rows than the limits allow.")
    milliseconds: float

    @classmethod
    def from_record(cls, result: QueryResult) -> Self:
        """Serialise a result."""
        return cls.model_validate(result.to_dict())


class DatabaseQuestion(RequestBody):
    """A question that rows of a database answer."""

    question: Annotated[str, Field(min_length=1, max_length=20_000)]
    database: str | None = Field(default=None, description="Only this database; else the likeliest.")
    collection: str = Field(default="schema", description=_COLLECTION)


class ExampleRequest(RequestBody):
    """A query that a person accepts for a question."""

    question: Annotated[str, Field(min_length=1, max_length=1_000)]
    sql: Annotated[str, Field(min_length=1, max_length=20_000, description="One SELECT.")]
    database: Annotated[str, Field(min_length=1, description="Name of the database, as its schema has it.")]
    collection: str = Field(default="schema", description=_COLLECTION)
    readers: list[str] = Field(default=[EVERYONE], min_length=1, description="Principals that may read it.")


class ExampleView(BaseModel):
    """An accepted query; `id` is the source of its document."""

    id: str
    database: str
    question: str
    sql: str
    tables: list[str]
    columns: list[str]


class ExamplesView(BaseModel):
    """The accepted queries that fit the schemas."""

    examples: list[ExampleView]


class AttemptView(BaseModel):
    """A query that the language model wrote."""

    sql: str
    code: str | None
    error: str | None


class SchemaCitationView(BaseModel):
    """A document of the schema that the query uses."""

    id: str
    table: str
    column: str | None


class TableView(BaseModel):
    """A table and the parts of its score."""

    database: str
    table: str
    score: float
    parts: dict[str, float]


class ColumnView(BaseModel):
    """A column that the question may need."""

    name: str
    database: str
    table: str
    model: str
    column: str
    score: float
    parts: dict[str, float]


class RecipeView(BaseModel):
    """A recipe for questions of one shape."""

    slug: str
    title: str
    text: str
    pattern: str
    curated: bool
    note: str | None
    sql: str | None
    tables: list[str]
    columns: list[str]
    join_hints: list[str]
    not_for: list[str] = Field(description="What the first of the columns does not answer.")


class AmbiguityView(BaseModel):
    """A decision to take before SQL is written."""

    kind: str
    about: list[str]
    text: str


class FilterView(BaseModel):
    """A condition for a value that the question says."""

    table: str
    column: str
    text: str
    value: str
    match: str
    condition: str


class TimeRangeView(BaseModel):
    """Days of a time in the question, in UTC; null is open."""

    text: str
    start: str | None
    end: str | None = Field(description="The day after the last.")


class EntitiesView(BaseModel):
    """Values, names, dates and numbers in the question."""

    quoted: list[str]
    values: list[str]
    misspelt: list[tuple[str, str]] = Field(description="What the question says, and the value.")
    names: list[str]
    dates: list[tuple[str, str | None]]
    time_ranges: list[TimeRangeView]
    numbers: list[str]
    comparisons: list[str]


class SchemaDocumentView(BaseModel):
    """A matching document of a table, a column or a recipe."""

    id: str
    kind: str | None
    scores: dict[str, Any] | None = None


class GroundingView(BaseModel):
    """Tables and columns that a question needs, with a prompt."""

    question: str
    database: str | None
    prompt: str
    tokens: int
    tables: list[TableView]
    schema_refs: list[ColumnView]
    join_hints: list[str]
    recipes: list[RecipeView]
    examples: list[ExampleView] = Field(description="Accepted queries for similar questions.")
    ambiguities: list[AmbiguityView]
    filters: list[FilterView]
    entities: EntitiesView
    selection: dict[str, Any] | None = Field(description="Tables, columns and joins as JSON.")
    left_out: list[tuple[str, str]] = Field(description="Tables over the token budget, with their database.")
    docs: list[SchemaDocumentView]
    warnings: list[str]
    milliseconds: float
    timings_ms: dict[str, float] | None = Field(default=None, description="With `explain`.")

    @classmethod
    def from_record(cls, result: GroundingResult, *, explain: bool) -> Self:
        """Serialise a result; the scores of documents only with `explain`."""
        return cls.model_validate(result.to_dict(explain=explain))


class SqlAnswerView(BaseModel):
    """Rows that answer a question, with their query and its evidence."""

    question: str
    database: str
    refused: bool = Field(description="Whether both queries of the language model were refused.")
    attempts: list[AttemptView]
    result: QueryView | None
    citations: list[SchemaCitationView]
    schema_refs: list[ColumnView]
    join_hints: list[str]
    filters: list[FilterView]
    ambiguities: list[AmbiguityView]
    warnings: list[str]

    @classmethod
    def from_record(cls, answer: SqlAnswer) -> Self:
        """Serialise an answer."""
        return cls.model_validate(answer.to_dict())
