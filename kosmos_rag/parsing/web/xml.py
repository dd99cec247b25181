"""Parse XML: elements with their names, and feeds (RSS, Atom) as entries."""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.text.decode import decode
from kosmos_rag.parsing.web.html import parse_html

_NAMESPACE = re.compile(r"\{[^}]*\}")
_FEEDS = {"rss": "item", "RDF": "item", "feed": "entry"}
"""Name of an entry, by the name of the root."""
_FIELDS = {
    "pubDate": "Date",
    "published": "Date",
    "updated": "Updated",
    "date": "Date",
    "author": "Author",
    "creator": "Author",
    "category": "Category",
    "link": "Link",
}
_CONTENTS = ("encoded", "content", "description", "summary")
"""Elements with the text of an entry, the whole text first."""
_MARKUP = re.compile(r"<[a-zA-Z/!][^<>]*>|&[a-z#0-9]+;")


def parse_xml(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse XML: a feed by its entries, other files by their elements.

    An element with text is a line, `order.customer: Ada`, and so is one whose children are plain:
    `order.item: @id: 7; name: Tent; price: 40`. A file that is broken, or has entities of its own, keeps its lines.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError as XmlError
    from defusedxml.ElementTree import fromstring

    text = decode(data)
    try:
        root = fromstring(data)
    except (XmlError, DefusedXmlException, ValueError):
        return ParsedDocument(text=text, media_type=media_types.XML)
    composition = Composition(limits)
    if entry_name := _FEEDS.get(_name(root)):
        title = _add_feed(composition, root, entry_name, limits)
    else:
        title = None
        _add_elements(composition, root)
    return composition.build(media_types.XML, title)


def _name(element: Element) -> str:
    """Return the name of an element without its namespace; empty for a comment."""
    return _NAMESPACE.sub("", element.tag) if isinstance(element.tag, str) else ""


def _text(element: Element | None) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())


def _find(element: Element, name: str) -> Element | None:
    return next((child for child in element if _name(child) == name), None)


def _add_feed(composition: Composition, root: Element, entry_name: str, limits: OutputLimits) -> str | None:
    channel = _find(root, "channel")
    head = root if channel is None else channel
    title = _text(_find(head, "title"))
    composition.add_block(_read_markup(_text(_find(head, "description")) or _text(_find(head, "subtitle")), limits))
    for entry in root.iter():
        if _name(entry) == entry_name:
            title_element = _find(entry, "title")
            entry_title = _text(title_element)
            # RFC 4287, section 3.1.1: a title of Atom is plain text where it has no type.
            default = "text" if entry_name == "entry" else "html"
            if title_element is not None and title_element.get("type", default) == "html":
                entry_title = _read_markup(entry_title, limits)
            # Without a heading the text would be one of the entry before.
            composition.add_heading(1, entry_title or next(_field_lines(entry), "Entry"))
            composition.add_block("\n".join(_field_lines(entry)))
            content = next((text for name in _CONTENTS if (text := _read_content(_find(entry, name)))), "")
            composition.add_block(_read_markup(content, limits))
    return title or None


def _field_lines(entry: Element) -> Iterator[str]:
    for child in entry:
        if label := _FIELDS.get(_name(child)):
            value = _text(_find(child, "name")) or _text(child) or child.get("href") or child.get("term") or ""
            if value:
                yield f"{label}: {value}"


def _read_content(element: Element | None) -> str:
    if element is None:
        return ""
    return "".join(element.itertext()).strip()


def _read_markup(text: str, limits: OutputLimits) -> str:
    """Return the text of HTML in an entry, and another text as it is."""
    return parse_html(text.encode(), limits).text if _MARKUP.search(text) else text


def _add_elements(composition: Composition, root: Element) -> None:
    pending = [(root, _name(root))]
    while pending:
        element, path = pending.pop()
        children = [child for child in element if _name(child)]
        attributes = [
            f"@{_NAMESPACE.sub('', name)}: {value}" for name, value in element.attrib.items() if value.strip()
        ]
        is_record = len(children) > 1 and not any(len(child) or child.attrib for child in children)
        if _has_text(element) or is_record:
            fields = [f"{_name(child)}: {text}" for child in children if (text := _text(child))] if is_record else []
            words = [_text(element)] if _has_text(element) else fields
            composition.add_line(f"{path}: {'; '.join([*attributes, *words])}")
            continue
        if attributes:
            composition.add_line(f"{path}: {'; '.join(attributes)}")
        pending += [(child, f"{path}.{_name(child)}"[-bounds.MAX_PATH_CHARS :]) for child in reversed(children)]


def _has_text(element: Element) -> bool:
    """Return whether an element has text of its own, also between its children."""
    return any(text and not text.isspace() for text in (element.text, *(child.tail for child in element)))
