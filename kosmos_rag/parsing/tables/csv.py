"""Parse CSV and TSV.

Tables are in the order of the file, one line for each row, each value after the name of its column.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from itertools import islice

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.headers import HeaderRows, find_header
from kosmos_rag.parsing.tables.sheets import Sheet, split_sheet
from kosmos_rag.parsing.tables.table import Table, collapse_whitespace
from kosmos_rag.parsing.text.decode import decode

_SEPARATORS = "\t;,|"
"""If two fit equally well, the first: commas also occur in numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvForm:
    """What the first rows of a file show about all of them."""

    separator: str
    header_rows: int
    """Rows to the end of the header, those above it included; 0 without one."""
    name_bytes: int
    """Bytes of text that the names of columns add to a row."""


def find_form(text: str, media_type: str) -> CsvForm:
    """Return the form of a file from its beginning."""
    separator = _find_separator(text, media_type)
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows += (list(map(collapse_whitespace, row)) for row in islice(_rows(text, separator), 2 * bounds.SAMPLE_ROWS))
    table = next((part for part in split_sheet(Sheet(rows=rows)) if isinstance(part, Table)), None)
    header = find_header(table.rows, table.spans) if table else HeaderRows(first=0, count=0)
    if table is None or table.position is None or not header.count:
        return CsvForm(separator=separator, header_rows=0, name_bytes=0)
    end = table.position[0] + header.first + header.count
    names = [name for row in rows[end - header.count : end] for name in row]
    return CsvForm(separator=separator, header_rows=end, name_bytes=sum(len(f"{name}: ".encode()) for name in names))


def parse_csv(
    data: bytes, limits: OutputLimits, *, media_type: str, skipped_rows: tuple[int, int] | None = None
) -> ParsedDocument:
    """Parse tables of separated values.

    The separator of a CSV is the one that splits most of the first rows alike. A file whose quotes are invalid keeps
    its lines unchanged.

    Args:
        media_type: CSV or TSV.
        skipped_rows: rows before the ones that the data lack, and the number of these; None for a whole file.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    text = decode(data)
    separator = _find_separator(text, media_type)
    try:
        rows = _read(text, separator, limits)
    except csv.Error:
        return ParsedDocument(text=text, media_type=media_type)
    composition = Composition(limits)
    numbers = None
    if skipped_rows:
        first, count = skipped_rows
        numbers = [index + 1 + (count if index >= first else 0) for index in range(len(rows))]
    composition.add_sheet(Sheet(rows=rows, row_numbers=numbers))
    return composition.build(media_type, None)


def _read(text: str, separator: str, limits: OutputLimits) -> list[list[str]]:
    rows = []
    size = 0
    for cells in _rows(text, separator):
        row = [collapse_whitespace(cell) for cell in cells]
        size += sum(map(len, row))
        limits.check_text(size)
        rows.append(row)
    return rows


def _find_separator(text: str, media_type: str) -> str:
    if media_type == media_types.TSV:
        return "\t"
    return max(_SEPARATORS, key=lambda separator: _count_uniform_rows(text, separator))


def _count_uniform_rows(text: str, separator: str) -> int:
    """Count the leading rows with the most frequent number of cells.

    If that number is more than one.
    """
    counts: Counter[int] = Counter()
    with suppress(csv.Error):  # the sample may end inside quotes
        counts.update(len(row) for row in islice(_rows(text[: bounds.SAMPLE_CHARS], separator), bounds.SAMPLE_ROWS))
    return max((count for cells, count in counts.items() if cells > 1), default=0)


def _rows(text: str, separator: str) -> Iterator[list[str]]:
    return csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True)
