"""Faults of invalid requests, as a client can find them in its body."""

from collections.abc import Iterable, Mapping
from typing import Any

_WRONG_TYPE = "_type"
"""How pydantic ends the kinds of faults that say nothing but the expected type."""


def describe_faults(faults: Iterable[Mapping[str, Any]], body: object) -> list[dict[str, Any]]:
    """Return location and message of each fault; those of one place are joined.

    Of a value that may have several types pydantic reports a fault for each, with the name of the type in its location.
    The name is removed, and a wrong type is left out where another type came further.

    Args:
        faults: As pydantic reports them.
        body: The JSON of the request.
    """
    places: dict[tuple[Any, ...], dict[str, str]] = {}
    for fault in faults:
        places.setdefault(_locate(fault, body), {})[fault["msg"]] = fault["type"]
    described = []
    for place, messages in places.items():
        if is_deeper := any(len(other) > len(place) and other[: len(place)] == place for other in places):
            messages = {message: kind for message, kind in messages.items() if not kind.endswith(_WRONG_TYPE)}
        specific = [message for message, kind in messages.items() if not kind.endswith(_WRONG_TYPE)]
        if messages or not is_deeper:
            described.append({"location": list(place), "message": "; or ".join(specific or messages)})
    return described


def _locate(fault: Mapping[str, Any], body: object) -> tuple[Any, ...]:
    source, *path = fault["loc"]
    if source != "body" or not isinstance(body, dict | list):
        return (source, *path)
    place: list[Any] = [source]
    value: Any = body
    for number, part in enumerate(path, start=1):
        try:
            value = value[part]
        except (LookupError, TypeError):
            if fault["type"] != "missing" or number < len(path):
                continue
        place.append(part)
    return tuple(place)
