"""Check filters on documents and compile them to one jsonpath predicate.

docs/filters.md is the reference of the language. Of a filter, only keys of metadata and the texts of `$contains`,
`$icontains` and `$ends_with` become text of the predicate, quoted: jsonpath takes no variable as a pattern. Every other
value goes into its variables, `$v0`, `$v1` and so on. The function kosmos.matches_filter evaluates it, over the
document as one JSON object of the fields named here; a predicate that is unknown lets nothing pass.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from json import dumps
from math import isfinite
from typing import Any

from psycopg.types.json import Jsonb

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.names import spell_sources
from kosmos_rag.core.types import Filter, are_names, is_text

MAX_DEPTH = 8
"""Depth of nested combinators, and of nested metadata keys."""
MAX_CONDITIONS = 200
MAX_VALUES = 1_000
"""Values of one list: the server compares each of them with each document."""
MAX_PATTERN = 1_000
"""Characters of the text of `$contains`, `$icontains`, `$starts_with` and `$ends_with`."""
_MAX_GROUPS = 8
"""Conditions of which the one that fewest documents satisfy is looked for."""

_APPROVED = (
    '($."metadata"."approved" == true && !exists($."metadata"."superseded_by" ? (@ != null)) '
    '&& !exists($."metadata"."valid_until" ? (@ like_regex "^[0-9]{4}-[0-9]{2}-[0-9]{2}" && @ < $today)))'
)

_SIGNS = {"$eq": "==", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_SPECIAL, _ESCAPED = re.compile(r"[][\\.*+?^$(){}|]"), r"\\\g<0>"
_EQUALITY = ("$eq", "$ne", "$in", "$nin")
_PRESENCE = ("$exists", "$empty")
_ORDERED = (*_EQUALITY, "$gt", "$gte", "$lt", "$lte", *_PRESENCE)
_PATTERNS = ("$contains", "$icontains", "$starts_with", "$ends_with")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Field:
    """A field that conditions may name."""

    path: str
    """In jsonpath."""
    operand: Callable[[Any, str], Any]
    """Converts a value of the filter, at a path, to the compared value. Raises RequestError."""
    operators: tuple[str, ...] = (*_ORDERED, *_PATTERNS)


def compile_filter(conditions: Filter) -> dict[str, Any]:
    """Compile a filter to the values that statements bind.

    The statements hold its conditions, switched on by `filtered`; `condition` is None without `where`.
    Raises RequestError on a malformed filter: the message names the path, the value and what is right.
    """
    if not isinstance(conditions, Filter):
        raise RequestError(f"filter is {_show(conditions)}; give Filter(sources=('docs',), where={{'title': 'Churn'}})")
    if not are_names(conditions.sources):
        raise RequestError(f"filter on sources is {_show(conditions.sources)}; give a tuple of names, ('docs',)")
    sources = spell_sources(conditions.sources)
    escaped = (source.rstrip("/").replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for source in sources)
    condition, variables = _compile_where(conditions.where)
    groups = _term_groups(conditions.where) if conditions.where else []
    return {
        "filtered": bool(conditions.sources or conditions.where),
        "sources": sources,
        "folders": [f"{source}/%" for source in escaped],
        "condition": condition,
        "condition_values": Jsonb(variables),
        "term_groups": groups,
        "one_group": bool(groups) and not conditions.sources and _is_one_group(conditions.where),
    }


def require_approved(compiled: Mapping[str, Any], collections: Sequence[str]) -> dict[str, Any]:
    """Return a compiled filter that only approved documents pass.

    Those that are superseded or no longer valid do not pass either.

    Args:
        compiled: What `compile_filter` returned, with other values or without.
        collections: Collections whose documents this is required of.
    """
    required = f'(!($."collection" == $requiring[*]) || {_APPROVED})'
    condition = required if compiled["condition"] is None else f"({compiled['condition']} && {required})"
    variables = Jsonb(
        {**compiled["condition_values"].obj, "requiring": list(collections), "today": str(datetime.now(UTC).date())}
    )
    return {**compiled, "filtered": True, "one_group": False, "condition": condition, "condition_values": variables}


def _compile_where(where: Any) -> tuple[str | None, dict[str, Any]]:
    """Return the jsonpath predicate and its variables."""
    compiler = _Compiler()
    if isinstance(where, Mapping) and not where:
        return None, {}
    return compiler.compile_all(where, "where", 1), compiler.variables


def _term_groups(where: Mapping[Any, Any]) -> list[list[dict[str, Any]]]:
    """Return groups of values; a document that passes has one of each.

    Values are objects as kosmos.hash_fields takes them. Conditions without such values have no group.

    Args:
        where: Conditions that were compiled.
    """
    groups = []
    for key, value in where.items():
        if key == "$and":
            groups += [group for item in value for group in _term_groups(item)]
        elif key == "$or":
            branches = [_term_groups(item) for item in value]
            if all(branches):
                groups.append([value for branch in branches for value in min(branch, key=len)])
        elif key != "$not" and (group := _equal_values(key, value)) is not None:
            groups.append(group)
    return groups[:_MAX_GROUPS]


def _equal_values(name: str, value: Any) -> list[dict[str, Any]] | None:
    """Return the values of which a field must equal one.

    The result is None if the condition does not say so.
    """
    if name not in ("acl", "department") and not name.startswith("metadata."):
        return None
    operators = value if isinstance(value, Mapping) else {"$eq": value}
    if "$eq" not in operators and "$in" not in operators:
        return None
    operands = [operators["$eq"]] if "$eq" in operators else operators["$in"]
    keys = name.split(".") if name.startswith("metadata.") else ["acl"]
    field = _parse_field(name, name)
    return [_nest(keys, field.operand(operand, name)) for operand in operands]


def _nest(keys: Sequence[str], value: Any) -> Any:
    return {keys[0]: _nest(keys[1:], value)} if keys else value


def _is_one_group(where: Mapping[Any, Any]) -> bool:
    """Return True if every document with a value of the group passes."""
    (key, value), *others = where.items()
    return not others and not key.startswith("$") and (not isinstance(value, Mapping) or len(value) == 1)


class _Compiler:
    """Compiles one `where` and collects the variables of its predicate."""

    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}
        self._conditions = 0

    def compile_all(self, where: Any, path: str, depth: int) -> str:
        """Compile a mapping of fields and combinators; all must hold."""
        if not isinstance(where, Mapping) or not where:
            raise _build_error(path, where, "give a mapping of conditions, {'title': 'Churn'}")
        if depth > MAX_DEPTH:
            raise _build_error(path, where, f"nest conditions at most {MAX_DEPTH} deep")
        parts = (self._compile_entry(key, value, _child(path, key), depth) for key, value in where.items())
        return f"({' && '.join(parts)})"

    def _compile_entry(self, key: Any, value: Any, path: str, depth: int) -> str:
        if key == "$not":
            return _negate(self.compile_all(value, path, depth + 1))
        if key not in ("$and", "$or"):
            return self._compile_field(_parse_field(key, path), value, path)
        if not isinstance(value, list | tuple) or not value:
            raise _build_error(path, value, "give a list of at least one mapping, [{'title': 'A'}, {'title': 'B'}]")
        parts = [self.compile_all(item, _child(path, index), depth + 1) for index, item in enumerate(value)]
        return f"({(' && ' if key == '$and' else ' || ').join(parts)})"

    def _compile_field(self, field: _Field, value: Any, path: str) -> str:
        if not isinstance(value, Mapping):
            return self._compile_condition(field, "$eq", value, path)
        if not value:
            raise _build_error(path, value, "give a value, or operators with values, {'$gte': 2024}")
        return " && ".join(
            self._compile_condition(field, operator, operand, _child(path, operator))
            for operator, operand in value.items()
        )

    def _compile_condition(self, field: _Field, operator: Any, value: Any, path: str) -> str:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise RequestError(
                f"filter has more than {MAX_CONDITIONS} conditions, at {path}; "
                "give alternatives of one field as a list, {'$in': [...]}"
            )
        if operator not in field.operators:
            raise RequestError(f"filter at {path} has no such operator; use one of {', '.join(field.operators)}")
        if operator in _PRESENCE:
            return _compile_presence(field, operator, value, path)
        if operator in _PATTERNS:
            return self._compile_pattern(field, operator, value, path)
        if operator in ("$in", "$nin"):
            equal = f"{field.path} == {self._bind(_parse_operands(field, value, path))}[*]"
            return equal if operator == "$in" else _negate(equal)
        operand = field.operand(value, path)
        if operator == "$ne":
            return _negate(f"{field.path} == {self._bind(operand)}")
        if operator != "$eq" and not _is_ordered(operand):
            raise _build_error(path, value, "order by text, a finite number or a date")
        return f"{field.path} {_SIGNS[operator]} {self._bind(operand)}"

    def _compile_pattern(self, field: _Field, operator: str, value: Any, path: str) -> str:
        text = _parse_text(value, path)
        if not text or len(text) > MAX_PATTERN:
            raise _build_error(path, value, f"give a text of 1 to {MAX_PATTERN:,} characters")
        if operator == "$starts_with":
            return f"{field.path} starts with {self._bind(text)}"
        if operator == "$ends_with":
            return f"{field.path} like_regex {dumps(_SPECIAL.sub(_ESCAPED, text) + '$')}"
        if operator == "$icontains":
            return f"{field.path} like_regex {dumps(''.join(map(_any_case, text)))}"
        return f'{field.path} like_regex {dumps(text)} flag "q"'

    def _bind(self, value: Any) -> str:
        name = f"v{len(self.variables)}"
        self.variables[name] = value
        return f"${name}"


def _any_case(character: str) -> str:
    """Return the pattern of a character in upper and lower case.

    The flag `i` of like_regex depends on the locale of the database.
    """
    cases = sorted({case for case in (character, character.lower(), character.upper()) if len(case) == 1})
    return f"[{''.join(cases)}]" if len(cases) > 1 else _SPECIAL.sub(_ESCAPED, character)


def _compile_presence(field: _Field, operator: str, value: Any, path: str) -> str:
    if not isinstance(value, bool):
        raise _build_error(path, value, "give true or false")
    if operator == "$exists":
        exists = f"exists({field.path})"
        return exists if value else _negate(exists)
    filled = f"exists({field.path}[*] ? (@ != null))"
    return _negate(filled) if value else filled


def _negate(predicate: str) -> str:
    """Negate a predicate.

    jsonpath's own `!` leaves unknown as it is; a filter expression takes it as false.
    """
    return f"!exists($ ? ({predicate}))"


def _is_ordered(operand: Any) -> bool:
    return isinstance(operand, str | int | float) and not isinstance(operand, bool)


def _parse_operands(field: _Field, value: Any, path: str) -> list[Any]:
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
        raise _build_error(path, value, "give a list of values")
    if len(value) > MAX_VALUES:
        raise RequestError(f"filter at {path} has a list of {len(value):,} values; give at most {MAX_VALUES:,}")
    return [field.operand(item, _child(path, index)) for index, item in enumerate(value)]


def _parse_field(name: Any, path: str) -> _Field:
    if isinstance(name, str):
        if name in _FIELDS:
            return _FIELDS[name]
        if name.startswith("metadata."):
            return _Field(path=_metadata_path(name, path), operand=_parse_scalar)
    fields = ", ".join(_FIELDS)
    raise RequestError(f"filter at {path} names no field; use {fields}, metadata.KEY, or $and, $or, $not")


def _metadata_path(name: str, path: str) -> str:
    keys = name.split(".")[1:]
    if not all(keys) or not is_text(name):
        raise RequestError(f"filter at {path} has an empty key, a NUL or a lone surrogate; write metadata.KEY")
    if len(keys) > MAX_DEPTH:
        raise RequestError(f"filter at {path} is {len(keys)} keys deep; use at most {MAX_DEPTH}")
    return "$." + ".".join(dumps(key) for key in ("metadata", *keys))


def _parse_text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _build_error(path, value, "give text")
    if not is_text(value):
        raise _build_error(path, value, "remove NUL and lone surrogates")
    return value


def _parse_department(value: Any, path: str) -> str:
    """Return the principal of a department."""
    return "department:" + _parse_text(value, path)


def _parse_time(value: Any, path: str) -> str:
    """Return a time as UTC text with microseconds.

    The order of such texts is the order of time.
    """
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, date) and not isinstance(moment, datetime):
            moment = datetime.combine(moment, time())
        if isinstance(moment, datetime):
            utc = moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment.astimezone(UTC)
            return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    except (ValueError, OverflowError):
        pass
    raise _build_error(
        path, value, "give a date, a datetime, or text as in ISO 8601, '2026-01-31' or '2026-01-31T12:00Z'"
    )


def _parse_scalar(value: Any, path: str) -> str | int | float | bool | None:
    """Return a value as metadata stores it, a date in ISO 8601."""
    if isinstance(value, str):
        return _parse_text(value, path)
    if isinstance(value, date):
        return value.isoformat()
    if value is None or (isinstance(value, int | float) and _is_finite(value)):
        return value
    raise _build_error(path, value, "give text, a finite number, true, false, null or a date; a list goes with $in")


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond what a float holds
        return False


def _child(path: str, key: Any) -> str:
    return f"{path}[{_show(key)}]"


def _build_error(path: str, value: Any, remedy: str) -> RequestError:
    return RequestError(f"filter at {path} is {_show(value)}; {remedy}")


def _show(value: Any) -> str:
    """Show a value on one line of at most 80 characters."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # an integer of thousands of digits, lists within lists without end
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


_FIELDS = {
    **{
        name: _Field(path=f'$."{name}"', operand=_parse_text)
        for name in ("source", "title", "media_type", "language", "collection", "acl")
    },
    **{
        name: _Field(path=f'$."{name}"', operand=_parse_time, operators=_ORDERED)
        for name in ("created_at", "updated_at")
    },
    "department": _Field(path='$."acl"', operand=_parse_department, operators=_EQUALITY),
}
