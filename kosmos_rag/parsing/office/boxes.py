"""The reading order of boxes on a slide."""

from collections.abc import Callable, Sequence
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
    rows = _split(placed, 1)
    block = _find_columns(rows)
    if block is None:
        return [item for row in rows for _, item in sorted(row, key=lambda each: (each[0][1], each[0][0]))]
    first, end, columns = block
    if cut := _find_row_cut(rows[first:end], columns):
        upper, lower = rows[: first + cut], rows[first + cut :]
        return [item for part in (upper, lower) for item in _order([each for row in part for each in row])]
    above = [each for row in rows[:first] for each in row]
    below = [each for row in rows[end:] for each in row]
    return [*_order(above), *(item for column in columns for item in _order(column)), *_order(below)]


def _find_columns(
    rows: Sequence[Sequence[tuple[Edges, _T]]],
) -> tuple[int, int, list[list[tuple[Edges, _T]]]] | None:
    """Return the most rows that have columns in common, half open, and the columns."""
    for count in range(len(rows), 0, -1):
        for first in range(len(rows) - count + 1):
            columns = _split([each for row in rows[first : first + count] for each in row], 0)
            if len(columns) > 1:
                return first, first + count, columns
    return None


def _find_row_cut(
    rows: Sequence[Sequence[tuple[Edges, _T]]], columns: Sequence[Sequence[tuple[Edges, _T]]]
) -> int | None:
    """Return before which row the widest gap is, where it is wider than those between columns."""
    gaps = _measure_gaps(rows, 1)
    widest = max(gaps, default=0)
    return gaps.index(widest) + 1 if widest > max(_measure_gaps(columns, 0)) else None


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
