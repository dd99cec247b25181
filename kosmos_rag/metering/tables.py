"""Usage as a table of texts, for the terminal and CSV."""

from collections.abc import Collection

from kosmos_rag.engine import csv_text
from kosmos_rag.metering.records import DIMENSIONS, UsageAmount, UsageReport


def list_columns(by: Collection[str], *, every: str | None) -> list[str]:
    """Return the names of the columns: interval, dimensions, quantity, amount, cost."""
    interval = [] if every is None else ["start"]
    return [*interval, *(name for name in DIMENSIONS if name in by), "quantity", "amount", "cost"]


def format_cell(amount: UsageAmount, column: str) -> str:
    """Return one value of a row as text; empty for None."""
    value = getattr(amount, column)
    if column == "start":
        return "" if value is None else f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return "" if value is None else str(value)


def write_csv(report: UsageReport, by: Collection[str], *, every: str | None) -> str:
    """Return a report as CSV (RFC 4180) with a row of names.

    Names of readers that a spreadsheet would read as formulas get an apostrophe.

    Args:
        by: Dimensions of its rows.
        every: Interval of its rows; None for the whole time.
    """
    columns = list_columns(by, every=every)
    rows = ([*(format_cell(amount, column) for column in columns), report.currency] for amount in report.amounts)
    return csv_text.write_csv([*columns, "currency"], rows)
