"""Styles of OpenDocument files: numbers of lists and headings, hidden parts, superscripts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.numbering import format_number

NAMESPACE = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
TEXT, TABLE, STYLE, DRAWING = (NAMESPACE % name for name in ("text", "table", "style", "drawing"))
OFFICE, PRESENTATION = (NAMESPACE % name for name in ("office", "presentation"))
_NUMBERED = frozenset({f"{TEXT}list-level-style-number", f"{TEXT}outline-level-style"})
OUTLINE = ""
"""Name of the list style of headings, which has none in the file."""
LEVELS = 10
"""Of lists and headings, which the format has."""


def parse_integer(value: str | None) -> int:
    """Return a number of at most six digits; 0 for other values."""
    return int(value) if value and value.isdecimal() and len(value) < 7 else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Level:
    """The numbering of one level of a list."""

    style: str
    prefix: str
    suffix: str
    start: int
    display_levels: int
    """Levels that the number shows: 2 for `3.1`."""


@dataclass(kw_only=True, slots=True)
class Numbering:
    """The last numbers of a list, by level from 0."""

    levels: Mapping[int, _Level]
    counts: dict[int, int] = field(default_factory=dict)

    def mark(self, level: int, value: int = 0) -> str:
        """Count an item and return its printed mark; empty without one.

        Args:
            level: its level, from 0.
            value: its number, where the file sets it.
        """
        settings = self.levels.get(level)
        if settings is None or not settings.style:
            return ""
        for deeper in [other for other in self.counts if other > level]:
            del self.counts[deeper]
        self.counts[level] = value or self.counts.get(level, settings.start - 1) + 1
        number = ".".join(self._format_numbers(level, settings))
        return f"{settings.prefix}{number}{settings.suffix} "

    def _format_numbers(self, level: int, settings: _Level) -> Iterator[str]:
        for number in range(max(0, level + 1 - settings.display_levels), level + 1):
            above = self.levels.get(number)
            if above is not None and above.style:
                yield format_number(self.counts.get(number, above.start), above.style)


class Styles:
    """The styles of a document."""

    def __init__(self, roots: Iterable[Element]) -> None:
        """Read the styles of the parts `content.xml` and `styles.xml`."""
        self._styles: dict[tuple[str, str], Element] = {}
        """By family and name."""
        self._lists: dict[str, dict[int, _Level]] = {}
        for root in roots:
            for element in root.iter():
                if element.tag == f"{STYLE}style":
                    key = element.get(f"{STYLE}family", ""), element.get(f"{STYLE}name", "")
                    self._styles.setdefault(key, element)
                elif element.tag == f"{TEXT}list-style":
                    self._lists.setdefault(element.get(f"{STYLE}name", ""), dict(_levels(element)))
                elif element.tag == f"{TEXT}outline-style":
                    self._lists.setdefault(OUTLINE, dict(_levels(element)))

    def numbering(self, name: str) -> Numbering:
        """Return the numbering of a list style, before its first number."""
        return Numbering(levels=self._lists.get(name, {}))

    def is_hidden(self, family: str, name: str | None) -> bool:
        """Return whether a style hides its elements, or strikes them through.

        Args:
            family: `text`, `table` or `drawing-page`.
        """
        values = (
            self._property(family, name, f"{TEXT}display") == "none",
            self._property(family, name, f"{TABLE}display") == "false",
            self._property(family, name, f"{PRESENTATION}visibility") == "hidden",
            self._property(family, name, f"{STYLE}text-line-through-style") not in (None, "none"),
        )
        return any(values)

    def script(self, name: str | None) -> str:
        """Return `super`, `sub` or nothing for the style of a text."""
        position = (self._property("text", name, f"{STYLE}text-position") or "").split(" ")[0]
        if position in ("super", "sub"):
            return position
        return "" if not position.endswith("%") or position == "0%" else "sub" if position[0] == "-" else "super"

    def _property(self, family: str, name: str | None, attribute: str) -> str | None:
        for _ in range(bounds.MAX_STYLE_LEVELS):
            element = self._styles.get((family, name or ""))
            if element is None:
                return None
            for properties in element:
                if (value := properties.get(attribute)) is not None:
                    return value
            name = element.get(f"{STYLE}parent-style-name")
        return None


def _levels(style: Element) -> Iterator[tuple[int, _Level]]:
    """Yield the levels that are numbered; the others have bullets."""
    for element in style:
        level = parse_integer(element.get(f"{TEXT}level")) - 1
        if element.tag in _NUMBERED and 0 <= level < LEVELS:
            yield (
                level,
                _Level(
                    style=element.get(f"{STYLE}num-format", ""),
                    prefix=element.get(f"{STYLE}num-prefix", ""),
                    suffix=element.get(f"{STYLE}num-suffix", ""),
                    start=parse_integer(element.get(f"{TEXT}start-value")) or 1,
                    display_levels=parse_integer(element.get(f"{TEXT}display-levels")) or 1,
                ),
            )
