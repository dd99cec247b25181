"""CSV that spreadsheets open without running anything in it."""

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a formula of a spreadsheet begins with."""


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as CSV (RFC 4180) with a row of names.

    A cell that a spreadsheet would read as a formula gets an apostrophe.

    Args:
        columns: Names in the first row.
        rows: A cell for each column.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in row] for row in rows)
    return text.getvalue()
