"""Find the tables of a Markdown text.

The text itself is unchanged.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kosmos_rag.core.types import TableSpan
from kosmos_rag.parsing.tables.table import MAX_NAMES_CHARS

# The grammar is that of GitHub Flavored Markdown 0.29, section 4.10.
_DELIMITERS = re.compile(r" {0,3}(?=[^|]*\||\|)\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*+\|?[ \t]*$")
_CELL_END = re.compile(r"(?<!\\)\|")
_OTHER_BLOCK = re.compile(r"\s*$| {0,3}(?:#{1,6}[ \t]|>|[-+*][ \t]|\d{1,9}[.)][ \t])")


def find_markdown_tables(lines: Iterable[tuple[int, str]]) -> Iterator[TableSpan]:
    """Yield the tables of a text.

    A table is a line of names, a line of delimiters with as many cells, and the lines up to a blank one or another
    block.

    Args:
        lines: Offset and text of each line that is not code, and a blank line for each block of code.
    """
    above: tuple[int, str] = (0, "")
    table: TableSpan | None = None
    last = 0
    for at, line in lines:
        end = at + len(line)
        if table and not _OTHER_BLOCK.match(line):
            last = end
        else:
            if table:
                yield replace(table, end=last)
            table = None
            if "-" in line and _DELIMITERS.match(line) and len(names := _cells(above[1])) == len(_cells(line)):
                context = (" | ".join(names)[:MAX_NAMES_CHARS],)
                table = TableSpan(start=above[0], end=end, context=context, body=end + 1)
                last = end
        above = at, line
    if table:
        yield replace(table, end=last)


def _cells(line: str) -> list[str]:
    cells = [cell.strip() for cell in _CELL_END.split(line.strip().removeprefix("|"))]
    return cells if cells[-1] else cells[:-1]
