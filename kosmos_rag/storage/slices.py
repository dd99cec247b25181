"""Columns of many rows, in pieces that one statement may carry."""

from collections.abc import Iterator
from typing import Any

_ROWS = 4096
"""Rows of one statement at most: a document of any size stays within the time that a statement may take."""


def slices(columns: dict[str, list[Any]]) -> Iterator[dict[str, list[Any]]]:
    """Cut columns of one length into pieces of at most so many rows, in order."""
    rows = len(next(iter(columns.values())))
    for start in range(0, rows, _ROWS):
        yield {name: values[start : start + _ROWS] for name, values in columns.items()}
