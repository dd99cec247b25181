"""Turn the bytes of a document into text with the structure that citations need.

The media type is found by content. Each type has one parser, a function from bytes to ParsedDocument.
"""

from collections.abc import Callable
from dataclasses import replace

from kosmos_rag.errors import ParseError
from kosmos_rag.ingestion.parsing import media_types
from kosmos_rag.ingestion.parsing.detect import detect
from kosmos_rag.ingestion.parsing.docx import parse_docx
from kosmos_rag.ingestion.parsing.failures import third_party
from kosmos_rag.ingestion.parsing.html import parse_html
from kosmos_rag.ingestion.parsing.markdown import parse_markdown
from kosmos_rag.ingestion.parsing.pdf import parse_pdf
from kosmos_rag.ingestion.parsing.text import parse_text
from kosmos_rag.records import ParsedDocument, SourceDocument

__all__ = ["detect", "parse"]

_PARSERS: dict[str, Callable[[bytes], ParsedDocument]] = {
    media_types.PDF: parse_pdf,
    media_types.DOCX: parse_docx,
    media_types.HTML: parse_html,
    media_types.MARKDOWN: parse_markdown,
    media_types.TEXT: parse_text,
}


def parse(document: SourceDocument) -> ParsedDocument:
    """Parse a document; the title of the result is the document's own where it has one.

    The text of the result is never blank.

    Raises:
        ParseError: the bytes are not a document that can be used; `code` says why.
    """
    media_type = detect(document.data, document.source)
    name = media_types.NAMES[media_type]
    with third_party(name):
        parsed = _PARSERS[media_type](document.data)
    if not parsed.text or parsed.text.isspace():
        raise ParseError("empty", f"no text in the {name} file; give a document that has some")
    return replace(parsed, title=document.title or parsed.title)
