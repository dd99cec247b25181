"""Bodies of the requests of schema grounding."""

from typing import Annotated

from pydantic import Field

from kosmos_rag.apps.http.toolkit.bodies import RequestBody
from kosmos_rag.core.types import EVERYONE

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


class DatabaseQuery(RequestBody):
    """A query on a database that a schema describes."""

    sql: Annotated[str, Field(min_length=1, max_length=20_000, description="One SELECT; values as :name.")]
    database: Annotated[str, Field(min_length=1, description="Name of the database, as its schema has it.")]
    parameters: dict[str, str | int | float | bool | None] = Field(default={}, description="Values by name.")
    collection: str = Field(default="schema", description=_COLLECTION)


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
