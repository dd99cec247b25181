"""Render table rows as self-contained lines: each value after its column name."""

import re
from collections.abc import Iterable, Iterator, Sequence

_NUMBER = re.compile(r"[-+(]?[\d.,'\s]*\d[\d.,'\s]*[%)]?(?:[eE][-+]?\d+)?")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?:[T ].*)?")
_MAX_HEADER_ROW = 20
"""Rows to search for a header: a table may have title lines above it."""
_MAX_NAME_CHARS = 60


def row_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield one line for each row of a table.

    `name: value; name: value` below the header, `cell | cell` above it. The header is the first row, among the first
    twenty, of two or more cells that are all words. Without a header the cells have no names. A blank row gives a blank
    line.
    """
    names: list[str] | None = None
    for number, row in enumerate(rows):
        cells = [" ".join(cell.split()) for cell in row]
        if names is None and number < _MAX_HEADER_ROW and _is_header(cells):
            names = [cell[:_MAX_NAME_CHARS] for cell in cells]
            yield _bare(cells)
        else:
            yield _bare(cells) if names is None else _named(names, cells)


def _is_header(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return len(filled) > 1 and not any(_NUMBER.fullmatch(cell) or _DATE.fullmatch(cell) for cell in filled)


def _bare(cells: Sequence[str]) -> str:
    return " | ".join(cells).strip(" |")


def _named(names: Sequence[str], cells: Sequence[str]) -> str:
    parts = []
    for column, cell in enumerate(cells):
        name = names[column] if column < len(names) else ""
        if cell:
            parts.append(f"{name}: {cell}" if name else cell)
    return "; ".join(parts)
