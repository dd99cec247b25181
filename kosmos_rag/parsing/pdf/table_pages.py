"""Tables of a PDF that continue on the next page."""

from collections.abc import Sequence
from dataclasses import replace

from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.pdf.cells import FoundTable, is_value
from kosmos_rag.parsing.pdf.page_lines import PageLines, Paragraph
from kosmos_rag.parsing.tables.headers import find_header
from kosmos_rag.parsing.tables.table import Table, render


def render_table(found_table: FoundTable, limits: OutputLimits, *, is_continued: bool = False) -> Paragraph:
    """Return the paragraph of a table.

    The column names of a continued table are on the page before; they are context, not text.

    Args:
        found_table: the table and its place.
        limits: limits of its text.
        is_continued: whether it continues a table of the page before.
    """
    rendered = render(found_table.table, limits)
    if is_continued:
        rendered = replace(rendered, text=rendered.text[rendered.body :], body=0)
    return Paragraph(lines=[], verbatim=rendered.text, table=rendered, found_table=found_table, box=found_table.box)


def continue_tables(pages: Sequence[PageLines], limits: OutputLimits) -> None:
    """Give the names of its columns to a table that continues on the next page."""
    before: FoundTable | None = None
    for page in pages:
        first = page.items[0] if page.items else None
        if before and isinstance(first, Paragraph) and first.found_table:
            table = continue_table(before, first.found_table)
            if table is not None:
                page.items[0] = render_table(first.found_table._replace(table=table), limits, is_continued=True)
        last = page.items[-1] if page.items else None
        before = last.found_table if isinstance(last, Paragraph) else None


def continue_table(before: FoundTable, found_table: FoundTable) -> Table | None:
    """Return a table with the header of the one that it continues.

    The result is None if its columns are others, or if it has names of its own.
    """
    above, below = before.columns, found_table.columns
    if len(above) != len(below) or len(before.table.rows[0]) != len(found_table.table.rows[0]):
        return None
    if not all(
        start < other_end and other_start < end
        for (start, end), (other_start, other_end) in zip(above, below, strict=True)
    ):
        return None
    header = find_header(before.table.rows, before.table.spans)
    count = before.table.header_rows
    if count is None:
        count = header.count if header.first == 0 else 0
    names = before.table.rows[:count]
    if not names or found_table.table.header_rows or list(found_table.table.rows[:count]) == list(names):
        return None
    if _has_names_above_numbers(found_table.table):
        return None
    spans = {at: columns for at, columns in before.table.spans.items() if at[0] < count}
    spans |= {(row + count, column): columns for (row, column), columns in found_table.table.spans.items()}
    return Table(rows=[*names, *found_table.table.rows], spans=spans, header_rows=count)


def _has_names_above_numbers(table: Table) -> bool:
    """Return whether the first row has a word above a column of numbers."""
    first, *others = table.rows
    return any(
        name
        and not is_value(name)
        and others
        and all(is_value(row[column]) for row in others if row[column])
        and any(row[column] for row in others)
        for column, name in enumerate(first)
    )
