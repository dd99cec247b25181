"""Read the headings that a tagged PDF names, by their marked content."""

import ctypes
from typing import Any

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.pdf.graphics import load_pdfium

_LEVELS = {"Title": 1, "H": 1, **{f"H{level}": level for level in range(1, bounds.MAX_HEADING_LEVEL + 1)}}


def read_heading_levels(page: Any) -> dict[int, int]:
    """Return the levels of the marked contents of a page that are headings, by id."""
    raw = load_pdfium()
    tree = raw.FPDF_StructTree_GetForPage(page.raw)
    if not tree:
        return {}
    try:
        roots = [raw.FPDF_StructTree_GetChildAtIndex(tree, at) for at in range(raw.FPDF_StructTree_CountChildren(tree))]
        return _read_levels([(root, 0) for root in roots if root])
    finally:
        raw.FPDF_StructTree_Close(tree)


def _read_levels(pending: list[tuple[Any, int]]) -> dict[int, int]:
    raw = load_pdfium()
    name = ctypes.create_string_buffer(bounds.MAX_FONT_NAME_BYTES)
    levels: dict[int, int] = {}
    remaining = bounds.MAX_PAGE_DRAWINGS
    while pending and remaining > 0:
        element, level = pending.pop()
        size = raw.FPDF_StructElement_GetType(element, name, bounds.MAX_FONT_NAME_BYTES)
        level = _LEVELS.get(name.raw[: max(0, size - 2)].decode("utf-16-le", "replace"), level)
        count = min(max(0, raw.FPDF_StructElement_CountChildren(element)), remaining)
        remaining -= 1 + count
        for at in range(count):
            if child := raw.FPDF_StructElement_GetChildAtIndex(element, at):
                pending.append((child, level))
            elif level and (content := raw.FPDF_StructElement_GetChildMarkedContentID(element, at)) >= 0:
                levels[content] = level
    return levels
