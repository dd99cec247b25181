"""Dates of a document's content, by the keys of its metadata."""

from collections.abc import Mapping
from datetime import date
from typing import Any

SUPERSEDED_BY, VALID_UNTIL = "superseded_by", "valid_until"
VALIDITY_KEYS = frozenset({SUPERSEDED_BY, VALID_UNTIL})
_DATE_KEYS = ("updated", "date")


def content_date(metadata: Mapping[str, Any]) -> date | None:
    """Return the date of the content, by `updated`, else `date`.

    The result is None where neither is a date as in ISO 8601.
    """
    return next((day for key in _DATE_KEYS if (day := parse_date(metadata.get(key))) is not None), None)


def outdated_reason(metadata: Mapping[str, Any], today: date) -> str | None:
    """Return why a document is out of date, or None."""
    if metadata.get(SUPERSEDED_BY) is not None:
        return f"superseded by {metadata[SUPERSEDED_BY]}"
    last = parse_date(metadata.get(VALID_UNTIL))
    return f"valid until {last}" if last is not None and last < today else None


def parse_date(value: object) -> date | None:
    """Return the day that a text in ISO 8601 begins with, or None."""
    try:
        return date.fromisoformat(value[:10]) if isinstance(value, str) else None
    except ValueError:
        return None
