"""Filters on documents: checked, and compiled to one jsonpath predicate whose values are bound.

docs/filters.md is the reference of the language. Of a filter, only keys of metadata become text of the predicate,
quoted; every value goes into its variables, `$v0`, `$v1` and so on. The function kosmos.matches_filter evaluates it,
over the document as one JSON object of the fields named here; a predicate that is unknown lets nothing pass.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from json import dumps
from math import isfinite
from typing import Any

from psycopg.types.json import Jsonb

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Filter, are_names, is_text

MAX_DEPTH = 8
"""Of combinators within each other, and of keys within each other."""
MAX_CONDITIONS = 200
MAX_VALUES = 1_000
"""Of one list. The server compares each of them with each document."""

_SIGNS = {"$eq": "==", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_EQUALITY = ("$eq", "$ne", "$in", "$nin")
_OPERATORS = (*_EQUALITY, "$gt", "$gte", "$lt", "$lte", "$exists")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Field:
    """What a condition compares."""

    path: str
    """In jsonpath."""
    operand: Callable[[Any, str], Any]
    """Turns a value of the filter, at a place, into what is compared. Raises RequestError."""
    operators: tuple[str, ...] = _OPERATORS


def check(given: Filter) -> None:
    """Raise RequestError where a filter is malformed: the message names the place, the value and what is right."""
    if not isinstance(given, Filter):
        raise RequestError(f"filter is {_shown(given)}; give Filter(sources=('/docs',), where={{'title': 'Churn'}})")
    if not are_names(given.sources):
        raise RequestError(f"filter on sources is {_shown(given.sources)}; give a tuple of names, ('/docs',)")
    _compiled(given.where)


def filter_values(given: Filter) -> dict[str, Any]:
    """Return a filter as bound values: the statements hold its conditions, switched on by `filtered`.

    `condition` is None where `where` is empty. Raises RequestError on a malformed `where`.
    """
    escaped = (
        source.rstrip("/").replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for source in given.sources
    )
    condition, variables = _compiled(given.where)
    return {
        "filtered": bool(given.sources or given.where),
        "sources": list(given.sources),
        "folders": [f"{source}/%" for source in escaped],
        "condition": condition,
        "condition_values": Jsonb(variables),
    }


def _compiled(where: Any) -> tuple[str | None, dict[str, Any]]:
    """Return the predicate and its variables."""
    compiler = _Compiler()
    if isinstance(where, Mapping) and not where:
        return None, {}
    return compiler.all_of(where, "where", 1), compiler.variables


class _Compiler:
    """Compiles one `where`, and keeps the variables that its predicate names."""

    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}
        self._conditions = 0

    def all_of(self, where: Any, place: str, depth: int) -> str:
        """Compile a mapping of fields and combinators; all must hold."""
        if not isinstance(where, Mapping) or not where:
            raise _wrong(place, where, "give a mapping of conditions, {'title': 'Churn'}")
        if depth > MAX_DEPTH:
            raise _wrong(place, where, f"nest conditions at most {MAX_DEPTH} deep")
        parts = (self._entry(key, value, _at(place, key), depth) for key, value in where.items())
        return f"({' && '.join(parts)})"

    def _entry(self, key: Any, value: Any, place: str, depth: int) -> str:
        if key == "$not":
            return _not(self.all_of(value, place, depth + 1))
        if key not in ("$and", "$or"):
            return self._conditions_on(_field(key, place), value, place)
        if not isinstance(value, list | tuple) or not value:
            raise _wrong(place, value, "give a list of at least one mapping, [{'title': 'A'}, {'title': 'B'}]")
        parts = [self.all_of(item, _at(place, index), depth + 1) for index, item in enumerate(value)]
        return f"({(' && ' if key == '$and' else ' || ').join(parts)})"

    def _conditions_on(self, field: _Field, value: Any, place: str) -> str:
        if not isinstance(value, Mapping):
            return self._condition(field, "$eq", value, place)
        if not value:
            raise _wrong(place, value, "give a value, or operators with values, {'$gte': 2024}")
        return " && ".join(
            self._condition(field, operator, operand, _at(place, operator)) for operator, operand in value.items()
        )

    def _condition(self, field: _Field, operator: Any, value: Any, place: str) -> str:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise RequestError(
                f"filter has more than {MAX_CONDITIONS} conditions, at {place}; "
                "give alternatives of one field as a list, {'$in': [...]}"
            )
        if operator not in field.operators:
            raise RequestError(f"filter at {place} has no such operator; use one of {', '.join(field.operators)}")
        if operator == "$exists":
            if not isinstance(value, bool):
                raise _wrong(place, value, "give true or false")
            return f"exists({field.path})" if value else _not(f"exists({field.path})")
        if operator in ("$in", "$nin"):
            equal = f"{field.path} == {self._variable(_operands(field, value, place))}[*]"
            return equal if operator == "$in" else _not(equal)
        operand = field.operand(value, place)
        if operator == "$ne":
            return _not(f"{field.path} == {self._variable(operand)}")
        if operator != "$eq" and not _is_ordered(operand):
            raise _wrong(place, value, "order by text, a finite number or a date")
        return f"{field.path} {_SIGNS[operator]} {self._variable(operand)}"

    def _variable(self, value: Any) -> str:
        name = f"v{len(self.variables)}"
        self.variables[name] = value
        return f"${name}"


def _not(predicate: str) -> str:
    """Negate: jsonpath's own `!` leaves unknown as it is; a filter expression takes it as false."""
    return f"!exists($ ? ({predicate}))"


def _is_ordered(operand: Any) -> bool:
    return isinstance(operand, str | int | float) and not isinstance(operand, bool)


def _operands(field: _Field, value: Any, place: str) -> list[Any]:
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
        raise _wrong(place, value, "give a list of values")
    if len(value) > MAX_VALUES:
        raise RequestError(f"filter at {place} has a list of {len(value):,} values; give at most {MAX_VALUES:,}")
    return [field.operand(item, _at(place, index)) for index, item in enumerate(value)]


def _field(name: Any, place: str) -> _Field:
    if isinstance(name, str):
        if name in _FIELDS:
            return _FIELDS[name]
        if name.startswith("metadata."):
            return _Field(path=_metadata_path(name, place), operand=_scalar)
    fields = ", ".join(_FIELDS)
    raise RequestError(f"filter at {place} names no field; use {fields}, metadata.KEY, or $and, $or, $not")


def _metadata_path(name: str, place: str) -> str:
    keys = name.split(".")[1:]
    if not all(keys) or not is_text(name):
        raise RequestError(f"filter at {place} has an empty key, a NUL or a lone surrogate; write metadata.KEY")
    if len(keys) > MAX_DEPTH:
        raise RequestError(f"filter at {place} goes {len(keys)} keys deep; use at most {MAX_DEPTH}")
    return "$." + ".".join(dumps(key) for key in ("metadata", *keys))


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise _wrong(place, value, "give text")
    if not is_text(value):
        raise _wrong(place, value, "remove NUL and lone surrogates")
    return value


def _principal(value: Any, place: str) -> str:
    """Return the principal that stands for a department."""
    return "department:" + _text(value, place)


def _moment(value: Any, place: str) -> str:
    """Return a time as the statements write it: in UTC with six digits of microseconds, so text order is time order."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, date) and not isinstance(moment, datetime):
            moment = datetime.combine(moment, time())
        if isinstance(moment, datetime):
            utc = moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment.astimezone(UTC)
            return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    except (ValueError, OverflowError):
        pass
    raise _wrong(place, value, "give a date, a datetime, or text as in ISO 8601, '2026-01-31' or '2026-01-31T12:00Z'")


def _scalar(value: Any, place: str) -> str | int | float | bool | None:
    """Return a value as metadata holds it: JSON has no dates, so one is compared as its text in ISO 8601."""
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, date):
        return value.isoformat()
    if value is None or (isinstance(value, int | float) and _is_finite(value)):
        return value
    raise _wrong(place, value, "give text, a finite number, true, false, null or a date; a list goes with $in")


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond what a float holds
        return False


def _at(place: str, key: Any) -> str:
    return f"{place}[{_shown(key)}]"


def _wrong(place: str, value: Any, remedy: str) -> RequestError:
    return RequestError(f"filter at {place} is {_shown(value)}; {remedy}")


def _shown(value: Any) -> str:
    """Render a value on one line of bounded length."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # an integer of thousands of digits, lists within lists without end
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


_FIELDS = {
    **{
        name: _Field(path=f'$."{name}"', operand=_text)
        for name in ("source", "title", "media_type", "language", "collection", "acl")
    },
    **{name: _Field(path=f'$."{name}"', operand=_moment) for name in ("created_at", "updated_at")},
    "department": _Field(path='$."acl"', operand=_principal, operators=_EQUALITY),
}
