"""What the header `Retry-After` asks for."""

import math
from datetime import UTC, datetime

import pytest

from kosmos_rag.models.http.retry import parse_retry_after

NOW = datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        ("999999", 999999),
        (" 1000000 ", 1_000_000),
        ("9" * 5000, math.inf),
        ("-1", 0),
        ("1.5", 1.5),
        ("inf", None),
        ("nan", None),
        ("", None),
        ("soon", None),
        ("²", None),
        ("Fri, 20 Nov 2026 10:02:00 GMT", 120),
        ("Fri, 20 Nov 2026 11:02:00 +0100", 120),
        ("Fri, 20 Nov 2026 10:02:00 -0000", 120),
        ("Fri, 20 Nov 2026 09:00:00 GMT", 0),
        ("Fri, 99 Nov 2026 10:02:00 GMT", None),
        ("Fri, 20 Nov " + "9" * 5000 + " 10:02:00 GMT", None),
        ("Fri, 20 Nov 2026 10:02:00 +" + "9" * 30, None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
    ],
)
def test_parse_retry_after__takes_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert parse_retry_after(text, NOW) == seconds
