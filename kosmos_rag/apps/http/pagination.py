"""Cursors of lists: the position after a page, opaque to clients."""

import base64
import binascii
import json
from typing import Any

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import is_text


def encode_cursor(*position: str | int) -> str:
    """Encode the position after a page."""
    return base64.urlsafe_b64encode(json.dumps(position, ensure_ascii=False).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *kinds: type[str] | type[int]) -> tuple[Any, ...]:
    """Decode a cursor.

    Raises RequestError where its values are not of these types.
    """
    try:
        position = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        position = None
    if not isinstance(position, list) or [type(part) for part in position] != list(kinds):
        raise RequestError(f"the cursor {cursor[:60]!r} is invalid; use `next` of the previous page")
    if not all(is_text(part) if isinstance(part, str) else 0 < part < 2**63 for part in position):
        raise RequestError(f"the cursor {cursor[:60]!r} is invalid; use `next` of the previous page")
    return tuple(position)
