"""Text of inline elements in HTML.

These are numbers of list items, superscripts, and words for pictures.
"""

import re
from typing import TYPE_CHECKING

from kosmos_rag.parsing.numbering import format_number
from kosmos_rag.parsing.scripts import KINDS, write_script

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_NUMBER = re.compile(r"-?\d{1,6}")
_ANCHOR = re.compile(r"[^\s\x00-\x1f\ud800-\udfff]{1,200}")
_REFERENCE = re.compile(r"\[?(\d{1,3}|[^\W\d_]|[*†‡§]{1,3})\]?")
_SECTIONS = frozenset({"section", "article", "div", "header"})
_LINKS = frozenset({"a"})
_EMPHASIS = frozenset({"b", "em", "i", "span", "strong", "var"})
_FILE_NAME = re.compile(r"\S+\.(?:avif|bmp|gif|jpe?g|png|svg|tiff?|webp)", re.IGNORECASE)


class Bullets:
    """Marks of list items: `- `, or the item's number."""

    def __init__(self) -> None:
        self._lists: list[tuple[int, str] | None] = []

    def open(self, node: "LexborNode") -> None:
        """Begin a list."""
        attributes = node.attributes if node.tag == "ol" else None
        if attributes is None:
            self._lists.append(None)
        else:
            self._lists.append((_number(attributes.get("start"), 1), attributes.get("type") or "1"))

    def close(self) -> None:
        """End the innermost list."""
        self._lists.pop()

    def mark(self, item: "LexborNode") -> str:
        """Return the mark of the next item, and count it."""
        if not self._lists or self._lists[-1] is None:
            return "- "
        number, style = self._lists[-1]
        number = _number(item.attributes.get("value"), number)
        self._lists[-1] = number + 1, style
        return f"{format_number(number, style)}. "


def _number(value: str | None, default: int) -> int:
    return int(value) if value and _NUMBER.fullmatch(value) else default


def read_script(node: "LexborNode") -> str:
    """Return a superscript or subscript with its mark.

    The result is empty for other elements, and for what has no mark, such as a link to a footnote.
    """
    if node.tag not in KINDS:
        return ""
    parts: list[str] = []
    child = node.first_child
    while child is not None:
        text = child.first_child if child.tag in _EMPHASIS else child
        is_only = text is child or (text is not None and text.next is None)
        if text is None or not text.is_text_node or not is_only:
            return ""
        parts.append(text.text_content or "")
        child = child.next
    return write_script(node.tag, "".join(parts))


def read_reference(node: "LexborNode") -> str:
    """Return a link to a footnote as `[1]`; empty for another element.

    Without brackets it would be a part of the word before it.
    """
    if node.tag != "a" or not (node.attributes.get("href") or "").startswith("#"):
        return ""
    mark = _REFERENCE.fullmatch(node.text(strip=True))
    if mark is None:
        return ""
    names = {name: node.attributes.get(name) or "" for name in ("class", "epub:type", "role")}
    is_named = "footnote" in names["class"] or names["epub:type"] == "noteref" or names["role"] == "doc-noteref"
    is_raised = (node.parent is not None and node.parent.tag == "sup") or node.css_first("sup") is not None
    return f"[{mark[1]}]" if is_named or is_raised else ""


def read_picture_text(node: "LexborNode") -> str:
    """Return the alternative text of a picture, without file names."""
    text = (node.attributes.get("alt") or "").strip()
    return "" if _FILE_NAME.fullmatch(text) else text


def find_anchor(heading: "LexborNode") -> str | None:
    """Return the anchor that a link to a heading names.

    It is an identifier of the heading, of an element inside it, of the section that it begins, or of an empty link
    before it.
    """
    before = heading.prev
    while before is not None and not before.is_element_node and not (before.text_content or "").strip():
        before = before.prev
    neighbour = heading.parent if before is None else before
    tags = _SECTIONS if before is None else _LINKS
    nodes = [
        heading,
        heading.css_first("[id], a[name]"),
        neighbour if neighbour is not None and neighbour.tag in tags else None,
    ]
    for node in nodes:
        names = {} if node is None else node.attributes
        if _ANCHOR.fullmatch(anchor := names.get("id") or names.get("name") or ""):
            return anchor
    return None
