"""Write the rows of a table as lines that can be read alone: each value after the name of its column."""

import re
from collections.abc import Iterable, Iterator, Sequence

_NUMBER = re.compile(r"[-+(]?[\d.,'\s]*\d[\d.,'\s]*[%)]?(?:[eE][-+]?\d+)?")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?:[T ].*)?")
_HEADER_WITHIN = 20
"""A table may have a few lines of title above it; further down a row of words is a row of words."""
_LONGEST_NAME = 60


def row_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Give one line for each row: `name: value.

    Name: value` below the header, `cell | cell` above it. The header is the first row, among the first twenty, of two
    or more cells that are all words. A table without one keeps its cells bare. A blank row gives a blank line.
    """
    names: list[str] | None = None
    for number, row in enumerate(rows):
        cells = [" ".join(cell.split()) for cell in row]
        if names is None and number < _HEADER_WITHIN and _is_header(cells):
            names = [cell[:_LONGEST_NAME] for cell in cells]
            yield _bare(cells)
        else:
            yield _bare(cells) if names is None else _named(names, cells)


def _is_header(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return len(filled) > 1 and not any(_NUMBER.fullmatch(cell) or _DATE.fullmatch(cell) for cell in filled)


def _bare(cells: Sequence[str]) -> str:
    return " | ".join(cells).strip(" |")


def _named(names: Sequence[str], cells: Sequence[str]) -> str:
    pieces = []
    for column, cell in enumerate(cells):
        name = names[column] if column < len(names) else ""
        if cell:
            pieces.append(f"{name}: {cell}" if name else cell)
    return "; ".join(pieces)
