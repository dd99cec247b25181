"""Parse RTF with striprtf: its text, a paragraph a block."""

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.ingestion.parsing import media_types
from kosmos_rag.ingestion.parsing.compose import Composition
from kosmos_rag.ingestion.parsing.limits import OutputLimits


def parse_rtf(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a Rich Text document.

    A row of a table is a line, `cell | cell`.

    Raises:
        ParseError: `too_large`.
    """
    from striprtf.striprtf import rtf_to_text

    composition = Composition(limits)
    was_row = False
    for line in rtf_to_text(data.decode("latin-1"), errors="replace").split("\n"):
        is_row = line.endswith("|")
        text = " | ".join(cell.strip() for cell in line[:-1].split("|")) if is_row else line
        (composition.line if is_row and was_row else composition.block)(text)
        was_row = is_row
    return composition.parsed(media_types.RTF, None)
