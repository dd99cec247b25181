"""Text that HTML expresses by elements: numbers of list items, superscripts, words for pictures."""

import re
from typing import TYPE_CHECKING

from kosmos_rag.ingestion.parsing.numbering import format_number

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_NUMBER = re.compile(r"-?\d{1,6}")
_SCRIPTS = {"sup": "^", "sub": "_"}
_SCRIPT = re.compile(r"[-+\u2212]?\w{1,12}")
_ORDINAL = re.compile(r"st|nd|rd|th|er|re|e|ème|o|a|tm|sm|mc", re.IGNORECASE)
"""Superscripts that belong to a word: `1st`, `XYZtm`."""
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


def script_mark(node: "LexborNode") -> str:
    """Return what stands before a superscript or subscript: `10^6`, `H_2O`.

    Nothing before an ordinal (`1st`), and before what is no plain number or word, such as a link to a footnote.
    """
    mark = _SCRIPTS.get(node.tag or "", "")
    child = node.first_child
    if not mark or child is None or child.next is not None or not child.is_text_node:
        return ""
    text = child.text_content or ""
    return mark if _SCRIPT.fullmatch(text) and not _ORDINAL.fullmatch(text) else ""


def picture_text(node: "LexborNode") -> str:
    """Return the words that stand for a picture; nothing for the name of a file."""
    text = (node.attributes.get("alt") or "").strip()
    return "" if _FILE_NAME.fullmatch(text) else text
