"""Parse exports of Confluence spaces: ZIP archives of XML or HTML.

A page is a section below that of its parent. Attachments and comments are left out.
"""

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.archives.screening import screen
from kosmos_rag.parsing.clean import clean_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.web.confluence import ENTITIES
from kosmos_rag.parsing.web.html import parse_html

INDEX = "index.html"
_NOT_READ = re.compile(r"(?:.*/)?(?:attachments|images|styles|thumbnails)/|(?!entities\.xml$|.*\.html?$)")
"""What of an export is not read; it may contain archives."""
_LINK = re.compile(r'<a\b[^<>]{0,500}?\shref="([^"<>:]{1,300}?\.html)(?:#[^"<>]*)?"')
_PAGES = ("Page", "BlogPost")


@dataclass(kw_only=True, slots=True)
class _Space:
    """The objects of an export that make its pages."""

    name: str = ""
    pages: list["_Page"] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)
    """By id of the page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Page:
    id: str
    title: str
    parent: str
    position: int
    is_post: bool

    @property
    def order(self) -> tuple[bool, int, str]:
        return self.is_post, self.position, self.title


def parse_confluence_export(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse the export of a space.

    Of a page only the current version is read.

    Raises:
        ParseError: `too_large`, `encrypted`, `corrupt` or `unsupported` for an archive that is not safe to open.
    """
    screen(data, "Confluence export", not_read=_NOT_READ)
    composition = Composition(limits)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        if ENTITIES in archive.namelist():
            space = _read_space(archive)
            for level, page in _sort_pages(space.pages):
                composition.add_heading(level, page.title)
                _add_body(composition, space.bodies.get(page.id, ""), level, limits)
            return composition.build(media_types.CONFLUENCE, clean_title(space.name))
        title = _add_pages(composition, archive, limits)
    return composition.build(media_types.CONFLUENCE, title)


def _read_space(archive: zipfile.ZipFile) -> _Space:
    from defusedxml.ElementTree import iterparse

    space = _Space()
    with archive.open(ENTITIES) as stream:
        depth = 0
        for event, element in iterparse(stream, events=("start", "end"), forbid_dtd=True):
            depth += 1 if event == "start" else -1
            if event == "end" and element.tag == "object" and depth == 1:
                _add_object(space, element)
                element.clear()
    return space


def _add_object(space: _Space, element: Any) -> None:
    values = {child.get("name"): (child.text or "").strip() for child in element if child.tag in ("id", "property")}
    references = {
        child.get("name"): (child.findtext("id") or "").strip() for child in element if child.get("class") in _PAGES
    }
    kind = element.get("class")
    if kind == "Space":
        space.name = values.get("name", "")
    elif kind == "BodyContent" and references.get("content"):
        # Confluence writes the end of CDATA within a body with a space.
        space.bodies[references["content"]] = values.get("body", "").replace("]] >", "]]>")
    elif kind in _PAGES and values.get("contentStatus", "current") == "current" and "originalVersion" not in references:
        position = values.get("position", "")
        page = _Page(
            id=values.get("id", ""),
            title=values.get("title", ""),
            parent=references.get("parent", ""),
            position=int(position) if position.isdecimal() and len(position) < 10 else 0,
            is_post=kind == "BlogPost",
        )
        space.pages.append(page)


def _sort_pages(pages: list[_Page]) -> Iterator[tuple[int, _Page]]:
    """Yield level and page, each after its parent."""
    page_ids = {page.id for page in pages}
    children: dict[str, list[_Page]] = defaultdict(list)
    for page in pages:
        children[page.parent if page.parent in page_ids else ""].append(page)
    visited: set[str] = set()
    # All pages again: parents in a circle would lose theirs.
    for page in [*sorted(children[""], key=_order), *sorted(pages, key=_order)]:
        pending = [(1, page)]
        while pending:
            level, current = pending.pop()
            if current.id in visited:
                continue
            visited.add(current.id)
            yield min(level, bounds.MAX_HEADING_LEVEL), current
            below = sorted(children[current.id] if current.id else [], key=_order, reverse=True)
            pending += [(level + 1, child) for child in below]


def _order(page: _Page) -> tuple[bool, int, str]:
    return page.order


def _add_body(composition: Composition, body: str, level: int, limits: OutputLimits) -> None:
    if body:
        parsed = parse_html(body.encode(), limits)
        if parsed.text:
            composition.add_document(parsed, parent_level=level)


def _add_pages(composition: Composition, archive: zipfile.ZipFile, limits: OutputLimits) -> str | None:
    """Add the pages in the order of the index.

    Returns the name of the space.
    """
    members = [name for name in archive.namelist() if name.endswith((".html", ".htm"))]
    index = next(name for name in members if name.rpartition("/")[2] == INDEX)
    folder = index.removesuffix(INDEX)
    source = archive.read(index)
    linked = (normpath(folder + unquote(link)) for link in _LINK.findall(source.decode("utf-8", "replace")))
    reading_order = dict.fromkeys([*(name for name in linked if name in members), *sorted(members)])
    for name in reading_order:
        if name != index:
            _add_page(composition, archive.read(name), limits)
    return parse_html(source, limits).title


def _add_page(composition: Composition, source: bytes, limits: OutputLimits) -> None:
    parsed = parse_html(source, limits, is_page=True)
    if parsed.text:
        composition.add_document(parsed, title=parsed.title)
