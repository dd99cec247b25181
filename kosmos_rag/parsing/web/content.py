"""Find the parts of a web page that are not its content.

They are menus, login boxes, cookie banners, and teasers of other pages.

The evidence is the names of elements, and how much of their text is prose rather than links. A page that would keep too
little of its text keeps all of it.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_FRAME_NAMES = (
    "advert breadcrumb byline comment consent cookie disqus footer gdpr header login masthead menu modal nav "
    "newsletter outbrain pagination paywall popup promo recirc recommend related rss share sharing sidebar signup "
    "skip social sponsor subscri taboola teaser toolbar widget"
)
_FRAME_TAGS = "nav, aside, footer, dialog, menu, button, form"
_FRAME_ROLES = frozenset(
    {"navigation", "search", "banner", "contentinfo", "complementary", "dialog", "alertdialog", "menu", "toolbar"}
)
_FRAME_NAME = re.compile(rf"(?<![a-z])(?:{_FRAME_NAMES.replace(' ', '|')})", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W_]+")
_MAIN = ("[itemprop=articleBody]", "article", "main, [role=main]")
"""Elements that call themselves the content, the narrowest first."""


def _names(line: str) -> frozenset[str]:
    return frozenset(line.split())


_INLINE = _names(
    "a abbr b bdi bdo cite code data del dfn em font i img ins kbd label mark q s samp small span strong sub sup time "
    "tt u var wbr"
)
_NO_TEXT = _names("audio canvas head iframe noscript object script style svg template video")
_HEADINGS = _names("h1 h2 h3 h4 h5 h6")
_LEAVES = _HEADINGS | _names("blockquote dl figure ol p pre table ul")
"""Elements that are content where they are next to it, however short."""

_COMMENTS = frozenset({"comment", "disqus"})
_MOST_IN_COMMENTS = 0.7
"""The same for comments, where an article is left without them."""
_SHORTEST_ARTICLE = 1_000
"""Characters of prose that are an article with comments, and no post of a forum."""
_LISTS = frozenset({"ul", "ol"})
_FEWEST_TEASERS = 5
_SMALL = 200
"""Characters up to which what is named as no content is none, whatever its share."""
_LEAST_BESIDE_FRAME = 0.1
"""Share of the prose that is left by dropping all that is named so."""
_LEAST_PART = 0.2
"""Share from which on a part counts: prose of the page in an element that calls itself the content; prose of a block
next to the content, by that of the content; links in the text of a page that may have menus."""
_SHARE_OF_MAIN = 0.75
"""Share of the prose that the part of a block has which is its content."""
_MUCH_PROSE = 500
"""Characters of prose that make any block with few links content."""
_MOST_LINKS = 0.7
"""Share of links in the text from which on a block without prose is a menu."""
_MOST_LINKS_OF_PARAGRAPH = 0.95
"""The same, of an element that is content where it is next to it."""
_LEAST_CHARACTERS = 25
"""Characters of text that is no link in a block, from which on it is prose; and of the whole result."""
_LEAST_SHARE = 0.05
"""What must be left of the text for the result to be believed."""


@dataclass(slots=True, eq=False)
class _Block:
    """A block element and the number of characters of its text."""

    node: int
    tag: str
    parent: "_Block | None" = None
    text: int = 0
    links: int = 0
    prose: int = 0
    own_text: int = 0
    own_links: int = 0
    has_title: bool = False
    """Whether it has a heading of level 1, dropped or not."""
    dropped: bool = False
    children: "list[_Block]" = field(default_factory=list)

    def add_child(self, node: int, tag: str) -> "_Block":
        """Return a new last child."""
        child = _Block(node, tag, self)
        self.children.append(child)
        if tag == "h1":
            child.mark_title()
        return child

    def mark_title(self) -> None:
        """Record that the block has a heading of level 1."""
        block: _Block | None = self
        while block is not None and not block.has_title:
            block.has_title = True
            block = block.parent

    def ancestors(self) -> "Iterator[_Block]":
        """Yield the enclosing blocks, the nearest first."""
        block = self.parent
        while block is not None:
            yield block
            block = block.parent

    def collect_remaining(self) -> "list[_Block]":
        """Return the block and its remaining descendants in document order."""
        blocks, pending = [], [self]
        while pending:
            block = pending.pop()
            if not block.dropped:
                blocks.append(block)
                if block.children:
                    pending += block.children[::-1]
        return blocks


def find_boilerplate(tree: "LexborHTMLParser", hidden: Collection[int]) -> set[int]:
    """Return the nodes of a page that are not its content.

    Args:
        hidden: nodes that are not shown.
    """
    if tree.body is None:
        return set()
    root = _blocks(tree.body, hidden)
    _count(root)
    least = max(_LEAST_SHARE * root.text, min(_LEAST_CHARACTERS, root.text))
    names = _frame_names(tree)
    if not names and root.links < _LEAST_PART * root.text:
        return set()
    is_clear = _drop_frame(root, names)
    _count(root)
    if _drop_teasers(root):
        _count(root)
    frame = _collect_dropped(root) if root.text >= least else set()
    main = _find_main(tree, root)
    if main is not None:
        _drop_around(main)
    if is_clear:  # else the largest part may be the comments
        _drop_siblings(main or root)
    _drop_menus(main or root)
    _drop_lone_headings(root)
    _keep_title(root)
    return _collect_dropped(root) if sum(block.own_text for block in root.collect_remaining()) >= least else frame


def _blocks(body: "LexborNode", hidden: Collection[int]) -> _Block:
    """Return the block of a body, with those inside it."""
    root = _Block(body.mem_id, "body", own_text=_count_own_text(body))
    blocks = {root.node: root}
    """Innermost block of each element that is shown."""
    linked: set[int] = set()
    """Elements in links."""
    for node in islice(body.traverse(), 1, None):
        outer, element, tag = node.parent, node.mem_id, node.tag or ""
        if outer is None or outer.mem_id not in blocks:
            continue
        if not node.is_element_node or tag in _NO_TEXT or element in hidden:
            continue
        block = blocks[outer.mem_id]
        if tag not in _INLINE:
            block = block.add_child(element, tag)
        blocks[element] = block
        length = _count_own_text(node)
        block.own_text += length
        if tag == "a" or outer.mem_id in linked:
            linked.add(element)
            block.own_links += length
    return root


def _count_own_text(node: "LexborNode") -> int:
    return len(node.text(deep=False, strip=True))


def _count(root: _Block) -> None:
    """Count text, links and prose of each remaining block."""
    blocks = root.collect_remaining()
    for block in blocks:
        block.text, block.links = block.own_text, block.own_links
        words = block.text - block.links
        block.prose = words if words >= _LEAST_CHARACTERS and words >= block.links else 0
    for block in reversed(blocks):
        parent = block.parent
        if parent is not None and block.text:
            parent.text += block.text
            parent.links += block.links
            parent.prose += block.prose


def _collect_dropped(root: _Block) -> set[int]:
    return {child.node for block in root.collect_remaining() for child in block.children if child.dropped}


def _drop_frame(root: _Block, names: Mapping[int, str]) -> bool:
    """Drop blocks that are named as no content.

    They are kept if much of the page's prose has that name. Returns whether all were dropped.
    """
    groups: dict[str, list[_Block]] = defaultdict(list)
    pending = list(root.children)
    while pending:
        block = pending.pop()
        name = names.get(block.node)
        if name and not block.has_title and (block.text <= _SMALL or block.prose <= _most_prose(name, root.prose)):
            groups[name].append(block)
        else:
            pending.extend(block.children)
    rest = root.prose
    for group in sorted(groups.values(), key=_prose):
        rest -= _prose(group)
        if rest < _LEAST_BESIDE_FRAME * root.prose and sum(block.text for block in group) > _SMALL:
            return False
        for block in group:
            block.dropped = True
    return True


def _drop_teasers(root: _Block) -> bool:
    """Drop lists whose items mostly have a linked heading.

    They are teasers of other pages. They are kept if little prose is left. Returns whether any was dropped.
    """
    lists = {block.node for block in root.collect_remaining() if block.tag in _LISTS and _is_teasers(block)}
    outer = _find_outermost(root, lists)
    if not outer or root.prose - _prose(outer) < _SHORTEST_ARTICLE:
        return False
    for block in outer:
        block.dropped = True
    return True


def _is_teasers(block: _Block) -> bool:
    items = [child for child in block.children if child.text]
    if len(items) < _FEWEST_TEASERS:
        return False
    return 2 * sum(map(_has_linked_heading, items)) > len(items)


def _has_linked_heading(item: _Block) -> bool:
    return item.links > 0 and any(inner.links and inner.tag in _HEADINGS for inner in item.collect_remaining())


def _most_prose(name: str, total: int) -> float:
    """Return how much prose a block of this name may have."""
    if name not in _COMMENTS:
        return total / 2
    return max(total / 2, min(_MOST_IN_COMMENTS * total, total - _SHORTEST_ARTICLE))


def _prose(blocks: Iterable[_Block]) -> int:
    return sum(block.prose for block in blocks)


def _frame_names(tree: "LexborHTMLParser") -> dict[int, str]:
    names = {node.mem_id: node.tag or "" for node in tree.css(_FRAME_TAGS)}
    names |= {node.mem_id: node.tag or "" for node in tree.css("[role]") if node.attributes.get("role") in _FRAME_ROLES}
    for node in _find_named(tree):
        attributes = node.attributes
        identifier = attributes.get("id") or ""
        if _FRAME_NAME.search(identifier) and _names_heading(identifier, node):
            identifier = ""
        if match := _FRAME_NAME.search(f"{attributes.get('class')} {identifier}"):
            names[node.mem_id] = match[0].lower()
    return names


def _find_named(tree: "LexborHTMLParser") -> "list[LexborNode]":
    """Return the elements whose class or identifier may name no content."""
    attributes = [node.attributes for node in tree.css("[class], [id]")]
    identifiers = " ".join(f"{each.get('class')} {each.get('id')}" for each in attributes).lower()
    names = [name for name in _FRAME_NAMES.split() if name in identifiers]
    return tree.css(", ".join(f'[class*="{name}" i], [id*="{name}" i]' for name in names)) if names else []


def _names_heading(identifier: str, node: "LexborNode") -> bool:
    """Return whether an identifier was made from the heading of its section.

    `share-a-file` is a section about sharing, and no row of buttons.
    """
    heading = node if node.tag in _HEADINGS else node.css_first("h1, h2, h3, h4, h5, h6")
    if heading is None:
        return False
    words = "".join(_LETTERS.findall(identifier.lower()))
    return len(words) > 1 and "".join(_LETTERS.findall(heading.text().lower())).startswith(words)


def _find_main(tree: "LexborHTMLParser", root: _Block) -> _Block | None:
    """Return the one block that is declared as the content.

    It must have a share of the prose.
    """
    for selector in _MAIN:
        blocks = _find_outermost(root, {node.mem_id for node in tree.css(selector)})
        if len(blocks) == 1 and blocks[0].prose >= _LEAST_PART * root.prose:
            return blocks[0]
    return None


def _find_outermost(root: _Block, nodes: Collection[int]) -> list[_Block]:
    blocks, pending = [], [root]
    while pending and nodes:
        block = pending.pop()
        if block.node in nodes:
            blocks.append(block)
        elif not block.dropped:
            pending.extend(block.children)
    return [block for block in blocks if not block.dropped]


def _drop_around(main: _Block) -> None:
    inner = main
    for block in main.ancestors():
        for child in block.children:
            child.dropped |= child is not inner
        inner = block


def _drop_siblings(main: _Block) -> None:
    """Drop siblings of the content.

    It descends as long as one part of a block has most of its prose.
    """
    block = main
    while children := [child for child in block.children if not child.dropped]:
        largest = max(children, key=lambda child: child.prose)
        if not largest.prose or largest.tag in _LEAVES or largest.prose < _SHARE_OF_MAIN * block.prose:
            return
        for child in children:
            child.dropped = child is not largest and not _is_content(child, largest.prose)
        block = largest


def _is_content(block: _Block, prose: int) -> bool:
    if block.tag in _LEAVES:
        return block.links <= block.text / 2
    return block.prose >= min(_LEAST_PART * prose, _MUCH_PROSE) and block.links <= block.text / 4


def _drop_menus(root: _Block) -> None:
    for block in root.collect_remaining():
        if not block.links or block.prose or block.tag in _HEADINGS or 2 * block.text > root.text:
            continue  # links that are half of the text are the content: an index
        most = _MOST_LINKS_OF_PARAGRAPH if block.tag in _LEAVES else _MOST_LINKS
        block.dropped |= block.links > most * block.text


def _drop_lone_headings(root: _Block) -> None:
    """Drop the headings of dropped blocks."""
    for block in root.collect_remaining():
        if not block.children:
            continue
        heading: _Block | None = None
        emptied = False
        for child in [*block.children, None]:
            if child is None or child.tag in _HEADINGS:
                if heading is not None and emptied:
                    heading.dropped = True
                heading, emptied = child, False
            elif child.dropped:
                emptied = heading is not None
            elif child.text:
                heading = None


def _keep_title(root: _Block) -> None:
    """Keep the heading of level 1 before the content, without its siblings."""
    title = _title(root)
    if title is None:
        return
    path = [title, *title.ancestors()]
    dropped = [block.dropped for block in path]
    if not any(dropped):
        return
    highest = len(path) - 1 - dropped[::-1].index(True)
    for inner, outer in pairwise(path[: highest + 1]):
        for child in outer.children:
            child.dropped |= child is not inner
    for block in path:
        block.dropped = False


def _title(root: _Block) -> _Block | None:
    """Return the last heading of level 1 before the content's text."""
    title: _Block | None = None
    pending = [(root, False)] if root.has_title else []
    while pending:
        block, dropped = pending.pop()
        dropped |= block.dropped
        if block.tag == "h1" and block.text:
            title = block
        if title is not None and block.own_text and not dropped:
            break
        pending.extend((child, dropped) for child in reversed(block.children))
    return title
