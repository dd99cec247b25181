"""Usage as a table of texts, for the terminal and CSV."""

import csv
import io
from collections.abc import Collection

from kosmos_rag.metering.records import DIMENSIONS, UsageAmount, UsageReport

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a formula of a spreadsheet begins with."""


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
        report: What is written.
        by: Dimensions of its rows.
        every: Interval of its rows; None for the whole time.
    """
    columns = list_columns(by, every=every)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*columns, "currency"])
    for amount in report.amounts:
        cells = [format_cell(amount, column) for column in columns]
        writer.writerow([*(f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells), report.currency])
    return text.getvalue()
