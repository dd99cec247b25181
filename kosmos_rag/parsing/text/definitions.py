"""Find the functions and types of source code by its grammar (extra `code`)."""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from kosmos_rag.core.extras import is_installed
from kosmos_rag.core.types import Heading
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.clean import clean_title

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

_GRAMMARS = {
    "text/javascript": [("tree_sitter_javascript", "language")],
    "text/x-c": [("tree_sitter_c", "language"), ("tree_sitter_cpp", "language")],
    "text/x-c++": [("tree_sitter_cpp", "language")],
    "text/x-csharp": [("tree_sitter_c_sharp", "language")],
    "text/x-go": [("tree_sitter_go", "language")],
    "text/x-java": [("tree_sitter_java", "language")],
    "text/x-php": [("tree_sitter_php", "language_php")],
    "text/x-python": [("tree_sitter_python", "language")],
    "text/x-ruby": [("tree_sitter_ruby", "language")],
    "text/x-rust": [("tree_sitter_rust", "language")],
    "text/x-scala": [("tree_sitter_scala", "language")],
    "text/x-shellscript": [("tree_sitter_bash", "language")],
    "text/x-typescript": [
        ("tree_sitter_typescript", "language_typescript"),
        ("tree_sitter_typescript", "language_tsx"),
    ],
}
"""Package and function of each grammar. The next one is tried where a file has errors in the one before."""
_WRAPPERS = frozenset({"decorated_definition", "export_statement", "template_declaration", "type_declaration"})
"""What a definition is inside of with its decorators and modifiers."""
_LEADS = frozenset({"annotation", "attribute_item", "attribute_list"})
"""Belong to the definition below them, as comments do."""
_BLOCK = re.compile(r".*[{;}]\s*", re.DOTALL)
_ANNOTATIONS = re.compile(r"(?:@[\w.]+(?:\([^()]*\))?\s+|\[[^\[\]]*\]\s*)+")
_CLOSING = re.compile(r"[\s});,]*(?:end\b)?[\s});,]*")


class _Definition(NamedTuple):
    """A function or type."""

    start: int
    """Of its first line, comments and decorators above it included, in bytes."""
    end: int
    level: int
    title: str


@cache
def has_grammar(media_type: str) -> bool:
    """Return whether a grammar of the language is installed."""
    return media_type in _GRAMMARS and is_installed("tree_sitter") and is_installed(_GRAMMARS[media_type][0][0])


def find_definitions(text: str, media_type: str) -> Sequence[Heading]:
    """Return the functions and types of source code as headings.

    Code after the end of one has the heading of what encloses it, or one without a title. The result is empty where
    the grammar takes too long.
    """
    data = text.encode()
    tree = _parse(data, media_type)
    if tree is None:
        return []
    headings = [*_add_ends(list(_walk(tree, data)), data)][: bounds.MAX_HEADINGS]
    if text.isascii():
        return headings
    position = offset = 0
    result = []
    for heading in headings:
        offset += len(data[position : heading.start].decode())
        position = heading.start
        result.append(Heading(level=heading.level, title=heading.title, start=offset))
    return result


def _parse(data: bytes, media_type: str) -> "Tree | None":
    from tree_sitter import Language, Parser

    trees = []
    end = time.process_time() + bounds.MAX_GRAMMAR_S
    for module, function in _GRAMMARS[media_type]:
        parser = Parser(Language(getattr(import_module(module), function)()))
        try:
            tree = parser.parse(
                lambda offset, _point: data[offset : offset + bounds.SAMPLE_CHARS],
                progress_callback=lambda _offset, _has_error: time.process_time() > end,
            )
        except ValueError:  # the callback has ended it
            break
        if not tree.root_node.has_error:
            return tree
        trees.append(tree)
    return trees[0] if trees else None


@dataclass(slots=True)
class _Siblings:
    """What is known of the siblings before a node."""

    wrapper: int | None = None
    """Start of the parent where that is only decorators or modifiers around a definition, until one has it."""
    lead: int | None = None
    """Start of the comments and attributes that end right above the node."""
    end_row: int = -1
    """Row where the last of them ends."""

    def add(self, node: "Node") -> int:
        """Add a node, and return where it starts with what leads it."""
        start, row = node.start_byte, node.start_point.row
        follows = self.lead is not None and row <= self.end_row + 1
        is_lead = "comment" in node.type or node.type in _LEADS
        if is_lead and not follows:
            self.lead = start if row > self.end_row else None  # else it is after code on its line
        elif not is_lead:
            start = self.lead if follows and self.lead is not None else start
            self.lead = None
        end = node.end_point
        self.end_row = end.row if end.column else end.row - 1
        return start if self.wrapper is None else self.wrapper


def _walk(tree: "Tree", data: bytes) -> Iterator[_Definition]:
    """Yield the definitions in order. Without recursion: depth is the file's choice."""
    cursor = tree.walk()
    siblings = [_Siblings()]
    ends: list[int] = []
    while True:
        node = cursor.node
        assert node is not None, "a cursor is always at a node"
        start = siblings[-1].add(node)
        while ends and ends[-1] <= node.start_byte:
            ends.pop()
        if definition := _read_definition(node, data, start, len(ends) + 1):
            ends.append(definition.end)
            siblings[-1].wrapper = None
            yield definition
        if cursor.goto_first_child():
            siblings.append(_Siblings(start if node.type in _WRAPPERS else None))
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            siblings.pop()


def _read_definition(node: "Node", data: bytes, start: int, level: int) -> _Definition | None:
    """Return what a node defines, if it has a name and a body of several lines."""
    if node.end_point.row == node.start_point.row or (name := _find_name(node)) is None:
        return None
    line = _find_line(data, name.end_byte, name.end_byte - bounds.MAX_TITLE_CHARS)
    head = _BLOCK.sub("", data[line : name.end_byte].decode("utf-8", "replace").strip())
    title = clean_title(_ANNOTATIONS.sub("", head, count=1))
    if not title:
        return None
    first_line = _find_line(data, start, start)
    return _Definition(first_line, node.end_byte, min(level, bounds.MAX_HEADING_LEVEL), title)


def _find_line(data: bytes, position: int, default: int) -> int:
    """Return where the line of a position begins.

    The result is the default where that is farther away than a title is long.
    """
    start = max(0, position - bounds.MAX_TITLE_CHARS)
    newline = data.rfind(b"\n", start, position)
    return newline + 1 if newline >= 0 or start == 0 else default


def _find_name(node: "Node") -> "Node | None":
    """Return the last node of the name of a definition; None for other nodes."""
    value = node.child_by_field_name("value") or node.child_by_field_name("type")
    body = node.child_by_field_name("body") or (value and value.child_by_field_name("body"))
    name = node.child_by_field_name("name")
    if name is not None:
        is_type = value is not None and value.type in ("struct_type", "interface_type")
        return name if body is not None or is_type else None
    if body is None:
        return None
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and (inner := declarator.child_by_field_name("declarator")) is not None:
        declarator = inner
    return declarator or (node.child_by_field_name("type") if node.type == "impl_item" else None)


def _add_ends(definitions: Sequence[_Definition], data: bytes) -> Iterator[Heading]:
    """Yield the headings of definitions, and one where the code around them continues."""
    enclosing: list[_Definition] = []

    def leave(position: int) -> Iterator[Heading]:
        while enclosing and enclosing[-1].end <= position:
            ended = enclosing.pop()
            until = min([position, *(outer.end for outer in enclosing[-1:])])
            rest = data[ended.end : until].decode("utf-8", "replace")
            skipped = _CLOSING.match(rest)
            if skipped is None or skipped.end() == len(rest):
                continue
            start = ended.end + len(rest[: skipped.end()].encode())
            start = max(ended.end, data.rfind(b"\n", 0, start) + 1)
            outer = enclosing[-1] if enclosing else _Definition(0, 0, 1, "")
            yield Heading(level=outer.level, title=outer.title, start=start)

    for definition in definitions:
        yield from leave(definition.start)
        yield Heading(level=definition.level, title=definition.title, start=definition.start)
        enclosing.append(definition)
    yield from leave(len(data))
