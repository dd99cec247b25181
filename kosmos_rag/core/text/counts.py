"""Counts in messages."""


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 chunk`, `2,000 chunks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
