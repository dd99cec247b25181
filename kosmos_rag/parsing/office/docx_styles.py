"""Styles and lists of Word.

They determine headings, and the numbers that are printed before paragraphs.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.numbering import format_number

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_VALUE = f"{W}val"
_HEADING = re.compile(r"(?:heading ([1-9])|title)", re.IGNORECASE)
_OUTLINE_LEVELS = "012345678"
"""9 is that of a text."""
_LEVELS = 9
_PLACE = re.compile(r"%([1-9])")
_FORMATS = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}
_BULLET = "- "


@cache
def _qualify(path: str) -> str:
    return "/".join(W + name for name in path.split("/"))


def read_value(element: Any, path: str) -> str:
    """Return the value of a property below an element, or ""."""
    property_element = element.find(_qualify(path))
    return "" if property_element is None else property_element.get(_VALUE, "")


def _integer(text: str, default: int) -> int:
    return int(text) if re.fullmatch(r"-?\d{1,6}", text) else default


def parse_outline_level(value: str) -> int:
    """Return the heading level of an outline level; 0 for a text."""
    return int(value) + 1 if value in _OUTLINE_LEVELS else 0


class ParagraphStyle(NamedTuple):
    """The properties of a paragraph style."""

    level: int
    """Of a heading; 0 for no heading."""
    list_level: tuple[str, int] | None
    """Number and level of the list."""
    is_caption: bool


class Styles:
    """The paragraph styles of a document."""

    def __init__(self, root: Any) -> None:
        self._elements = {style.get(f"{W}styleId"): style for style in root.iter(f"{W}style")}
        self._styles: dict[str | None, ParagraphStyle] = {}

    def find_paragraph_style(self, identity: str | None) -> ParagraphStyle:
        """Return a style, also one that the document does not define."""
        if identity not in self._styles:
            element = self._elements.get(identity)
            name = "" if element is None else read_value(element, "name")
            self._styles[identity] = ParagraphStyle(
                level=next(self._heading_levels(identity), 0),
                list_level=self._find_list_level(identity),
                is_caption=name.lower() == "caption",
            )
        return self._styles[identity]

    def _heading_levels(self, identity: str | None) -> Iterator[int]:
        """Yield the heading levels of a style and its bases."""
        for element in self._bases(identity):
            if match := _HEADING.fullmatch(read_value(element, "name")):
                yield int(match[1] or 1)
            elif outline := read_value(element, "pPr/outlineLvl"):
                yield parse_outline_level(outline)

    def _find_list_level(self, identity: str | None) -> tuple[str, int] | None:
        for element in self._bases(identity):
            if number := read_value(element, "pPr/numPr/numId"):
                return number, _integer(read_value(element, "pPr/numPr/ilvl"), 0)
        return None

    def _bases(self, identity: str | None) -> Iterator[Any]:
        for _ in range(bounds.MAX_STYLE_LEVELS):
            element = self._elements.get(identity)
            if element is None:
                return
            yield element
            identity = read_value(element, "basedOn")


class Lists:
    """The lists of a document and the last number at each level."""

    def __init__(self, root: Any | None) -> None:
        self._levels: dict[str, dict[int, Any]] = {}
        self._counts: dict[str, list[int | None]] = {}
        self._counters: dict[str, str] = {}
        if root is None:
            return
        abstracts = {element.get(f"{W}abstractNumId"): element for element in root.iter(f"{W}abstractNum")}
        style_owners = {read_value(element, "styleLink"): name for name, element in abstracts.items()}
        for number in root.iter(f"{W}num"):
            name, abstract = number.get(f"{W}numId"), read_value(number, "abstractNumId")
            if abstract in abstracts and (style := read_value(abstracts[abstract], "numStyleLink")):
                abstract = style_owners.get(style, abstract)
            # Levels that the number itself has replace those of its definition.
            self._levels[name] = {**_levels(abstracts.get(abstract)), **_levels(number)}
            self._counters[name] = name if read_value(number, "lvlOverride/startOverride") else abstract

    def mark(self, number: str, level: int) -> str:
        """Count an item and return its printed mark.

        For example `3. `, `2.1 `, `- `.
        """
        levels = self._levels.get(number, {})
        if level not in levels or not 0 <= level < _LEVELS:
            return ""
        style = read_value(levels[level], "numFmt")
        if style == "bullet":
            return _BULLET
        if style == "none":
            return ""
        counts = self._counts.setdefault(self._counters[number], [None] * _LEVELS)
        counts[level] = _start(levels[level]) if counts[level] is None else (counts[level] or 0) + 1
        counts[level + 1 :] = [None] * (_LEVELS - level - 1)
        mark = _PLACE.sub(
            lambda match: _format_level(levels, counts, int(match[1]) - 1), read_value(levels[level], "lvlText")
        )
        return f"{mark} " if mark else ""


def _levels(element: Any | None) -> dict[int, Any]:
    levels = () if element is None else element.iter(f"{W}lvl")
    return {_integer(level.get(f"{W}ilvl", ""), 0): level for level in levels}


def _start(level: Any) -> int:
    return _integer(read_value(level, "start"), 1)


def _format_level(levels: dict[int, Any], counts: list[int | None], level: int) -> str:
    element = levels.get(level)
    if element is None:
        return ""
    count = counts[level]
    style = _FORMATS.get(read_value(element, "numFmt"), "1")
    return format_number(_start(element) if count is None else count, style)
