"""Parse diagrams of draw.io, BPMN and Visio: labels, and connections as `from → to: label`."""

import base64
import binascii
import html
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from posixpath import basename
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.archives.screening import screen_office
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.builder import shorten_repetition

_NAMESPACE = re.compile(r"\{[^}]*\}")
_TAG = re.compile(r"<[^<>]*>")
_PLACEHOLDER = re.compile(r"%(\w+)%")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_FLOWS = frozenset({"association", "dataInputAssociation", "dataOutputAssociation", "messageFlow", "sequenceFlow"})
_PAGES = "visio/pages/pages.xml"
_PAGE_RELATIONS = "visio/pages/_rels/pages.xml.rels"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


@dataclass(kw_only=True, slots=True)
class _Diagram:
    """The labels and connections of a page."""

    labels: dict[str, str] = field(default_factory=dict)
    """By id of the shape, in their order."""
    kinds: dict[str, str] = field(default_factory=dict)
    """What a shape is, where the format says so."""
    notes: dict[str, str] = field(default_factory=dict)
    connections: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """Start and end by id of the connector."""

    def name(self, shape: str) -> str:
        """Return the label of a shape, or what it is."""
        return self.labels.get(shape) or self.kinds.get(shape, "")

    def lines(self) -> Iterator[str]:
        """Yield the labels, then the connections."""
        for key, label in self.labels.items():
            if label and key not in self.connections:
                kind, note = self.kinds.get(key), self.notes.get(key)
                text = f"{label} ({note})" if note else label
                yield f"{kind}: {text}" if kind else text
        for key, ends in self.connections.items():
            start, end = (self.name(shape or "") for shape in ends)
            label = self.labels.get(key, "")
            if start and end:
                yield f"{start} → {end}: {label}" if label else f"{start} → {end}"
            elif label:
                yield label


def parse_drawio(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a diagram of draw.io: a section for each page.

    Raises:
        ParseError: `corrupt` or `too_large`.
        xml.etree.ElementTree.ParseError, defusedxml.DefusedXmlException: broken, or with entities of its own.
    """
    root = _parse(data)
    composition = Composition(limits)
    pages = [element for element in root.iter() if _name(element) == "diagram"] or [root]
    for page in pages:
        composition.add_heading(1, page.get("name") or "")
        model = page if any(_name(child) == "mxGraphModel" for child in page.iter()) else _inflate(page.text or "")
        composition.add_block("\n".join(_read_cells(model).lines()))
    return composition.build(media_types.DRAWIO, None)


def parse_bpmn(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a process in BPMN: names of its elements with their kinds, and its flows.

    Raises: as `parse_drawio`.
    """
    diagram = _Diagram()
    members: dict[str, list[str]] = {}
    for number, element in enumerate(_parse(data).iter()):
        name, key = _name(element), element.get("id")
        if name in _FLOWS and not key:  # it is optional, and nothing refers to that of a flow
            key = f"flow {number}"
        if not key or ("}" in element.tag and "BPMN/20100524/DI" in element.tag):
            continue
        documentation = next((child for child in element if _name(child) == "documentation"), None)
        diagram.notes[key] = "" if documentation is None else _clean("".join(documentation.itertext()))
        annotation = "".join(element.itertext()) if name == "textAnnotation" else ""
        diagram.labels[key] = _clean(element.get("name") or annotation)
        diagram.kinds[key] = _CAPITAL.sub(" ", name).lower()
        if name in _FLOWS:
            diagram.connections[key] = element.get("sourceRef"), element.get("targetRef")
        elif name == "lane":
            members[key] = [(child.text or "").strip() for child in element if _name(child) == "flowNodeRef"]
    for lane, keys in members.items():
        diagram.notes[lane] = ", ".join(filter(None, [diagram.notes[lane], *map(diagram.name, keys)]))
    composition = Composition(limits)
    composition.add_block("\n".join(diagram.lines()))
    return composition.build(media_types.BPMN, None)


def parse_vsdx(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a drawing of Visio: a section for each page.

    Raises: as `parse_drawio`, and ParseError `encrypted`.
    """
    composition = Composition(limits)
    with zipfile.ZipFile(BytesIO(screen_office(data, "VSDX"))) as archive:
        for title, member in _list_pages(archive):
            composition.add_heading(1, title)
            composition.add_block("\n".join(_read_shapes(_parse(archive.read(member))).lines()))
    return composition.build(media_types.VSDX, None)


def _parse(data: bytes) -> Element:
    from defusedxml.ElementTree import fromstring

    root: Element = fromstring(data)
    return root


def _name(element: Element) -> str:
    return _NAMESPACE.sub("", element.tag) if isinstance(element.tag, str) else ""


def _clean(label: str) -> str:
    """Return a label, which may be HTML, on one line."""
    return " ".join(html.unescape(_TAG.sub(" ", label)).split())


def _inflate(text: str) -> Element:
    """Return the model of a page that draw.io has compressed: deflated, in base64, with escaped characters."""
    try:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        model = inflater.decompress(base64.b64decode(text), bounds.MAX_ARCHIVE_BYTES)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ParseError("corrupt", f"a page of the diagram cannot be unpacked ({error}); save it again") from error
    return _parse(unquote(model.decode("utf-8", "replace")).encode())


def _read_cells(model: Element) -> _Diagram:
    diagram = _Diagram()
    parents: dict[str, str] = {}
    for element in model.iter():
        # A cell with data of its own is within an element that has its id and its label.
        cell = next(iter(element), element) if _name(element) in ("object", "UserObject") else element
        key = element.get("id")
        if _name(cell) != "mxCell" or key is None:
            continue
        label = element.get("label") or element.get("value") or ""
        if element.get("placeholders") == "1":
            label = _fill_placeholders(label, element)
        diagram.labels[key] = _clean(label)
        parents[key] = cell.get("parent") or ""
        if cell.get("edge") == "1":
            diagram.connections[key] = cell.get("source"), cell.get("target")
    for key, parent in parents.items():
        if parent in diagram.connections and key not in diagram.connections:  # a label that is moved along its line
            diagram.labels[parent] = f"{diagram.labels[parent]} {diagram.labels.pop(key)}".strip()
    return diagram


def _fill_placeholders(label: str, element: Element) -> str:
    """Return a label with the values of the fields that it names: `%host%`.

    One that it names again is shortened.
    """
    names: set[str] = set()

    def fill(match: re.Match[str]) -> str:
        value = element.get(match[1]) or match[0]
        if match[1] in names:
            return shorten_repetition(value)
        names.add(match[1])
        return value

    return _PLACEHOLDER.sub(fill, label)


def _list_pages(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """Yield name and member of each page in their order."""
    members = set(archive.namelist())
    targets: Mapping[str, str] = {}
    if _PAGE_RELATIONS in members:
        relations = _parse(archive.read(_PAGE_RELATIONS))
        targets = {entry.get("Id", ""): f"visio/pages/{basename(entry.get('Target', ''))}" for entry in relations}
    for page in _parse(archive.read(_PAGES)) if _PAGES in members else ():
        relation = next((child for child in page if _name(child) == "Rel"), None)
        member = targets.get(relation.get(_RELATION, ""), "") if relation is not None else ""
        if member in members:
            yield page.get("Name") or page.get("NameU") or "", member


def _read_shapes(page: Element) -> _Diagram:
    diagram = _Diagram()
    for element in page.iter():
        if _name(element) == "Shape" and (key := element.get("ID")):
            text = next((child for child in element if _name(child) == "Text"), None)
            diagram.labels[key] = "" if text is None else _clean("".join(text.itertext()))
        elif _name(element) == "Connect" and (connector := element.get("FromSheet")):
            start, end = diagram.connections.get(connector, (None, None))
            is_start = element.get("FromCell", "").startswith("Begin")
            target = element.get("ToSheet")
            diagram.connections[connector] = (target, end) if is_start else (start, target)
    return diagram
