"""Read the headers and footers of a DOCX, as the letterhead of a letter."""

from collections.abc import Iterator
from typing import Any

from kosmos_rag.parsing.office.docx_styles import W
from kosmos_rag.parsing.office.docx_text import NOT_READ, PARAGRAPH, TEXT, TextReader, is_on
from kosmos_rag.parsing.office.page_numbers import PAGE_NUMBER, remove_page_numbers
from kosmos_rag.parsing.office.xml_tree import find_outermost

_SECTION, _FIRST_PAGE, _EVEN_PAGES = f"{W}sectPr", f"{W}titlePg", f"{W}evenAndOddHeaders"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_SIMPLE_FIELD, _FIELD_END, _INSTRUCTION = f"{W}fldSimple", f"{W}fldChar", f"{W}instrText"
_FIELDS = frozenset({"PAGE", "NUMPAGES", "SECTIONPAGES"})


class RunningTexts:
    """The texts of the headers and footers that are on pages, each once."""

    def __init__(self, part: Any) -> None:
        """Begin; `part` is the main part of the document."""
        self._part = part
        self._texts: set[str] = set()
        self._parts: set[Any] = set()

    def read(self, kind: str) -> Iterator[str]:
        """Yield the paragraphs of each `header` or `footer`, without page numbers."""
        for part in self._find_parts(kind):
            root = None if part in self._parts else _parse(part)
            self._parts.add(part)
            reader = TextReader(part)
            for paragraph in () if root is None else find_outermost(root, {PARAGRAPH}, excluded=NOT_READ):
                _mark_page_numbers(paragraph)
                texts = [reader.read(paragraph)]
                texts += [content for content in reader.take_contents() if isinstance(content, str)]
                for text in map(remove_page_numbers, texts):
                    if text and text not in self._texts:
                        self._texts.add(text)
                        yield text

    def _find_parts(self, kind: str) -> Iterator[Any]:
        """Yield the parts that are on pages.

        A section has those of the section before, unless it has its own.
        """
        has_even_pages = self._has_even_pages()
        references: dict[str, str] = {}
        for section in self._part.document.element.body.iter(_SECTION):
            for reference in section.findall(f"{W}{kind}Reference"):
                references[reference.get(f"{W}type", "default")] = reference.get(_RELATION)
            switches = {"first": is_on(section, _FIRST_PAGE), "default": True, "even": has_even_pages}
            for name, is_shown in switches.items():
                part = self._part.related_parts.get(references.get(name)) if is_shown else None
                if part is not None:
                    yield part

    def _has_even_pages(self) -> bool:
        related = self._part.rels.values()
        settings = [rel.target_part for rel in related if not rel.is_external and rel.reltype.endswith("/settings")]
        return any((root := _parse(part)) is not None and is_on(root, _EVEN_PAGES) for part in settings)


def _parse(part: Any) -> Any | None:
    """Return the root of a part, or nothing for one that is broken."""
    from docx.oxml import parse_xml

    try:
        return parse_xml(part.blob)
    except SyntaxError:  # that of lxml too
        return None


def _mark_page_numbers(paragraph: Any) -> None:
    """Replace the fields of page numbers by a mark, whether they have a text or not."""
    fields: list[str] = []
    """Instructions of the fields that are open."""
    for element in list(paragraph.iter()):
        if element.tag == _SIMPLE_FIELD and _is_page_number(element.get(f"{W}instr", "")):
            _set_mark(element)
        elif element.tag == _INSTRUCTION and fields:
            fields[-1] += element.text or ""
        elif element.tag == TEXT and any(map(_is_page_number, fields)):
            element.text = ""
        elif element.tag == _FIELD_END:
            kind = element.get(f"{W}fldCharType")
            if kind == "begin":
                fields.append("")
            elif kind == "end" and fields and _is_page_number(fields.pop()):
                _set_mark(element)


def _set_mark(element: Any) -> None:
    element.clear()
    element.tag, element.text = TEXT, PAGE_NUMBER


def _is_page_number(instruction: str) -> bool:
    return not _FIELDS.isdisjoint(instruction.upper().split()[:1])
