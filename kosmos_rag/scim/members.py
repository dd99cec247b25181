"""Changes of the members of a group, in a time linear in the operations."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scim2_models import InvalidValueException

_PREFIX = "urn:ietf:params:scim:schemas:core:2.0:group:"
_SELECTION = re.compile(r'members\[\s*value\s+eq\s+"([^"\\]*)"\s*\]', re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberChange:
    """What a request changes of the members of a group."""

    replaces: bool = False
    """Whether the members that it does not add are removed."""
    added: Collection[str] = ()
    removed: Collection[str] = ()


def take_members(operation: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Return the part of an operation that changes members, and its rest; None for neither."""
    path = _read_path(operation)
    value: Any = operation.get("value")
    if path:
        return (operation, None) if re.match(r"members\b", path, re.IGNORECASE) else (None, operation)
    key = next((key for key in value if key.casefold() == "members"), None) if isinstance(value, dict) else None
    if key is None:
        return None, operation
    rest = {name: entry for name, entry in value.items() if name != key}
    return {**operation, "path": "members", "value": value[key]}, {**operation, "value": rest} if rest else None


def read_changes(operations: Iterable[Mapping[str, Any]]) -> MemberChange:
    """Return what operations on members change in their order. Raises InvalidValueException."""
    replaces, entries = False, dict[str, bool]()
    for operation in operations:
        verb, values = _read_change(operation)
        if verb == "replace":
            replaces, entries = True, {}
        entries.update(dict.fromkeys(values, verb != "remove"))
    return MemberChange(
        replaces=replaces,
        added=[value for value, is_added in entries.items() if is_added],
        removed=[value for value, is_added in entries.items() if not is_added],
    )


def _read_change(operation: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return add, remove or replace, and the ids."""
    verb, path = str(operation.get("op")).casefold(), _read_path(operation)
    value: Any = operation.get("value")
    if verb == "remove" and value is None and (match := _SELECTION.fullmatch(path)):
        return verb, [match[1].lower()]
    if path.casefold() != "members" or verb not in ("add", "remove", "replace"):
        raise InvalidValueException(detail='members are changed by the path members or members[value eq "ID"]')
    if value is None and verb != "add":
        return "replace", []
    entries = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, dict) and isinstance(entry.get("value"), str) for entry in entries):
        raise InvalidValueException(detail='a member is no object with an id; use {"value": "ID"}')
    return verb, [entry["value"].lower() for entry in entries]


def _read_path(operation: Mapping[str, Any]) -> str:
    path = str(operation.get("path") or "").strip()
    return path[len(_PREFIX) :] if path.casefold().startswith(_PREFIX) else path
