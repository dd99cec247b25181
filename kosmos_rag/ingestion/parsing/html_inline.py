"""Text of inline elements in HTML.

These are numbers of list items, superscripts, and words for pictures.
"""

import re
from typing import TYPE_CHECKING

from kosmos_rag.ingestion.parsing.numbering import format_number
from kosmos_rag.ingestion.parsing.scripts import MARKS, script_mark

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_NUMBER = re.compile(r"-?\d{1,6}")
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


def mark_of_script(node: "LexborNode") -> str:
    """Return the mark of a superscript or subscript.

    Empty before a link to a footnote.
    """
    child = node.first_child if node.tag in MARKS else None
    if child is None or child.next is not None or not child.is_text_node:
        return ""
    return script_mark(node.tag or "", child.text_content or "")


def picture_text(node: "LexborNode") -> str:
    """Return the alternative text of a picture, without file names."""
    text = (node.attributes.get("alt") or "").strip()
    return "" if _FILE_NAME.fullmatch(text) else text
