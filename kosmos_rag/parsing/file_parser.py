"""Parse a file, and the files in it, by the parser of its media type."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import Note, ParsedDocument, SourceDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.archives.documents import parse_archive
from kosmos_rag.parsing.detection import detect
from kosmos_rag.parsing.errors import translate_errors
from kosmos_rag.parsing.limits import UNLIMITED, OutputLimits
from kosmos_rag.parsing.mail.eml import ParsePart, parse_eml, parse_mbox, parse_mhtml, parse_msg
from kosmos_rag.parsing.office.diagrams import parse_bpmn, parse_drawio, parse_vsdx
from kosmos_rag.parsing.office.docx import parse_docx, parse_wordml
from kosmos_rag.parsing.office.encrypted import decrypt_office, is_encrypted_office
from kosmos_rag.parsing.office.odf import parse_odf
from kosmos_rag.parsing.office.pptx import parse_pptx
from kosmos_rag.parsing.office.rtf import parse_rtf
from kosmos_rag.parsing.pdf.document import parse_pdf
from kosmos_rag.parsing.pdf.pictures import parse_picture
from kosmos_rag.parsing.small_text import TEXT_PARSERS, Parser, complete
from kosmos_rag.parsing.tables.csv import parse_csv
from kosmos_rag.parsing.tables.parquet import parse_parquet
from kosmos_rag.parsing.tables.xls import parse_xls
from kosmos_rag.parsing.tables.xlsx import parse_xlsx
from kosmos_rag.parsing.text.calendar import parse_calendar
from kosmos_rag.parsing.text.decode import decode_text
from kosmos_rag.parsing.text.json import parse_json, parse_json_lines
from kosmos_rag.parsing.text.notebook import parse_notebook
from kosmos_rag.parsing.text.subtitles import parse_subtitles
from kosmos_rag.parsing.web.confluence_export import parse_confluence_export
from kosmos_rag.parsing.web.epub import parse_epub
from kosmos_rag.parsing.web.html import parse_html
from kosmos_rag.parsing.web.svg import parse_svg
from kosmos_rag.parsing.web.xml import parse_xml

_XML = frozenset({media_types.BPMN, media_types.DRAWIO, media_types.SVG, media_types.WORDML, media_types.XML})
_XML_ENCODING = re.compile(rb"""\A((?:\xef\xbb\xbf)?\s*<\?xml\s[^<>]*?)\sencoding\s*=\s*(?:"[^"<>]*"|'[^'<>]*')""")

_PARSERS: dict[str, Parser] = {
    **TEXT_PARSERS,
    media_types.PDF: parse_pdf,
    media_types.DOCX: parse_docx,
    media_types.WORDML: parse_wordml,
    media_types.PPTX: parse_pptx,
    media_types.EPUB: parse_epub,
    media_types.CONFLUENCE: parse_confluence_export,
    media_types.HTML: partial(parse_html, is_page=True),
    media_types.JSON: parse_json,
    media_types.JSONL: parse_json_lines,
    **{name: partial(parse_odf, media_type=name) for name in (media_types.ODT, media_types.ODP)},
    media_types.RTF: parse_rtf,
    media_types.NOTEBOOK: parse_notebook,
    media_types.PARQUET: parse_parquet,
    media_types.SVG: parse_svg,
    media_types.XML: parse_xml,
    media_types.DRAWIO: parse_drawio,
    media_types.BPMN: parse_bpmn,
    media_types.VSDX: parse_vsdx,
    **{name: partial(parse_calendar, media_type=name) for name in (media_types.ICALENDAR, media_types.VCARD)},
    media_types.SUBRIP: partial(parse_subtitles, media_type=media_types.SUBRIP),
    media_types.WEBVTT: partial(parse_subtitles, media_type=media_types.WEBVTT),
}


class _MailParser(Protocol):
    """Parses a mail whose attachments have parsers of their own."""

    def __call__(self, data: bytes, limits: OutputLimits, parse_part: ParsePart) -> ParsedDocument: ...


_MAIL_PARSERS: dict[str, _MailParser] = {
    media_types.EML: parse_eml,
    media_types.MBOX: parse_mbox,
    media_types.MHTML: parse_mhtml,
    media_types.MSG: parse_msg,
}


class _WorkbookParser(Protocol):
    """Parses a workbook, which may have hidden cells."""

    def __call__(self, data: bytes, limits: OutputLimits, *, hidden_cells: bool) -> ParsedDocument: ...


_WORKBOOK_PARSERS: dict[str, _WorkbookParser] = {
    media_types.XLSX: parse_xlsx,
    media_types.XLS: parse_xls,
    media_types.ODS: partial(parse_odf, media_type=media_types.ODS),
}


def parse(
    document: SourceDocument,
    limits: OutputLimits = UNLIMITED,
    *,
    ocr: bool = False,
    hidden_cells: bool = False,
    passwords: Sequence[str] = (),
) -> ParsedDocument:
    """Parse a document.

    The title of the result is the document's own if it has one. The text of the result is never blank.

    Args:
        document: the document with its bytes.
        limits: limits of the result.
        ocr: whether to read scanned pages of a PDF, which takes seconds for each.
        hidden_cells: whether to read hidden sheets, rows and columns of workbooks.
        passwords: are tried on encrypted files.

    Raises:
        ParseError: the bytes are not a document that can be used; `code` is the reason.
    """
    return _FileParser(limits=limits, ocr=ocr, hidden_cells=hidden_cells, passwords=passwords).parse(document)


@dataclass(frozen=True, kw_only=True, slots=True)
class _FileParser:
    """Parses a file and its attached files by the same settings."""

    limits: OutputLimits
    ocr: bool
    hidden_cells: bool
    passwords: Sequence[str]

    def parse(self, document: SourceDocument, depth: int = 0) -> ParsedDocument:
        """Parse a document that is `depth` files deep in others. Raises ParseError."""
        if self.passwords and is_encrypted_office(document.data):
            document = replace(document, data=decrypt_office(document.data, self.passwords))
        media_type = document.media_type or detect(document.data, document.source)
        with translate_errors(media_types.NAMES[media_type]):
            data, notes = _in_utf8(document.data, media_type)
            if media_type == media_types.ZIP:
                parsed = parse_archive(document, self.limits, self._parse_inner(depth))
            else:
                parsed = self._parser(media_type, depth, document.skipped_rows)(data, self.limits)
        return complete(parsed, document, media_type, self.limits, notes)

    def _parser(self, media_type: str, depth: int, skipped_rows: tuple[int, int] | None) -> Parser:
        if media_type in (media_types.CSV, media_types.TSV):
            return partial(parse_csv, media_type=media_type, skipped_rows=skipped_rows)
        if media_type == media_types.PDF:
            return partial(parse_pdf, ocr=self.ocr, passwords=self.passwords)
        if media_type in media_types.PICTURES:
            return partial(parse_picture, media_type=media_type, ocr=self.ocr)
        if media_type in _WORKBOOK_PARSERS:
            return partial(_WORKBOOK_PARSERS[media_type], hidden_cells=self.hidden_cells)
        if media_type not in _MAIL_PARSERS:
            return _PARSERS[media_type]
        return partial(_MAIL_PARSERS[media_type], parse_part=self._parse_inner(depth))

    def _parse_inner(self, depth: int) -> ParsePart:
        """Return what parses the files in a mail or archive. Raises ParseError."""
        if depth > bounds.MAX_NESTED_FILES:
            message = f"mails and archives in others are read {bounds.MAX_NESTED_FILES} deep; take it out"
            raise ParseError("unsupported", message)
        return partial(self.parse, depth=depth + 1)


def _in_utf8(data: bytes, media_type: str) -> tuple[bytes, tuple[Note, ...]]:
    """Return a text in UTF-8, of XML without a declaration of another encoding; other data unchanged.

    A note says if the encoding was guessed.
    """
    if media_type in media_types.NO_TEXT:
        return data, ()
    notes: tuple[Note, ...] = ()
    try:
        data.decode()
    except UnicodeDecodeError:
        decoded = decode_text(data)
        data, notes = decoded.text.encode(), decoded.notes
    return (_XML_ENCODING.sub(rb"\1", data, count=1) if media_type in _XML else data), notes
