"""The reading order of boxes on a slide."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

Edges = tuple[int, int, int, int]
"""Left, top, right and bottom."""

_T = TypeVar("_T")


def order_boxes(items: Sequence[_T], read_edges: Callable[[_T], Edges | None]) -> list[_T]:
    """Return items in reading order: from top to bottom, and columns one after the other.

    Rows of a grid that are further apart than its columns are read row by row.

    Items without a place follow the others, in their order.
    """
    placed = [(edges, item) for item in items if (edges := read_edges(item)) is not None]
    return [*_order(placed), *(item for item in items if read_edges(item) is None)]


def _order(placed: Sequence[tuple[Edges, _T]]) -> list[_T]:
    reading_order: list[_T] = []
    pending = [placed]
    while pending:
        rows = _split(pending.pop(), 1)
        block = _find_columns(rows)
        if block is None:
            reading_order += (
                item for row in rows for _, item in sorted(row, key=lambda each: (each[0][1], each[0][0]))
            )
            continue
        first, end, columns = block
        if cuts := _find_row_cuts(rows[first:end], columns):
            bounds = [0, *(first + cut for cut in cuts), len(rows)]
            parts = [_join(rows[start:stop]) for start, stop in pairwise(bounds)]
        else:
            parts = [_join(rows[:first]), *columns, _join(rows[end:])]
        pending += filter(None, reversed(parts))
    return reading_order


def _join(rows: Sequence[Sequence[tuple[Edges, _T]]]) -> list[tuple[Edges, _T]]:
    return [each for row in rows for each in row]


def _find_columns(
    rows: Sequence[Sequence[tuple[Edges, _T]]],
) -> tuple[int, int, list[list[tuple[Edges, _T]]]] | None:
    """Return the most rows that have columns in common, half open, and the columns."""
    first = count = 0
    for start in range(len(rows)):
        ranges: list[tuple[int, int]] = []
        for end in range(start + 1, len(rows) + 1):
            ranges = _cover(ranges, rows[end - 1])
            if len(ranges) > 1 and end - start > count:
                first, count = start, end - start
        if count >= len(rows) - start - 1:
            break
    columns = _split(_join(rows[first : first + count]), 0)
    return (first, first + count, columns) if len(columns) > 1 else None


def _cover(ranges: Sequence[tuple[int, int]], row: Sequence[tuple[Edges, _T]]) -> list[tuple[int, int]]:
    """Return the ranges from left to right, joined with those of another row."""
    union: list[tuple[int, int]] = []
    for left, right in sorted([*ranges, *((edges[0], edges[2]) for edges, _ in row)]):
        if union and left < union[-1][1]:
            union[-1] = union[-1][0], max(right, union[-1][1])
        else:
            union.append((left, right))
    return union


def _find_row_cuts(
    rows: Sequence[Sequence[tuple[Edges, _T]]], columns: Sequence[Sequence[tuple[Edges, _T]]]
) -> list[int]:
    """Return before which rows the widest gaps are, where they are wider than those between columns."""
    gaps = _measure_gaps(rows, 1)
    widest = max(gaps, default=0)
    is_wider = widest > max(_measure_gaps(columns, 0))
    return [number for number, gap in enumerate(gaps, start=1) if is_wider and gap == widest]


def _measure_gaps(groups: Sequence[Sequence[tuple[Edges, _T]]], axis: int) -> list[int]:
    starts = [min(edges[axis] for edges, _ in group) for group in groups]
    ends = [max(edges[axis + 2] for edges, _ in group) for group in groups]
    return [start - end for end, start in zip(ends, starts[1:], strict=False)]


def _split(placed: Sequence[tuple[Edges, _T]], axis: int) -> list[list[tuple[Edges, _T]]]:
    """Return the groups of items that do not overlap along an axis."""
    groups: list[list[tuple[Edges, _T]]] = []
    end = 0
    for each in sorted(placed, key=lambda each: each[0][axis]):
        start, each_end = each[0][axis], each[0][axis + 2]
        if groups and start < end:
            groups[-1].append(each)
            end = max(end, each_end)
        else:
            groups.append([each])
            end = each_end
    return groups
