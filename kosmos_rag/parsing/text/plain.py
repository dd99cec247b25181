"""Parse plain text: SQL, CSV, source code, logs, prose without markup."""

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.text.decode import decode


def parse_text(data: bytes) -> ParsedDocument:
    """Parse plain text: no title, no headings.

    Raises:
        ParseError: `empty` or `binary`.
    """
    return ParsedDocument(text=decode(data), media_type=media_types.TEXT)
