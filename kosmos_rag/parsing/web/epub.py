"""Parse EPUB: the chapters of the spine, in reading order.

The parser for HTML reads each chapter.
"""

import posixpath
import zipfile
from collections.abc import Iterator
from io import BytesIO
from urllib.parse import unquote
from xml.etree import ElementTree

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.archives.screening import refuse_doctype, screen
from kosmos_rag.parsing.clean import clean_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.web.html import parse_html

_CONTAINER = "META-INF/container.xml"
_RIGHTS = frozenset({"META-INF/rights.xml", "META-INF/sinf.xml"})
"""Members that come with the two copy protections in use."""
_OPF = "{http://www.idpf.org/2007/opf}"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_PAGES = frozenset({"application/xhtml+xml", "text/html"})


def parse_epub(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse an EPUB book.

    A chapter without a heading gets its title as heading.

    Raises:
        ParseError: `encrypted` for a book with copy protection, `too_large`, `corrupt` or `unsupported` for an
            archive that is not safe to open.
    """
    screen(data, "EPUB")
    with zipfile.ZipFile(BytesIO(data)) as archive:
        if not _RIGHTS.isdisjoint(archive.namelist()):
            raise ParseError("encrypted", "the EPUB has copy protection; give a copy without it")
        path = _package_path(archive)
        package = _xml(archive, path)
        composition = Composition(limits)
        for member in _spine(package, posixpath.dirname(path)):
            _add_chapter(composition, archive.read(member), limits)
    return composition.build(media_types.EPUB, clean_title(package.findtext(f".//{_TITLE}", "")))


def _xml(archive: zipfile.ZipFile, member: str) -> ElementTree.Element:
    part = archive.read(member)
    refuse_doctype(part, member, "EPUB")
    return ElementTree.fromstring(part)  # noqa: S314 — without a DOCTYPE there are no entities


def _package_path(archive: zipfile.ZipFile) -> str:
    for root in _xml(archive, _CONTAINER).iter("{urn:oasis:names:tc:opendocument:xmlns:container}rootfile"):
        return root.get("full-path", "")
    raise ParseError("corrupt", f"{_CONTAINER} of the EPUB names no package; check that a reader opens it")


def _spine(package: ElementTree.Element, folder: str) -> Iterator[str]:
    """Yield the members that hold the chapters, in order."""
    pages = {
        item.get("id"): item.get("href", "") for item in package.iter(f"{_OPF}item") if item.get("media-type") in _PAGES
    }
    for reference in package.iter(f"{_OPF}itemref"):
        href = pages.get(reference.get("idref"))
        if href:
            yield posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))


def _add_chapter(composition: Composition, page: bytes, limits: OutputLimits) -> None:
    try:
        chapter = parse_html(page, limits)
    except ParseError as error:
        if error.code == "empty":
            return
        raise
    if chapter.text:
        composition.add_document(chapter, title=chapter.title)
