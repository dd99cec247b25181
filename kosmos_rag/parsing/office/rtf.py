"""Parse RTF with striprtf: paragraphs and tables."""

from itertools import groupby

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.builder import Cell, TableBuilder
from kosmos_rag.parsing.tables.table import collapse_whitespace


def parse_rtf(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a Rich Text document.

    Raises:
        ParseError: `too_large`.
    """
    from striprtf.striprtf import rtf_to_text

    composition = Composition(limits)
    lines = rtf_to_text(data.decode("latin-1"), errors="replace").split("\n")
    for is_row, group in groupby(lines, _is_row):
        if is_row:
            table = TableBuilder()
            for line in group:
                table.add_row(Cell(text=collapse_whitespace(cell)) for cell in line[:-1].split("|"))
            composition.add_table(table.build())
        else:
            for line in group:
                composition.add_block(line)
    return composition.build(media_types.RTF, None)


def _is_row(line: str) -> bool:
    """Return whether a line is a row: striprtf ends cells with `|`."""
    return line.endswith("|")
