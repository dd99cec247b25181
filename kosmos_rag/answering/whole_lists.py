"""Complete selected units.

Lists, steps and tables are quoted whole, items and code with the sentence that introduces them, nested items with the
items around them.
"""

import re
from collections.abc import Sequence
from itertools import takewhile

from kosmos_rag.answering.evidence import Evidence
from kosmos_rag.answering.units import COLONS

_OF_SERIES = ("item", "row")
"""Kinds of units that follow others of their kind: lists and tables."""
_BETWEEN_ITEMS = " \t\n>"
"""Blank lines, also of a block quote."""
_LABEL = re.compile(r"\*\*[^*\n]+\*\*(?:\s*\([^()\n]*\))?")
"""A line in bold, as of a definition."""
_DIGIT = re.compile(r"\d")
"""A title with a value says something without what follows."""


def complete(
    selected: Sequence[Evidence], evidence: Sequence[Evidence], candidates: Sequence[Evidence], lowest: float
) -> list[Evidence]:
    """Return the selected units with what belongs to them, each once.

    An item or code comes after the title or label before it, or the sentence that ends with a colon, and these with
    the unit after them. A list or table comes whole, in its order, where that sentence is selected, or at least half of
    its items or all of its rows could be.

    Args:
        selected: The units of an answer.
        evidence: All units, in the order of their passages.
        candidates: Those that may be quoted.
        lowest: Score from which a unit could be selected.
    """
    neighbours = _Neighbours(evidence)
    allowed = {_key(item) for item in candidates}
    completed: dict[tuple[int, int], Evidence] = {}
    for item in selected:
        for unit in neighbours.group(item, lowest):
            if _key(unit) in allowed:
                completed.setdefault(_key(unit), unit)
    return list(completed.values())


def introduces(item: Evidence, following: Evidence) -> bool:
    """Return whether a title, a label, or a text with a colon introduces another unit."""
    text, title = item.unit.text, following.unit.heading
    if title and text.endswith(title) and not _DIGIT.search(title):
        return following.passage is item.passage
    is_introduction = text.endswith(COLONS) or _LABEL.fullmatch(text) is not None
    return item.unit.kind in ("sentence", "item") and is_introduction and following.passage is item.passage


def _key(item: Evidence) -> tuple[int, int]:
    """Return what identifies a unit, alone or together with the sentence before it."""
    return item.passage.citation.index, item.unit.end


def _indent(item: Evidence) -> int:
    start = item.unit.start
    return start - item.passage.text.rfind("\n", 0, start) - 1


class _Neighbours:
    """Finds the units around one."""

    def __init__(self, evidence: Sequence[Evidence]) -> None:
        self._evidence = evidence
        self._at = {_key(item): at for at, item in enumerate(evidence)}

    def group(self, item: Evidence, lowest: float) -> list[Evidence]:
        """Return the unit with those that belong to it, in their order."""
        at = self._at[_key(item)]
        if item.unit.kind in _OF_SERIES and not self._is_title(at):
            first, last = self._list_bounds(at)
            items = self._evidence[first:last]
            good = sum(other.score >= lowest for other in items)
            # Half of the items ask for the list; a row is a fact of its own, and only all of them are in order.
            is_whole = last - first > 1 and (2 * good if item.unit.kind == "item" else good) >= last - first
            alone = [*self._items_around(first, at), item, *self._items_within(at, last)]
            return [*self._introduction(first), *(items if is_whole else alone)]
        # Before a sentence it would come first, and say nothing.
        introduction = self._introduction(at) if item.unit.kind == "code" else ()
        return [*introduction, item, *self._introduced(at)]

    def _introduced(self, at: int) -> Sequence[Evidence]:
        """Return the list or the other unit that the sentence introduces."""
        if not self._introduces(at):
            return ()
        following = self._evidence[at + 1]
        return self._evidence[slice(*self._list_bounds(at + 1))] if following.unit.kind in _OF_SERIES else [following]

    def _introduction(self, at: int) -> Sequence[Evidence]:
        """Return the unit that introduces this one.

        One above the title of this one introduces all of its section.
        """
        if not at or not self._introduces(at - 1):
            return ()
        before, title = self._evidence[at - 1], self._evidence[at].unit.heading
        return [before] if before.unit.text.endswith(title) or title.startswith(before.unit.heading) else ()

    def _items_around(self, first: int, at: int) -> Sequence[Evidence]:
        """Return the items in which an item is nested, the outermost first.

        Args:
            first: Index of the first item of the list.
            at: Index of the nested item.
        """
        around: list[Evidence] = []
        indent = _indent(self._evidence[at])
        for before in reversed(self._evidence[first:at]):
            # A passage that begins within a list has lost the indent of its first item; a colon introduces others.
            if (before.unit.start or before.unit.text.endswith(COLONS)) and _indent(before) < indent:
                indent = _indent(before)
                around.insert(0, before)
        return around

    def _items_within(self, at: int, last: int) -> Sequence[Evidence]:
        """Return the items that an item introduces.

        Args:
            at: Index of the item.
            last: Index after the last item of the list.
        """
        if not self._introduces(at):
            return ()
        indent = _indent(self._evidence[at])
        return list(takewhile(lambda item: _indent(item) > indent, self._evidence[at + 1 : last]))

    def _is_title(self, at: int) -> bool:
        """Return whether an item or row is the title of what follows."""
        return self._introduces(at) and self._evidence[at + 1].unit.kind not in _OF_SERIES

    def _introduces(self, at: int) -> bool:
        following = self._evidence[at + 1 : at + 2]
        return bool(following) and introduces(self._evidence[at], following[0])

    def _list_bounds(self, at: int) -> tuple[int, int]:
        """Return the first index of the list around an item, and the one after it."""
        first, last = at, at + 1
        while first and self._are_neighbours(first - 1, first):
            first -= 1
        while last < len(self._evidence) and self._are_neighbours(last - 1, last):
            last += 1
        return first, last

    def _are_neighbours(self, first: int, second: int) -> bool:
        before, after = self._evidence[first], self._evidence[second]
        return (
            before.passage is after.passage
            and before.unit.kind == after.unit.kind
            and not before.passage.text[before.unit.end : after.unit.start].strip(_BETWEEN_ITEMS)
        )
