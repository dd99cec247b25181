"""Cursors of lists: the position after a page, opaque to clients."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import is_text

_MAX_NUMBER = 2**63 - 1
"""Of a bigint, which positions are."""


def encode_cursor(*position: str) -> str:
    """Encode the position after a page."""
    return base64.urlsafe_b64encode(json.dumps(position, ensure_ascii=False).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *parse: Callable[[str], Any]) -> tuple[Any, ...]:
    """Decode a cursor.

    Args:
        cursor: what `encode_cursor` returned.
        parse: type of each value; it raises ValueError for a text that is none.

    Raises:
        RequestError: the cursor is no such thing.
    """
    try:
        position = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(position, list) or not all(map(is_text, position)):
            raise ValueError
        values = tuple(kind(text) for kind, text in zip(parse, position, strict=True))
        if any(isinstance(value, int) and not -_MAX_NUMBER <= value <= _MAX_NUMBER for value in values):
            raise ValueError
        return values
    except (binascii.Error, ValueError, RecursionError):
        raise RequestError(f"the cursor {cursor[:60]!r} is invalid; use `next` of the previous page") from None
