"""Values of numbers in digits."""

import re

import pytest

from kosmos_rag.core.text.numbers import NUMBER, read_number


@pytest.mark.parametrize(
    ("text", "language", "value"),
    [
        ("1850", "english", "1850"),
        ("1,850", "english", "1850"),
        ("1.850", "english", "1.85"),
        ("1.850", "german", "1850"),
        ("1,850", "german", "1.85"),
        ("1.850", "spanish", "1850"),
        ("1,850", "spanish", "1850"),
        ("1.850", "italian", "1850"),
        ("0.125", "german", "0.125"),
        ("2,5", "english", "2.5"),
        ("3.50", "english", "3.5"),
        ("3,00", "german", "3"),
        ("007", "english", "7"),
        ("0", "english", "0"),
        ("-1.000,50", "english", "-1000.5"),
        ("1,000.50", "german", "1000.5"),
        ("1.000.000", "english", "1000000"),
        ("1,234,567.8", "english", "1234567.8"),
        ("1\u00a0850", "english", "1850"),
        ("1\u202f850,5", "english", "1850.5"),
        ("1'850.5", "german", "1850.5"),
        ("1\u2019850", "german", "1850"),
        ("1,00,000", "english", "100000"),
        ("2,5,7", "english", None),
        ("1.5.2", "english", None),
        ("4.5.2026", "german", None),
        ("0.000.000", "german", None),
        ("1,000.000,5", "german", None),
        ("10:30", "english", None),
        ("\u0663", "english", None),
        ("1.\u0663", "english", None),
    ],
)
def test_read_number__follows_the_signs_of_the_language(text: str, language: str, value: str | None) -> None:
    assert read_number(text, language) == value


def test_number__ends_before_what_is_no_digit() -> None:
    assert re.findall(NUMBER, "It costs 1,850.50, 2\u00a0500 or 3 500.") == ["1,850.50", "2\u00a0500", "3", "500"]
