"""Filters of OpenAI's interface as conditions of the library."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool

from kosmos_rag.apps.http.toolkit.bodies import RequestBody
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Filter
from kosmos_rag.openai.bodies import Number, Text

Value = StrictBool | Number | Text


class ComparisonFilter(RequestBody):
    """A condition on one attribute."""

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    key: Annotated[str, Field(min_length=1, max_length=64)]
    value: Value | Annotated[list[Value], Field(max_length=1000)]


class CompoundFilter(RequestBody):
    """Conditions of which all, or one, must be true."""

    type: Literal["and", "or"]
    filters: Annotated[list["ComparisonFilter | CompoundFilter"], Field(min_length=1, max_length=200)]


Filters = ComparisonFilter | CompoundFilter


def to_filter(filters: Filters | None, collections: list[str] | None = None) -> Filter | None:
    """Convert filters on attributes; None without any.

    Args:
        filters: Conditions on attributes.
        collections: Only documents of these.
    """
    conditions: list[dict[str, Any]] = [] if filters is None else [_condition(filters)]
    if collections is not None:
        conditions.append({"collection": {"$in": collections}})
    return Filter(where={"$and": conditions}) if conditions else None


def _condition(entry: Filters) -> dict[str, Any]:
    if isinstance(entry, CompoundFilter):
        return {f"${entry.type}": [_condition(nested) for nested in entry.filters]}
    if "." in entry.key:
        raise RequestError(f"a filter cannot name the attribute {entry.key[:60]!r}; use keys without a dot")
    if isinstance(entry.value, list) != (entry.type in ("in", "nin")):
        expected = "a list of values" if entry.type in ("in", "nin") else "one value"
        raise RequestError(f"the filter {entry.type} on {entry.key!r} needs {expected}")
    return {f"metadata.{entry.key}": {f"${entry.type}": entry.value}}
