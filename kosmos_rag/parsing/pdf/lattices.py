"""Ruled lines of a PDF page that touch each other."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.pdf.graphics import NEAR, Box, Rules, unite


class Lattice(NamedTuple):
    """Ruled lines that touch each other, in both directions."""

    horizontal: list[Box]
    vertical: list[Box]
    box: Box


def find_lattices(rules: Rules) -> list[Lattice]:
    """Return the groups of ruled lines that touch, the smallest first."""
    horizontal = rules.horizontal[::-1]
    places = [rule.bottom for rule in horizontal]
    groups: dict[int, tuple[list[int], list[int]]] = {}
    """Horizontal and vertical lines of each group, by index."""
    group_of: dict[int, int] = {}
    """Group of each horizontal line."""
    for index, wall in enumerate(rules.vertical):
        near = range(bisect_left(places, wall.bottom - NEAR), bisect_right(places, wall.top + NEAR))
        touched = [at for at in near if horizontal[at].left - NEAR <= wall.left <= horizontal[at].right + NEAR]
        if not touched:
            continue
        old = {group_of[at] for at in touched if at in group_of}
        across = {at for group in old for at in groups[group][0]} | set(touched)
        down = [at for group in old for at in groups.pop(group)[1]]
        groups[index] = (sorted(across), [*down, index])
        group_of |= dict.fromkeys(across, index)
    lattices = (
        ([horizontal[at] for at in across], [rules.vertical[at] for at in sorted(down)])
        for across, down in groups.values()
    )
    united = (Lattice(across, down, unite([*across, *down])) for across, down in lattices)
    parts = (part for lattice in united for part in _cut(lattice))
    return sorted(parts, key=lambda lattice: lattice.box.width * lattice.box.height)


def _cut(lattice: Lattice) -> Iterator[Lattice]:
    """Yield the parts of a lattice: a line across it divides tables with different columns."""
    left, right = lattice.vertical[0].left + NEAR, lattice.vertical[-1].left - NEAR
    inner = [wall for wall in lattice.vertical if left < wall.left < right]
    if max(len(lattice.horizontal), len(inner)) > bounds.MAX_GRID_LINES:
        inner = []
    for rule in lattice.horizontal if inner else ():
        if rule.left > left or rule.right < right:
            continue
        below = [wall.left for wall in inner if wall.bottom < rule.bottom - NEAR]
        above = [wall.left for wall in inner if wall.top > rule.bottom + NEAR]
        if below and above and not any(_has_near(above, place) for place in below):
            box = lattice.box
            yield _clip(lattice, box._replace(top=rule.bottom))
            yield from _cut(_clip(lattice, box._replace(bottom=rule.bottom)))
            return
    yield lattice


def _has_near(places: Sequence[float], place: float) -> bool:
    at = bisect_left(places, place - NEAR)
    return at < len(places) and places[at] <= place + NEAR


def _clip(lattice: Lattice, box: Box) -> Lattice:
    """Return the lines of a lattice in a part of its height."""
    horizontal = [rule for rule in lattice.horizontal if box.bottom - NEAR <= rule.bottom <= box.top + NEAR]
    vertical = [
        wall._replace(bottom=max(wall.bottom, box.bottom), top=min(wall.top, box.top))
        for wall in lattice.vertical
        if wall.bottom < box.top - NEAR and wall.top > box.bottom + NEAR
    ]
    return Lattice(horizontal, vertical, box)
