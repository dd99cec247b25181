"""Join the lines of the rows of a PDF table, and of its names of columns."""

from collections.abc import Sequence
from itertools import pairwise

from kosmos_rag.parsing.pdf import cells
from kosmos_rag.parsing.pdf.cells import is_value
from kosmos_rag.parsing.pdf.lines import join_text


def join_groups(groups: Sequence[Sequence[cells.Row]]) -> list[cells.Row]:
    """Join the lines of each row.

    Those between two ruled lines that are near, where most rows are ruled.
    """
    if len(groups) < cells.LEAST_ROWS or max(map(len, groups[1:])) > 3:
        return [row for group in groups for row in cells.join_continued(group)]
    joined = cells.join_continued(groups[0])
    for group in groups[1:]:
        joined.append(group[0])
        for above, row in pairwise(group):
            if above.baseline - row.baseline <= cells.LEADING * _size(row):
                joined[-1] = cells.merge_rows([joined[-1], row])
            else:
                joined.append(row)
    return joined


def join_names(rows: Sequence[cells.Row], *, alone: bool) -> list[cells.Row]:
    """Join the lines of the names of columns above the first row with a number.

    Args:
        rows: the first rows of a table.
        alone: whether they may be names without a row below them.
    """
    joined: list[cells.Row] = []
    for index, row in enumerate(rows):
        if any(is_value(join_text(runs)) for runs in row.cells.values()):
            return [*joined, *rows[index:]]
        if joined and _continue_downwards(joined[-1], row):
            joined[-1] = cells.merge_rows([joined[-1], row])
        else:
            joined.append(row)
    return joined if alone else list(rows)


def _continue_downwards(above: cells.Row, row: cells.Row) -> bool:
    """Return whether each cell of a row continues in the cell below it."""
    return all(
        column in row.cells
        and min(run.baseline for run in runs) - max(run.baseline for run in row.cells[column])
        <= cells.LEADING * _size(row)
        for column, runs in above.cells.items()
    )


def _size(row: cells.Row) -> float:
    return max(run.size for runs in row.cells.values() for run in runs)
