"""Cursors: where a page ended, opaque to whoever carries it to the next."""

import base64
import binascii
import json
from typing import Any

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import is_text


def cursor_of(*place: str | int) -> str:
    """Return a cursor that says where a page ended."""
    return base64.urlsafe_b64encode(json.dumps(place, ensure_ascii=False).encode()).decode().rstrip("=")


def place_of(cursor: str, *kinds: type[str] | type[int]) -> tuple[Any, ...]:
    """Return what a cursor says. Raises RequestError where it is none of ours."""
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(kinds):
        raise RequestError(f"the cursor {cursor[:60]!r} is none that was given out; take `next` of the page before")
    if not all(is_text(part) if isinstance(part, str) else 0 < part < 2**63 for part in place):
        raise RequestError(f"the cursor {cursor[:60]!r} is none that was given out; take `next` of the page before")
    return tuple(place)
