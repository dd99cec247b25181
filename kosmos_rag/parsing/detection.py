"""Detect the media type of a document by its content."""

import re
import zipfile
from collections.abc import Collection
from io import BytesIO

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.archives.members import is_compressed, is_tar
from kosmos_rag.parsing.archives.seven_zip import SIGNATURE
from kosmos_rag.parsing.errors import translate_errors
from kosmos_rag.parsing.office import compound
from kosmos_rag.parsing.office.encrypted import PACKAGE
from kosmos_rag.parsing.office.legacy import choose_legacy_format, legacy_error
from kosmos_rag.parsing.text.decode import decode, has_escapes
from kosmos_rag.parsing.text.definitions import has_grammar
from kosmos_rag.parsing.web.confluence import DESCRIPTOR, ENTITIES, IS_INDEX, IS_STORAGE

_RTF = b"{\\rtf"
_PARQUET = b"PAR1"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")

_BINARIES = (  # offset, signature, name
    (0, b"GIF8", "GIF image"),
    (0, b"BM", "BMP image"),
    (8, b"WAVE", "WAVE audio"),
    (0, b"ID3", "MP3 audio"),
    (0, b"OggS", "Ogg media"),
    (4, b"ftyp", "MPEG-4 media"),
    (0, b"(\xb5/\xfd", "Zstandard archive"),
    (0, b"Rar!\x1a\x07", "RAR archive"),
    (0, b"\x7fELF", "ELF program"),
    (0, b"MZ", "Windows program"),
    (0, b"\xcf\xfa\xed\xfe", "macOS program"),
    (0, b"\xca\xfe\xba\xbe", "Java class"),
    (0, b"\0asm", "WebAssembly module"),
    (0, b"SQLite format 3\0", "SQLite database"),
    (0, b"wOFF", "WOFF font"),
    (0, b"wOF2", "WOFF font"),
)
_PICTURES = (  # offset, signature, media type of what OCR can read
    (0, b"\x89PNG\r\n", media_types.PNG),
    (0, b"\xff\xd8\xff", media_types.JPEG),
    (0, b"II*\0", media_types.TIFF),
    (0, b"MM\0*", media_types.TIFF),
    (8, b"WEBP", media_types.WEBP),
)
_OFFICE = "[Content_Types].xml"
_OFFICE_TYPES = {
    "visio/document.xml": media_types.VSDX,
    "xl/workbook.xml": media_types.XLSX,
    "ppt/presentation.xml": media_types.PPTX,
}
_EPUB = "META-INF/container.xml"
_DECLARED_TYPE, _OPEN_DOCUMENT = "mimetype", "content.xml"
_OPEN_DOCUMENTS = frozenset({media_types.ODT, media_types.ODS, media_types.ODP})
_ZIP_CONTENTS = (  # a member that identifies the format, name
    ("xl/workbook.bin", "binary Excel workbook"),
    (_OPEN_DOCUMENT, "OpenDocument file"),
    ("META-INF/MANIFEST.MF", "Java archive"),
)
# SharePoint and similar programs write document2.xml.
_WORD_MEMBER = re.compile(r"word/document\d*\.xml")

_WORKBOOKS = frozenset({"Workbook", "Book"})
_INDEX_MEMBER = re.compile(r"(?:[^/]{1,200}/)?index\.html")

_PDF_HEADER = re.compile(rb"%PDF-\d")
_HTML_START = re.compile(r"<(?:!doctype\s+html|(?:html|head|body|title|meta)[\s>/])", re.IGNORECASE)
_ROOTS = (
    (re.compile(r"<(?:!doctype\s+)?svg[\s>]", re.IGNORECASE), media_types.SVG),
    (re.compile(r"<w:wordDocument"), media_types.WORDML),
    (re.compile(r"<(?:mxfile|mxGraphModel)[\s>]"), media_types.DRAWIO),
    *(
        (re.compile(rf"<office:document\s[^<>]*office:mimetype=[\"']{re.escape(name)}(?:-template)?[\"']"), name)
        for name in sorted(_OPEN_DOCUMENTS)
    ),
)
"""Elements that a format begins with."""
_WEBVTT = re.compile(r"WEBVTT(?:[ \t][^\n]*)?\n")
_ANY_TAG = re.compile(r"<(?:!DOCTYPE\s+)?[a-zA-Z][^\s<>]*[\s>]")
_MARKDOWN_SIGN = re.compile(r"(?:\A|\n[ \t]*\n)#{1,6}[ \t]+\S|(?:\A|\n)(?:```|~~~)")
_SPACE = re.compile(r"\s*")
_PLAIN = frozenset({media_types.TEXT, media_types.MARKDOWN, *media_types.CODE.values(), *media_types.MARKUP.values()})

# RFC 5322: the fields of a mail, some of them folded, and then an empty line.
_MAIL_FIELDS = re.compile(r"(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*)+(?:\n|\Z)")
_FROM = re.compile(r"^From:", re.MULTILINE | re.IGNORECASE)
_STAMP = re.compile(r"^(?:Date|Message-ID|MIME-Version|Received):", re.MULTILINE | re.IGNORECASE)
_ENVELOPE = re.compile(r">?From [^\n]*\n(?=[!-9;-~]+[ \t]*:)")
_MIME = re.compile(r"^MIME-Version:[ \t]*1\.0\b", re.MULTILINE | re.IGNORECASE)
_MAIL_FIELD = re.compile(
    r"^(?:From|To|Subject|Date|Message-ID|MIME-Version|Received|Return-Path|Delivered-To|Content-Type)[ \t]*:",
    re.MULTILINE | re.IGNORECASE,
)
_ANY_FIELD = re.compile(r"[!-9;-~]+[ \t]*:")
_PART_START = re.compile(r"--\S[^\n]*\nContent-[A-Za-z-]+:")
_ENOUGH_FIELDS = 3
_SAVED_PAGE = re.compile(r"^(?:From: <Saved by |Snapshot-Content-Location:)", re.MULTILINE)
_MAIL_NAMES = {
    "eml": media_types.EML,
    "mbox": media_types.MBOX,
    "mbx": media_types.MBOX,
    "mht": media_types.MHTML,
    "mhtml": media_types.MHTML,
    "": None,
    "txt": None,
}
"""Extensions of mails, and of files that may be one."""

_XML_NAMES = frozenset({"", "txt", "xml"})
_XML_FILES = frozenset({"atom", "bpmn", "rss", "xml"})
_BPMN = "http://www.omg.org/spec/BPMN/20100524/MODEL"
_HTML_NAMES = frozenset({"html", "htm", "xhtml"})
_NAME = re.compile(r"[a-z][a-z_]+:[^/\\]*")
"""A source that is a name and no path: the end of `schema_column:shop.orders.json` says nothing of the format."""
_PROSE_NAMES = frozenset({"", "txt", "text"})
"""Elsewhere a line that begins with `#` may be a comment of source code."""


def detect(data: bytes, source: str) -> str:
    """Return the media type of a document, if it is supported.

    The extension of `source` only decides between kinds of text that the content leaves open.

    Raises:
        ParseError: `unsupported` or `encrypted` for a known format that cannot be used, `corrupt` for a
            broken ZIP archive, `binary` or `empty` for what is not a text.
    """
    if _is_pdf(data):
        return media_types.PDF
    if data.startswith(_ZIP):
        return _type_of_zip(data)
    if data.startswith(compound.SIGNATURE):
        return _type_of_ole(data)
    if data.startswith(_RTF):
        return media_types.RTF
    if data.startswith(_PARQUET) and data.endswith(_PARQUET):
        return media_types.PARQUET
    if (is_compressed(data) and not data.isascii()) or is_tar(data) or data.startswith(SIGNATURE):
        return media_types.ZIP
    if (picture := _find_picture_type(data)) is not None:
        return picture
    _refuse_known_binary(data)
    if data.strip() and _extension(source) == "pdf":
        raise ParseError("binary", "the file is named .pdf, and holds no PDF; give it the name of what it is")
    return _type_of_text(decode(data), _extension(source))


def detect_small_text(data: bytes, source: str, media_type: str | None = None) -> str | None:
    """Return the media type of small plain text in UTF-8; None for other documents.

    Plain text, Markdown, or source code without a grammar, of at most 64 KB. Raises ParseError as `detect` does.

    Args:
        media_type: Its type, where it is declared.
    """
    if len(data) > bounds.SAMPLE_CHARS or b"\0" in data or _is_pdf(data) or data.startswith(_ZIP) or has_escapes(data):
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    kind = media_type or detect(data, source)
    return kind if kind in _PLAIN and not has_grammar(kind) else None


def _is_pdf(data: bytes) -> bool:
    head = data[:1024]
    if head.lstrip().startswith(b"%PDF-"):
        return True
    # A text may quote the header; only a file that has one after other bytes also has objects.
    return _PDF_HEADER.search(head) is not None and b"endobj" in data


def _find_picture_type(data: bytes) -> str | None:
    types = (media_type for offset, signature, media_type in _PICTURES if data.startswith(signature, offset))
    return next(types, None) if b"\0" in data[:1024] else None


def _type_of_zip(data: bytes) -> str:
    with translate_errors("ZIP"), zipfile.ZipFile(BytesIO(data)) as archive:
        members = set(archive.namelist())
        is_export = _is_confluence(archive, members)
        declared = archive.read(_DECLARED_TYPE)[:200].decode("ascii", "replace") if _DECLARED_TYPE in members else ""
    if _OFFICE in members:
        if any(map(_WORD_MEMBER.fullmatch, members)):
            return media_types.DOCX
        for member in _OFFICE_TYPES.keys() & members:
            return _OFFICE_TYPES[member]
    if _EPUB in members:
        return media_types.EPUB
    if is_export:
        return media_types.CONFLUENCE
    if declared in _OPEN_DOCUMENTS and _OPEN_DOCUMENT in members:
        return declared
    if (name := next((name for member, name in _ZIP_CONTENTS if member in members), None)) is not None:
        raise _unsupported_error(name)
    return media_types.ZIP


def _is_confluence(archive: zipfile.ZipFile, members: Collection[str]) -> bool:
    if ENTITIES in members and DESCRIPTOR in members:
        return True
    index = next((name for name in members if _INDEX_MEMBER.fullmatch(name)), None)
    if index is None:
        return False
    with archive.open(index) as page:
        return IS_INDEX.search(page.read(bounds.SAMPLE_CHARS)) is not None


def _type_of_ole(data: bytes) -> str:
    """Return the type of a compound file."""
    streams = compound.list_root_streams(data)
    if PACKAGE in streams:
        message = "the Office document has a password; add it to ingestion.parsing.passwords, or save it without one"
        raise ParseError("encrypted", message)
    if "__properties_version1.0" in streams:
        return media_types.MSG
    if not _WORKBOOKS.isdisjoint(streams):
        return media_types.XLS
    if (legacy := choose_legacy_format(streams)) is not None:
        raise legacy_error(legacy)
    raise _unsupported_error("legacy Office document")


def _refuse_known_binary(data: bytes) -> None:
    has_nul = b"\0" in data[:1024]
    for offset, signature, name in _BINARIES:
        # A text may begin with the letters of a signature; it has no NUL.
        if data.startswith(signature, offset) and (has_nul or not signature.isascii()):
            raise _unsupported_error(name)


def _unsupported_error(name: str) -> ParseError:
    return ParseError("unsupported", f"{name}: not a supported format; convert it to PDF, DOCX, HTML or Markdown")


def _extension(source: str) -> str:
    if _NAME.fullmatch(source):
        return ""
    path = re.split(r"[?#]", source, maxsplit=1)[0] if "://" in source else source
    name = re.split(r"[/\\]", path)[-1]
    return name.rpartition(".")[2].lower() if "." in name else ""


def _type_of_text(text: str, extension: str) -> str:
    start = _skip_prolog(text)
    markup = _type_of_markup(text, start, extension)
    if markup is not None:
        return markup
    if _WEBVTT.match(text):
        return media_types.WEBVTT
    if (mail := _type_of_mail(text, extension)) is not None:
        return mail
    if extension in media_types.TEXTS:
        return media_types.TEXTS[extension]
    if extension in _PROSE_NAMES and not text.startswith("#!") and _MARKDOWN_SIGN.search(text[: bounds.SAMPLE_CHARS]):
        return media_types.MARKDOWN
    return media_types.TEXT


def _type_of_markup(text: str, start: int, extension: str) -> str | None:
    """Return the type of HTML or XML.

    The result is None for other texts.
    """
    if _HTML_START.match(text, start):
        return media_types.HTML
    media_type = next((media_type for pattern, media_type in _ROOTS if pattern.match(text, start)), None)
    if media_type is not None or not _ANY_TAG.match(text, start):
        return media_type
    if extension in _HTML_NAMES or (extension in _XML_NAMES and IS_STORAGE.search(text[: bounds.SAMPLE_CHARS])):
        return media_types.HTML
    if extension in _XML_FILES:
        return media_types.BPMN if _BPMN in text[: bounds.SAMPLE_CHARS] else media_types.XML
    return None


def _type_of_mail(text: str, extension: str) -> str | None:
    """Return the type of a mail, a mailbox or a saved page.

    The result is None for other texts.
    """
    if extension not in _MAIL_NAMES:
        return None
    head = text[: bounds.SAMPLE_CHARS].lstrip()
    envelope = _ENVELOPE.match(head)
    fields = head[envelope.end() :] if envelope else head
    media_type = _MAIL_NAMES[extension]
    if media_type is not None:
        field_count = len(_MAIL_FIELD.findall(fields.partition("\n\n")[0]))
        is_mail = (
            field_count >= _ENOUGH_FIELDS or (field_count and _ANY_FIELD.match(fields)) or _PART_START.match(fields)
        )
        return media_type if is_mail else None
    if not _is_mail(fields):
        return None
    if envelope:
        return media_types.MBOX
    return media_types.MHTML if _SAVED_PAGE.search(fields.partition("\n\n")[0]) else media_types.EML


def _is_mail(text: str) -> bool:
    fields = _MAIL_FIELDS.match(text)
    if fields is None:
        return False
    return bool((_FROM.search(fields[0]) and _STAMP.search(fields[0])) or _MIME.search(fields[0]))


def _skip_prolog(text: str) -> int:
    """Skip white space, comments and processing instructions.

    HTML may begin with any number of them.
    """
    at = 0
    while match := _SPACE.match(text, at):
        at = match.end()
        end = "-->" if text.startswith("<!--", at) else "?>" if text.startswith("<?", at) else None
        if end is None or (end_at := text.find(end, at)) == -1:
            break
        at = end_at + len(end)
    return at
