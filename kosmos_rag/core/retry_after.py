"""The header `Retry-After` of an HTTP response."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def parse_retry_after(text: str, now: datetime | None = None) -> float | None:
    """Return the seconds of a `Retry-After` header; None without a number or date.

    Source: RFC 9110, section 10.2.3. Servers send any number, so callers have a limit of their own.
    """
    text = text.strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        seconds = (at.replace(tzinfo=at.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
    # "inf" and "nan" are floats of Python; a number of hundreds of digits is one that a server may send.
    return max(0.0, seconds) if math.isfinite(seconds) or text.isdecimal() else None
