"""Faults of invalid requests, as a client can find them in its body."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

_WRONG_TYPE = "_type"
"""How pydantic ends the kinds of faults that say nothing but the expected type."""
_MAX_PLACES = 100
"""Places of an answer: a body of a megabyte may have 100,000 faults."""


def describe_faults(faults: Iterable[Mapping[str, Any]], body: object) -> list[dict[str, Any]]:
    """Return location and message of each fault; those of one place are joined.

    Of more than 100 places the first are listed, and at the end how many there are more.

    Of a value that may have several types pydantic reports a fault for each, with the name of the type in its location.
    The name is removed, and a wrong type is left out where another type came further.

    Args:
        faults: As pydantic reports them.
        body: The JSON of the request; bytes where its content type is another.
    """
    if isinstance(body, bytes):
        message = "JSON was expected, with the header content-type: application/json"
        faults = [{**fault, "msg": message} if tuple(fault["loc"]) == ("body",) else fault for fault in faults]
    places: dict[tuple[Any, ...], dict[str, str]] = {}
    for fault in faults:
        places.setdefault(_locate(fault, body), {})[fault["msg"]] = fault["type"]
    first_places = dict(islice(places.items(), _MAX_PLACES))
    parents = {place[:length] for place in first_places for length in range(len(place))}
    described = []
    for place, messages in first_places.items():
        if is_deeper := place in parents:
            messages = {message: kind for message, kind in messages.items() if not kind.endswith(_WRONG_TYPE)}
        specific = [message for message, kind in messages.items() if not kind.endswith(_WRONG_TYPE)]
        if messages or not is_deeper:
            described.append({"location": list(place), "message": "; or ".join(specific or messages)})
    if more := len(places) - len(first_places):
        described.append({"location": ["body"], "message": f"{more:,} more are not listed"})
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
