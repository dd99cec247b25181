"""Read the headers and footers of a DOCX, as the letterhead of a letter."""

from collections.abc import Iterator
from typing import Any

from kosmos_rag.parsing.office.docx_styles import W
from kosmos_rag.parsing.office.docx_text import NOT_READ, PARAGRAPH, TextReader
from kosmos_rag.parsing.office.xml_tree import find_outermost
from kosmos_rag.parsing.tables.table import collapse_whitespace

_SECTION, _FIRST_PAGE = f"{W}sectPr", f"{W}titlePg"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_FIELDS = frozenset({"PAGE", "NUMPAGES", "SECTIONPAGES"})


class RunningTexts:
    """The texts of the headers and footers that are on pages, each once."""

    def __init__(self, part: Any) -> None:
        """Begin; `part` is the main part of the document."""
        self._part = part
        self._texts: set[str] = set()
        self._parts: set[Any] = set()

    def read(self, kind: str) -> Iterator[str]:
        """Yield the paragraphs of each `header` or `footer`, without those that have a page number."""
        from docx.oxml import parse_xml

        for section in self._part.document.element.body.iter(_SECTION):
            kinds = {"default"} if section.find(_FIRST_PAGE) is None else {"first", "default"}
            for reference in section.findall(f"{W}{kind}Reference"):
                part = self._part.related_parts.get(reference.get(_RELATION))
                if part is None or part in self._parts or reference.get(f"{W}type", "default") not in kinds:
                    continue
                self._parts.add(part)
                reader = TextReader(part)
                for paragraph in find_outermost(parse_xml(part.blob), {PARAGRAPH}, excluded=NOT_READ):
                    text = collapse_whitespace(reader.read(paragraph))
                    texts = [text, *(content for content in reader.take_contents() if isinstance(content, str))]
                    yield from () if _has_page_number(paragraph) else self._take_new(texts)

    def _take_new(self, texts: list[str]) -> Iterator[str]:
        for text in texts:
            if text and text not in self._texts:
                self._texts.add(text)
                yield text


def _has_page_number(paragraph: Any) -> bool:
    fields = [element.get(f"{W}instr", "") for element in paragraph.iter(f"{W}fldSimple")]
    fields += [element.text or "" for element in paragraph.iter(f"{W}instrText")]
    return any(not _FIELDS.isdisjoint(field.split()) for field in fields)
