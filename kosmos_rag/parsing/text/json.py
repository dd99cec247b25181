"""Parse JSON and JSON Lines: every value with its path."""

import json
from collections.abc import Iterator
from typing import Any

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.text.decode import decode

_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
"""Numbers stay as they are written."""
_LITERALS = {None: "null", True: "true", False: "false"}


def parse_json(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse JSON to one line for each value.

    `people[3].address.city: Berlin`; a list of plain values is one line.

    What is not quite JSON keeps its lines as they are.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    text = decode(data)
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return ParsedDocument(text=text, media_type=media_types.JSON)
    composition = Composition(limits)
    for line in format_values(value):
        composition.add_line(line)
    return composition.build(media_types.JSON, None)


def parse_json_lines(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse JSON Lines to one line for each record.

    `name: Ada; address.city: Berlin`; a line that is not JSON is kept unchanged.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    composition = Composition(limits)
    for line in decode(data).split("\n"):
        try:
            composition.add_line("; ".join(format_values(_DECODER.decode(line))))
        except (ValueError, RecursionError):
            composition.add_line(line)
    return composition.build(media_types.JSONL, None)


def format_values(value: Any) -> Iterator[str]:
    """Yield a line for each value, in the order of the file.

    Without recursion: depth is the file's choice.
    """
    pending = [iter([("", value)])]
    while pending:
        path, value = next(pending[-1], (None, None))
        if path is None:
            pending.pop()
        elif members := _members(path, value):
            pending.append(members)
        elif text := _plain(value):
            yield f"{path}: {text}" if path else text


def _members(path: str, value: Any) -> Iterator[tuple[str, Any]] | None:
    """Return path and value of each member.

    Of an object, or of a list that contains an object or a list. The result is None for other values: they fit on a
    line.
    """
    near = path[-bounds.MAX_PATH_CHARS :]
    if isinstance(value, dict):
        return ((f"{near}.{key}" if near else key, item) for key, item in value.items())
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return ((f"{near}[{number}]", item) for number, item in enumerate(value))
    return None


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return " ".join(value.split()) if isinstance(value, str) else _LITERALS[value]
