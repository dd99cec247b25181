"""Parse HTML, block by block, without scripts and hidden parts."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import Heading, ParsedDocument, PlaceSpan, TableSpan
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.clean import clean, clean_title
from kosmos_rag.parsing.limits import UNLIMITED, OutputLimits
from kosmos_rag.parsing.tables.forms import split_form
from kosmos_rag.parsing.tables.table import Table, render
from kosmos_rag.parsing.text.decode import decode
from kosmos_rag.parsing.web.confluence import IS_STORAGE, to_html
from kosmos_rag.parsing.web.content import find_boilerplate
from kosmos_rag.parsing.web.html_inline import Bullets, find_anchor, read_picture_text, read_reference, read_script
from kosmos_rag.parsing.web.html_tables import TableReader
from kosmos_rag.parsing.web.mathml import write_math

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode


def _names(line: str) -> frozenset[str]:
    return frozenset(line.split())


_SKIPPED = _names("script style template noscript head svg iframe object canvas audio video del s strike rp rt")
"""What is not read, what an author has deleted (`<del>90</del> <ins>80</ins>` reads `80`), and how words are read."""
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LINE_BLOCKS = _names("address body dd dt figcaption li optgroup option tbody td tfoot th thead tr")
_OWN_BLOCKS = _names(
    "article aside blockquote caption center details dialog div dl fieldset figure footer form header hgroup "
    "hr legend main menu nav ol p pre search section select summary table ul"
)
_CONTROLS = _names("button label")
"""Are apart from the words before them, as the names of tabs are."""
_BREAKS = dict.fromkeys(_LINE_BLOCKS, 1) | dict.fromkeys([*_OWN_BLOCKS, *_HEADINGS], 2)
"""Line ends before and after an element: 1 puts it on a line of its own, 2 also leaves a blank line."""
_PANELS = '[role="tabpanel" i], [class*="tab-pane" i], [class*="tabpane" i], [class*="tabcontent" i]'
"""Contents of tabs: all but one of them are hidden until their tab is chosen."""
_HIDDEN = (
    f'[hidden]:not({_PANELS}), [style*="display:none" i]:not({_PANELS}), [style*="display: none" i]:not({_PANELS}), '
    '[style*="line-through" i], .katex-mathml + .katex-html'
)
"""KaTeX draws an equation for the eye below its MathML."""
_ROLE_CELLS = ("cell", "columnheader", "gridcell", "rowheader")
_ROLE_ROWS = ", ".join(f'{tag}[role="row" i]' for tag in ("div", "span", "li"))
_ANY_CELLS = ", ".join(f'[role="row" i] > [role="{role}" i]' for role in _ROLE_CELLS)
_LATER_CELLS = ", ".join(f'{first} ~ [role="{role}" i]' for first in _ANY_CELLS.split(", ") for role in _ROLE_CELLS)
"""Tables of elements that only say that they are one: their cells must not be one word."""
_TABLE_CELLS = frozenset({"td", "th"})
_SINGLE = frozenset({"br", "img", "math"})
"""Elements whose contents are not visited."""
_LISTS = frozenset({"ol", "ul", "menu"})
_SPACE = re.compile(r"[\x01-\x20]+")
"""White space, and the control characters that a character reference can produce."""

_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)([^<>]*)")
_NEVER_NESTED = _names(
    "area base br col dd dt embed hr img input li link meta p param source tbody td tfoot th thead tr track wbr"
)
_LONG_TAG = 2_000
_HAS_LONG_TAG = re.compile(rf"<[a-zA-Z][^<>]{{{_LONG_TAG}}}")


def parse_html(data: bytes, limits: OutputLimits = UNLIMITED, *, is_page: bool = False) -> ParsedDocument:
    """Parse HTML to text with headings.

    Blocks are on lines of their own, list items start with `- ` or their number.

    Args:
        limits: size above which it is refused.
        is_page: leave out what is not the content of a web page, such as menus.

    Raises:
        ParseError: `empty`, `binary`, or `too_large` for tags whose nesting would stall the parser.
    """
    from selectolax.lexbor import LexborHTMLParser

    source = decode(data)
    _refuse_costly(source)
    if IS_STORAGE.search(source):
        source = to_html(source)
    tree = LexborHTMLParser(source)
    hidden = {node.mem_id for node in tree.css(_HIDDEN)}
    if is_page:
        hidden |= find_boilerplate(tree, hidden)
    reader = _Reader(tree, hidden, limits)
    if tree.body is not None:
        _walk(tree.body, reader.enter, reader.leave)
    text = reader.text()
    title = tree.css_first("head > title")
    return ParsedDocument(
        text=text,
        media_type=media_types.HTML,
        title=(clean_title(title.text()) if title else None)
        or next((h.title for h in reader.headings if h.level == 1), None),
        headings=tuple(reader.headings),
        tables=tuple(reader.tables),
        places=tuple(_build_anchor_places(reader.anchors, len(text))) if is_page else (),
    )


def _build_anchor_places(anchors: Sequence[tuple[int, str]], end: int) -> Iterator[PlaceSpan]:
    """Return a place for the text from each anchor to the next."""
    ends = [*(start for start, _ in anchors[1:]), end]
    return (PlaceSpan(start, last, anchor=anchor) for (start, anchor), last in zip(anchors, ends, strict=False))


def _refuse_costly(source: str) -> None:
    """Refuse HTML that takes the parser minutes.

    At each tag it walks the open elements, at each attribute the attributes of the tag, at each option the
    options of the list: work that grows with the square of the three. Tags in scripts are counted too, for
    telling them apart would take a parser.
    """
    tags = source.count("<")
    # Depth and options grow by one with a tag at most, and an attribute takes two characters.
    bound = 2 * tags * tags + _LONG_TAG // 2 * len(source) // 2
    if bound <= bounds.MAX_HTML_COST and not _HAS_LONG_TAG.search(source):
        return
    if sum(_costs(source)) > bounds.MAX_HTML_COST:
        message = "the HTML nests its tags too deep, or one tag has too many attributes or options; simplify it"
        raise ParseError("too_large", message)


def _costs(source: str) -> Iterator[int]:
    depth = options = 0
    opened: Counter[str] = Counter()
    for tag in _TAG.finditer(source):
        closing, name = tag[1], tag[2].lower()
        if name == "option":
            options += 1
            yield options
        elif closing and opened[name]:
            opened[name] -= 1
            depth -= 1
        elif not closing and name not in _NEVER_NESTED:
            opened[name] += 1
            depth += 1
            options = 0 if name == "select" else options
        yield depth + len(tag[3].split()) ** 2


def _walk(root: "LexborNode", enter: Callable[["LexborNode"], bool], leave: Callable[["LexborNode"], None]) -> None:
    """Visit a tree in document order without recursion.

    `enter` says whether to go inside.
    """
    pending = [(root, False)]
    while pending:
        node, visited = pending.pop()
        if visited:
            leave(node)
            continue
        if node is not root and node.next is not None:
            pending.append((node.next, False))
        if enter(node):
            pending.append((node, True))
            if node.first_child is not None:
                pending.append((node.first_child, False))


class _Lines:
    """Text under construction, with white space collapsed as in browsers.

    Line ends are added when text follows.
    """

    def __init__(self) -> None:
        self.length = 0
        self.pieces: list[str] = []
        self.bullet = ""
        """Separator before the next text."""
        self._breaks = 0
        self._space = False
        self._trailing_breaks = 0

    def end_line(self, breaks: int) -> None:
        self._breaks = max(self._breaks, breaks)
        self._space = False

    def line_break(self) -> None:
        self.end_line(min(self._breaks + 1, 2))

    def add(self, text: str) -> None:
        collapsed = _SPACE.sub(" ", text)
        words = collapsed.strip(" ")
        self._space |= collapsed.startswith(" ")
        if words:
            self.add_verbatim(words)
            self._space = collapsed.endswith(" ")

    def add_verbatim(self, text: str) -> None:
        piece = self._lead() + self.bullet + text
        self.pieces.append(piece)
        self.length += len(piece)
        self._breaks, self._space, self.bullet = 0, False, ""
        self._trailing_breaks = len(text) - len(text.rstrip("\n"))

    def _lead(self) -> str:
        if not self.length:
            return ""
        if self._breaks:
            return "\n" * max(0, self._breaks - self._trailing_breaks)
        return " " if self._space else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _OpenHeading:
    node: int
    """Identity of the node that opened it; headings inside it are part of it."""
    pieces: int
    length: int


class _Reader:
    """Turns the visits of `_walk` into lines and headings."""

    def __init__(self, tree: "LexborHTMLParser", hidden: set[int], limits: OutputLimits) -> None:
        self.headings: list[Heading] = []
        self.tables: list[TableSpan] = []
        self.anchors: list[tuple[int, str]] = []
        """Start and anchor of the headings that have one."""
        self._lines = _Lines()
        self._hidden = hidden
        self._bullets = Bullets()
        self._limits = limits
        self._table_reader = TableReader(tree, self._is_visible)
        self._later_cells = {node.mem_id for node in tree.css(_LATER_CELLS) if node.tag not in _TABLE_CELLS}
        self._role_cells = {node.mem_id for node in tree.css(_ANY_CELLS) if node.tag not in _TABLE_CELLS}
        self._role_rows = {node.mem_id for node in tree.css(_ROLE_ROWS)}
        self._preformatted = 0
        self._heading: _OpenHeading | None = None

    def text(self) -> str:
        return "".join(self._lines.pieces).rstrip()

    def enter(self, node: "LexborNode") -> bool:
        if node.is_text_node:
            self._add_text(clean(node.text_content or ""))
            return False
        if not self._is_visible(node):
            return False
        return self._open(node, node.tag or "")

    def _add_text(self, text: str) -> None:
        if self._preformatted:
            self._lines.add_verbatim(text)
        else:
            self._lines.add(text)

    def _is_visible(self, node: "LexborNode") -> bool:
        return node.is_element_node and node.tag not in _SKIPPED and node.mem_id not in self._hidden

    def _open(self, node: "LexborNode", tag: str) -> bool:
        if tag in _SINGLE:
            self._add_single(node, tag)
            return False
        if breaks := self._count_breaks(node, tag):
            self._lines.end_line(breaks)
        elif separator := self._find_separator(node, tag):
            self._lines.add(separator)
        elif script := read_script(node) or read_reference(node):
            self._lines.add_verbatim(script)
            return False
        if tag == "table" and self._add_tables(node):
            return False
        if tag in _HEADINGS and self._heading is None:
            self._lines.bullet = ""
            self._heading = _OpenHeading(node=node.mem_id, pieces=len(self._lines.pieces), length=self._lines.length)
        elif tag == "li":
            self._lines.bullet = self._bullets.mark(node)
        elif tag in _LISTS:
            self._bullets.open(node)
        elif tag == "pre":
            self._preformatted += 1
        return True

    def _find_separator(self, node: "LexborNode", tag: str) -> str:
        """Return what separates an element from the words before it."""
        return " | " if node.mem_id in self._later_cells else " " if tag in _CONTROLS else ""

    def _add_single(self, node: "LexborNode", tag: str) -> None:
        if tag == "br":
            self._lines.line_break()
        else:
            self._lines.add(write_math(node) if tag == "math" else read_picture_text(node))

    def leave(self, node: "LexborNode") -> None:
        tag = node.tag or ""
        if self._heading and self._heading.node == node.mem_id:
            self._close_heading(self._heading, _HEADINGS[tag], node)
        elif tag == "li":
            self._lines.bullet = ""
        elif tag in _LISTS:
            self._bullets.close()
        elif tag == "pre":
            self._preformatted -= 1
        if breaks := self._count_breaks(node, tag):
            self._lines.end_line(breaks)

    def _count_breaks(self, node: "LexborNode", tag: str) -> int:
        """Return the line ends before and after an element."""
        if node.mem_id in self._role_rows:
            return 1
        return 0 if node.mem_id in self._role_cells else _BREAKS.get(tag, 0)

    def _close_heading(self, heading: _OpenHeading, level: int, node: "LexborNode") -> None:
        added = "".join(self._lines.pieces[heading.pieces :])
        if title := clean_title(added):
            start = heading.length + len(added) - len(added.lstrip())
            self.headings.append(Heading(level=level, title=title, start=start))
            if anchor := find_anchor(node):
                self.anchors.append((start, anchor))
        self._heading = None

    def _add_tables(self, node: "LexborNode") -> bool:
        """Add a table, then those in its cells.

        Return False for a table that only arranges the page.
        """
        table = self._table_reader.read(node, self._cell_text)
        if table is None:
            return False
        pending = [(node, table)]
        while pending:
            node, table = pending.pop()
            self._add_table(table)
            inside = [
                (inner, self._table_reader.read(inner, self._cell_text, label=self._label(inner)))
                for inner in self._table_reader.find_inner_tables(node)
            ]
            pending += [(inner, inner_table) for inner, inner_table in reversed(inside) if inner_table is not None]
        return True

    def _label(self, inner: "LexborNode") -> str:
        return self._table_reader.label(inner, self._cell_text)

    def _add_table(self, table: Table) -> None:
        for part in split_form(table):
            rendered = render(part, self._limits)
            if rendered.text:
                self._lines.add_verbatim(rendered.text)
                self.tables.append(rendered.span(self._lines.length - len(rendered.text)))
                self._lines.end_line(_BREAKS["table"])

    def _cell_text(self, cell: "LexborNode") -> str:
        first = cell.first_child
        if first is not None and first.is_text_node and first.next is None:  # by far the most
            return _SPACE.sub(" ", clean(first.text_content or "")).strip()
        pieces: list[str] = []

        def enter(node: "LexborNode") -> bool:
            if node.is_text_node:
                pieces.append(clean(node.text_content or ""))
            elif node.tag == "br" or node.tag in _BREAKS:
                pieces.append(" ")
            elif self._is_visible(node):
                notation = write_math(node) if node.tag == "math" else read_script(node) or read_reference(node)
                pieces.append(notation or (read_picture_text(node) if node.tag == "img" else ""))
                if notation:
                    return False
            return self._is_visible(node) and not (node.tag == "table" and self._table_reader.is_data(node))

        def leave(node: "LexborNode") -> None:
            if node.tag in _BREAKS:
                pieces.append(" ")

        _walk(cell, enter, leave)
        return _SPACE.sub(" ", "".join(pieces)).strip()
