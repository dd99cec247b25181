"""The loader of named statements."""

import pytest

from kosmos_rag.core.statements import parse


def test_parse__splits_by_name_and_keeps_comments() -> None:
    assert parse("-- name: one\n-- why\nSELECT 1\n\n-- name: two\nSELECT 2\n") == {
        "one": "-- why\nSELECT 1",
        "two": "SELECT 2",
    }


def test_parse__refuses_a_name_that_comes_twice() -> None:
    with pytest.raises(ValueError, match="'one' occurs twice"):
        parse("-- name: one\nSELECT 1\n-- name: one\nSELECT 2")


def test_parse__refuses_text_before_the_first_name() -> None:
    with pytest.raises(ValueError, match="before the first"):
        parse("SELECT 1\n-- name: one\nSELECT 1")
