"""Times of a request."""

from datetime import UTC, datetime

from kosmos_rag.core.errors import RequestError


def parse_time(name: str, text: str | None) -> datetime | None:
    """Parse a day or time in ISO 8601, and return it in UTC. Raises RequestError.

    Without a zone it is in UTC.

    Args:
        name: Name of the option or parameter, for the message.
    """
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:  # the first and the last day of all years may have no time in UTC
        raise RequestError(
            f"{name} {text[:40]!r} is not a day or time; write 2026-11-01 or 2026-11-01T08:00+01:00"
        ) from error
