"""Split Markdown into code and prose, line by line."""

import re
from collections.abc import Iterator
from enum import Enum, auto

from kosmos_rag.parsing.clean import TAB, offset_lines

# CommonMark 0.31: sections 4.4 (indented code), 4.5 (fences), 4.6 (HTML) and 5.2 (list items).
_FENCE = re.compile(r"[ \t>]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r"[ \t]*(?:[-+*:]|\d{1,9}[.)])[ \t]+|[ \t]*(?:!!!|\?\?\?\+?|===\+?)[ \t](?=.*$)")
"""A list item or a definition; and an admonition or a tab of Python-Markdown, whose content is indented too."""
_HTML_BLOCK = re.compile(r"[ \t>]*<(?:(?P<name>script|style|pre|textarea)\b|!--)", re.IGNORECASE)
_MODULE = re.compile(
    r"import\s+(?:[^\"']*\bfrom\s+)?[\"']|import\s+\{[^}]*$"
    r"|export\s+(?:default|const|let|var|function|async|class|\{|\*)"
)
"""A statement of MDX."""


class BlockKind(Enum):
    """What the lines of a block are."""

    CODE = auto()
    """A fenced or indented block."""
    MODULE = auto()
    """Statements of MDX, which no page shows."""
    PROSE = auto()


def split_markdown(text: str) -> Iterator[tuple[BlockKind, str]]:
    """Yield the blocks of a text.

    Together they are all of its lines, with their line ends.
    """
    scanner = _Scanner()
    start = 0
    kind: BlockKind | None = None
    for at, line in offset_lines(text):
        following = scanner.classify(line)
        if kind is not None and following is not kind:
            yield kind, text[start:at]
            start = at
        kind = following
    yield kind or BlockKind.PROSE, text[start:]


class _Scanner:
    """Classifies the lines of a text in their order."""

    def __init__(self) -> None:
        self._fence = ""
        self._html_end: re.Pattern[str] | None = None
        self._item_indent = 0
        """Of the content of the innermost list item."""
        self._is_indented = False
        self._is_module = False
        self._after_blank = True
        self._after_tag = False

    def classify(self, line: str) -> BlockKind:
        """Return what a line is."""
        fence = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if self._html_end is not None:
            if self._html_end.search(line):
                self._html_end = None
            return BlockKind.PROSE
        if self._fence:
            if fence and fence[1].startswith(self._fence) and line.strip(" \t>") == fence[1]:
                self._fence = ""
            return BlockKind.CODE
        if fence and not self._is_indented:
            self._fence, self._after_blank = fence[1], False
            return BlockKind.CODE
        return self._classify_outside(line)

    def _classify_outside(self, line: str) -> BlockKind:
        if not line.strip():
            self._after_blank, self._is_module = True, False
            return BlockKind.CODE if self._is_indented else BlockKind.PROSE
        indent = _width(line)
        self._is_module = self._is_module or bool(self._after_blank and _MODULE.match(line))
        self._is_indented = (
            (self._after_blank or self._is_indented)
            and indent >= self._item_indent + TAB
            and not (self._after_tag and line.lstrip().startswith("<"))
        )
        if self._is_indented or self._is_module:
            self._after_blank = False
            return BlockKind.CODE if self._is_indented else BlockKind.MODULE
        self._open_item(line, indent)
        self._open_html(line)
        self._after_blank, self._after_tag = False, line.lstrip(" \t>").startswith("<") or line.rstrip().endswith(">")
        return BlockKind.PROSE

    def _open_item(self, line: str, indent: int) -> None:
        if item := _ITEM.match(line):
            self._item_indent = _width(f"{item[0]}.") if item[0].strip() not in ("!!!", "===") else indent + TAB
        elif self._after_blank:
            self._item_indent = min(self._item_indent, indent)

    def _open_html(self, line: str) -> None:
        if start := _HTML_BLOCK.match(line):
            end = re.compile(rf"</{start['name']}\s*>" if start["name"] else "-->", re.IGNORECASE)
            self._html_end = None if end.search(line, start.end()) else end


def _width(line: str) -> int:
    line = line.expandtabs(TAB)
    return len(line) - len(line.lstrip())
