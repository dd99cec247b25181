"""Parse CSV and TSV.

Tables are in the order of the file, one line for each row, each value after the name of its column.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from itertools import islice

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.sheets import Sheet
from kosmos_rag.parsing.tables.table import collapse_whitespace
from kosmos_rag.parsing.text.decode import decode

_SEPARATORS = "\t;,|"
"""If two fit equally well, the first: commas also occur in numbers."""


def parse_csv(data: bytes, limits: OutputLimits, *, media_type: str) -> ParsedDocument:
    """Parse tables of separated values.

    The separator of a CSV is the one that splits most of the first rows alike. A file whose quotes are invalid keeps
    its lines unchanged.

    Args:
        limits: limits of the result.
        media_type: CSV or TSV.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    text = decode(data)
    separator = "\t" if media_type == media_types.TSV else _separator(text)
    try:
        rows = _read(text, separator, limits)
    except csv.Error:
        return ParsedDocument(text=text, media_type=media_type)
    composition = Composition(limits)
    composition.add_sheet(Sheet(rows=rows))
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


def _separator(text: str) -> str:
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
