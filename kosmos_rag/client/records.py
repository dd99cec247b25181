"""What the service tells that the library has no record of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[T]):
    """A part of a list."""

    items: tuple[T, ...]
    next: str | None
    """The cursor of the page after; None at the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """What there is for this reader."""

    total_documents: int
    total_chunks: int
    departments: Mapping[str, int]
    """Chunks by departments of the reader's that may read them, or `everyone`."""
    embedding_dimension: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Grounding:
    """The part of the schemas that a question needs; mappings have the names of docs/schema.md."""

    question: str
    database: str | None
    """The likeliest one; None where there is no table."""
    prompt: str
    """The block of a prompt that says it."""
    tokens: int
    tables: tuple[Mapping[str, Any], ...]
    """Of all databases, best first: database, table, score, parts."""
    schema_refs: tuple[Mapping[str, Any], ...]
    """Columns, best first: name, database, table, model, column, score, parts."""
    join_hints: tuple[str, ...]
    entities: Mapping[str, Any]
    selection: Mapping[str, Any] | None
    """Tables, columns, joins, ambiguities and recipes."""
    left_out: tuple[tuple[str, str], ...]
    """Database and name of tables that the budget of the prompt had no room for."""
    docs: tuple[Mapping[str, Any], ...]
    """The documents found, best first: id, kind, and scores where they were asked for."""
    notes: tuple[str, ...]
    milliseconds: float
