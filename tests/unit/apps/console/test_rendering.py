"""How the console formats values."""

from datetime import UTC, datetime, timedelta

import pytest

from kosmos_rag.apps.http.console.rendering import format_age

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=9), "now"),
        (timedelta(seconds=59), "59 seconds ago"),
        (timedelta(seconds=60), "1 minute ago"),
        (timedelta(hours=23, minutes=59), "23 hours ago"),
        (timedelta(days=30), "30 days ago"),
        (timedelta(days=31), "2026-01-29"),
        (timedelta(hours=-2), "in 2 hours"),
    ],
)
def test_format_age__uses_the_largest_unit(age: timedelta, text: str) -> None:
    assert format_age(NOW - age, NOW) == text
