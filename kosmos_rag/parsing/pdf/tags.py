"""Read the headings that a tagged PDF names, by their marked content."""

import ctypes
from typing import Any

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.pdf.graphics import load_pdfium

_LEVELS = {"Title": 1, "H": 1, **{f"H{level}": level for level in range(1, bounds.MAX_HEADING_LEVEL + 1)}}


class TaggedHeadings:
    """The headings that a document names, page by page.

    Many files have all paragraphs of all pages below one element, and PDFium goes over those of the others on each
    page. So the first page with too many elements is the last one whose structure is read.
    """

    def __init__(self) -> None:
        self._is_too_large = False

    def read_levels(self, page: Any) -> dict[int, int]:
        """Return the levels of the marked contents of a page that are headings, by id."""
        raw = load_pdfium()
        tree = None if self._is_too_large else raw.FPDF_StructTree_GetForPage(page.raw)
        if not tree:
            return {}
        try:
            count = raw.FPDF_StructTree_CountChildren(tree)
            levels = None
            if count <= bounds.MAX_PAGE_TAGS:
                roots = [raw.FPDF_StructTree_GetChildAtIndex(tree, at) for at in range(count)]
                levels = _read_levels([(root, 0) for root in roots if root])
        finally:
            raw.FPDF_StructTree_Close(tree)
        self._is_too_large = levels is None
        return levels or {}


def _read_levels(pending: list[tuple[Any, int]]) -> dict[int, int] | None:
    """Return the levels below some elements; None where there are too many."""
    raw = load_pdfium()
    name = ctypes.create_string_buffer(bounds.MAX_FONT_NAME_BYTES)
    levels: dict[int, int] = {}
    remaining = bounds.MAX_PAGE_TAGS
    while pending:
        element, level = pending.pop()
        size = raw.FPDF_StructElement_GetType(element, name, bounds.MAX_FONT_NAME_BYTES)
        level = _LEVELS.get(name.raw[: max(0, size - 2)].decode("utf-16-le", "replace"), level)
        count = max(0, raw.FPDF_StructElement_CountChildren(element))
        remaining -= 1 + count
        if remaining < 0:
            return None
        for at in range(count):
            if child := raw.FPDF_StructElement_GetChildAtIndex(element, at):
                pending.append((child, level))
            elif level and (content := raw.FPDF_StructElement_GetChildMarkedContentID(element, at)) >= 0:
                levels[content] = level
    return levels
