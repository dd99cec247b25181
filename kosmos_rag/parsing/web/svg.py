"""Parse SVG: title, description and words, in document order."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.clean import clean_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits

_SVG = "{http://www.w3.org/2000/svg}"
_BLOCKS = frozenset({"text", "title", "desc", "foreignObject"})
_NOT_READ = frozenset({"defs", "metadata", "script", "style"})


def parse_svg(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse an SVG drawing, a line for each text.

    Raises:
        ParseError: `too_large`.
        xml.etree.ElementTree.ParseError, defusedxml.DefusedXmlException: broken, or with entities of its own.
    """
    from defusedxml.ElementTree import fromstring

    root = fromstring(data)
    composition = Composition(limits)
    for text in _texts(root):
        composition.add_line(text)
    title = next((element.text for element in root if _name(element) == "title"), None)
    return composition.build(media_types.SVG, clean_title(title or ""))


def _name(element: Element) -> str:
    """Return an element's name without the namespace of SVG."""
    tag = element.tag if isinstance(element.tag, str) else ""
    return tag.removeprefix(_SVG)


def _is_hidden(element: Element) -> bool:
    style = "".join((element.get("style") or "").split())
    return element.get("display") == "none" or "display:none" in style


def _is_for_one_program(element: Element) -> bool:
    """Return whether an element has only data of the program that wrote the file."""
    is_extension = _name(element) == "foreignObject" and bool(element.get("requiredExtensions"))
    return is_extension and not "".join(element.itertext()).strip()


def _texts(root: Element) -> Iterator[str]:
    pending = [root]
    while pending:
        element = pending.pop()
        name = _name(element)
        if _is_hidden(element):
            continue
        if name == "switch":  # the others say the same to programs that cannot show the first
            pending += [child for child in element if not _is_for_one_program(child)][:1]
        elif name in _BLOCKS:
            if text := " ".join(" ".join(element.itertext()).split()):
                yield text
        elif name not in _NOT_READ:
            pending.extend(reversed(element))
