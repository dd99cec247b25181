"""Screen ZIP archives before a parser unpacks them."""

import re
import zipfile
from io import BytesIO

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing import bounds

_MEDIA = re.compile(r"(?:word|ppt|xl)/media/")
"""Where Office keeps pictures. A drawing of one colour compresses a hundred to one, and no parser opens it."""
_BEGIN = 64
_ROOT_RELATIONS = "_rels/.rels"
_CONTENT_TYPES = "[Content_Types].xml"
_STRICT_NAME = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/(\w+)")
_TRANSITIONAL_NAME = rb"http://schemas.openxmlformats.org/\1/2006/\2"
_OPEN_XML = rb"application/vnd.openxmlformats-officedocument."
_MAIN_TYPES = (
    (
        re.compile(rb"application/vnd\.(?:ms-word|openxmlformats-officedocument\.wordprocessingml)\.[\w.]+\.main\+xml"),
        _OPEN_XML + b"wordprocessingml.document.main+xml",
    ),
    (
        re.compile(
            rb"application/vnd\.(?:ms-powerpoint|openxmlformats-officedocument\.presentationml)\.[\w.]+\.main\+xml"
        ),
        _OPEN_XML + b"presentationml.presentation.main+xml",
    ),
)
"""Types of documents, templates, slide shows and files with macros, and the one that the parsers know."""
_HTML_DOCTYPE = re.compile(rb"^\W*<!DOCTYPE\s+html\b[^\[<>]*>", re.IGNORECASE)
"""Of HTML that a document includes. Without a bracket it declares no entity."""
_ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07")
_EMBEDDED = re.compile(r"(?:word|ppt|xl)/embeddings/")
"""Where Office keeps what it embeds, such as the workbook behind a chart; no parser opens it."""


def screen(data: bytes, name: str, *, not_read: re.Pattern[str] = _EMBEDDED) -> None:
    """Refuse archives that exhaust memory, escape or hide others.

    A member may not reach outside the archive.

    Args:
        name: what the file is, for messages.
        not_read: members that no parser opens, and that may be archives.

    Raises:
        ParseError: `too_large`, `encrypted` or `corrupt`.
        zipfile.BadZipFile: it is no archive.
    """
    with zipfile.ZipFile(BytesIO(data)) as archive:
        members = archive.infolist()
        if len(members) > bounds.MAX_ARCHIVE_MEMBERS:
            raise _too_large(name, f"it has {len(members)} members, at most {bounds.MAX_ARCHIVE_MEMBERS} are read")
        refuse_size(name, sum(member.file_size for member in members))
        for member in members:
            _screen_member(member, name)
            _refuse_bomb(archive, member, name)
        for member in members:
            _refuse_archive(archive, member, name, not_read)


def screen_office(data: bytes, name: str) -> bytes:
    """Screen an Office Open XML archive, also for DOCTYPE, and return it.

    No part may have one (ECMA-376, part 2). An archive of the strict variant is returned in the names of the
    transitional one, which the parsers know, and a template or a file with macros as a plain document.
    """
    screen(data, name)
    is_strict = has_other_type = False
    with zipfile.ZipFile(BytesIO(data)) as archive:
        for member in archive.infolist():
            part = archive.read(member)
            if _is_xml(part):
                refuse_doctype(part, member.filename, name)
                is_strict |= member.filename == _ROOT_RELATIONS and _STRICT_NAME.search(part) is not None
                has_other_type |= member.filename == _CONTENT_TYPES and _replace_main_type(part) != part
        return _rewrite_package(archive, is_strict=is_strict) if is_strict or has_other_type else data


def _rewrite_package(archive: zipfile.ZipFile, *, is_strict: bool) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for member in archive.infolist():
            part = archive.read(member)
            if is_strict and _is_xml(part):
                part = _STRICT_NAME.sub(_TRANSITIONAL_NAME, part)
            package.writestr(member.filename, _replace_main_type(part) if member.filename == _CONTENT_TYPES else part)
    return out.getvalue()


def _replace_main_type(part: bytes) -> bytes:
    for pattern, main_type in _MAIN_TYPES:
        part = pattern.sub(main_type, part)
    return part


def _is_xml(part: bytes) -> bool:
    """Return whether a part is XML by its first character.

    A name says nothing, because the archive itself declares the parts.
    """
    start = part[:_BEGIN].replace(b"\0", b"")
    for mark in (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"):
        start = start.removeprefix(mark)
    return start.lstrip().startswith(b"<")


def refuse_doctype(part: bytes, member: str, name: str) -> None:
    """Raise ParseError `corrupt` where an XML part could declare entities."""
    # Without its NULs a part in UTF-16 or UTF-32 shows the word too.
    text = part.replace(b"\0", b"")
    if b"<!DOCTYPE" in _HTML_DOCTYPE.sub(b"", text, count=1):
        raise ParseError("corrupt", f"part {member!r} of the {name} has a DOCTYPE, which no program writes there")


def _screen_member(member: zipfile.ZipInfo, name: str) -> None:
    if member.flag_bits & 1:  # the bit of encrypted members
        message = f"member {member.filename!r} of the {name} has a password; save the document without one"
        raise ParseError("encrypted", message)
    check_path(member.filename, name)


def check_path(path: str, name: str) -> None:
    """Raise ParseError `corrupt` for a member that points outside its archive.

    Args:
        path: of the member.
        name: what the archive is, for messages.
    """
    if path.startswith(("/", "\\")) or ":" in path or ".." in re.split(r"[/\\]", path):
        raise ParseError("corrupt", f"member {path!r} of the {name} points outside it; save the document again")


def _refuse_bomb(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> None:
    path = member.filename
    packed = max(1, member.compress_size)
    if member.file_size > bounds.MIN_COMPRESSED_BYTES and member.file_size > bounds.MAX_COMPRESSION_RATIO * packed:
        if _MEDIA.match(path) and not _is_xml(_begin(archive, member)):
            return
        raise _too_large(name, f"member {path!r} unpacks to {member.file_size // packed} times its size")


def _begin(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with archive.open(member) as part:
        return part.read(_BEGIN)


def _refuse_archive(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, not_read: re.Pattern[str]) -> None:
    if not_read.match(member.filename):
        return
    if _begin(archive, member).startswith(_ARCHIVES):
        message = f"member {member.filename!r} of the {name} is an archive; take it out and save the document again"
        raise ParseError("unsupported", message)


def refuse_size(name: str, size: int) -> None:
    """Raise ParseError `too_large` for too many bytes.

    Args:
        name: what the file is, for messages.
        size: bytes that were unpacked, or will be.
    """
    if size > bounds.MAX_ARCHIVE_BYTES:
        raise _too_large(name, f"it has {size} bytes unpacked, at most {bounds.MAX_ARCHIVE_BYTES} are read")


def _too_large(name: str, reason: str) -> ParseError:
    return ParseError("too_large", f"the {name} is too large: {reason}; split the document or save it again")
