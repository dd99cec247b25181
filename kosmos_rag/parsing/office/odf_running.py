"""Read the headers and footers of an OpenDocument text."""

from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from kosmos_rag.parsing.office.odf_styles import OFFICE, STYLE, TABLE, TEXT, Styles
from kosmos_rag.parsing.office.odf_text import HEADING, NOT_READ, PARAGRAPH, TextReader
from kosmos_rag.parsing.office.page_numbers import PAGE_NUMBER, remove_page_numbers
from kosmos_rag.parsing.office.xml_tree import find_outermost

_SIDES = ("", "-left", "-first")
_SPACES = (STYLE, "{urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0}")
_NUMBERS = (f"{TEXT}page-number", f"{TEXT}page-count")
_STYLES = (f"{OFFICE}automatic-styles", f"{OFFICE}styles")
_NAMES_OF_STYLES = (f"{TEXT}style-name", f"{TABLE}style-name", f"{STYLE}parent-style-name")
"""Attributes of what has a style, and of a style that inherits from it."""
_PAGE_STYLE = f"{STYLE}master-page-name"


class RunningParagraphs:
    """The texts of the headers and footers that are on pages, each once."""

    def __init__(self, roots: Sequence[Element], styles: Styles) -> None:
        """Begin; `roots` are those of the contents and of the styles."""
        pages = {page.get(f"{STYLE}name", ""): page for root in roots for page in root.iter(f"{STYLE}master-page")}
        self._pages = list(_find_shown(pages, roots))
        self._reader = TextReader(styles)
        self._texts: set[str] = set()

    def read(self, kind: str) -> Iterator[str]:
        """Yield the paragraphs of each `header` or `footer`, without page numbers."""
        tags = {f"{space}{kind}{side}" for space in _SPACES for side in _SIDES}
        for part in (part for page in self._pages for part in page if part.tag in tags):
            if part.get(f"{STYLE}display") == "false":
                continue
            for number in (each for tag in _NUMBERS for each in part.iter(tag)):
                number.text = PAGE_NUMBER
            for paragraph in find_outermost(part, {PARAGRAPH, HEADING}, excluded=NOT_READ):
                text = remove_page_numbers(self._reader.read(paragraph))
                if text and text not in self._texts:
                    self._texts.add(text)
                    yield text


def _find_shown(pages: Mapping[str, Element], roots: Sequence[Element]) -> Iterator[Element]:
    """Yield the styles of the pages: the first one, those of paragraphs, and their followers."""
    names = list(pages)[:1] if "Standard" not in pages else ["Standard"]
    style_names = {element.get(name, "") for root in roots for element in root.iter() for name in _NAMES_OF_STYLES}
    for root in roots:
        for part in (each for tag in _STYLES for each in root.iter(tag)):
            names += [
                name for style in part if style.get(f"{STYLE}name") in style_names and (name := style.get(_PAGE_STYLE))
            ]
    visited: set[str] = set()
    while names:
        name = names.pop(0)
        if name in pages and name not in visited:
            visited.add(name)
            yield pages[name]
            names.append(pages[name].get(f"{STYLE}next-style-name", ""))
