"""Read the tables of HTML, with merged cells, headers and captions.

Tables that only arrange the page are recognised; their rows are no rows of data.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.tables.builder import Cell, TableBuilder, shorten_repetition
from kosmos_rag.parsing.tables.table import Table

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_LAYOUT = 'table[role="presentation" i], table[role="none" i]'
_HEADINGS_INSIDE = ", ".join(f"table h{level}" for level in range(1, 7))
_GROUPS = {"thead": 0, "tbody": 1, "tr": 1, "tfoot": 2}
"""Order of the parts of a table; `tfoot` may precede `tbody` in the source."""
_CELLS = frozenset({"td", "th"})
_INTEGER = re.compile(r"\s*(\d{1,9})")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    cells: "list[LexborNode]"
    group: int
    in_head: bool

    @property
    def is_header(self) -> bool:
        """Whether it is in the table's head or has only header cells.

        The first cell may be blank instead.
        """
        first, *others = self.cells
        return self.in_head or (
            all(cell.tag == "th" for cell in others)
            and (first.tag == "th" or (bool(others) and not first.text(strip=True)))
        )

    @property
    def names_itself(self) -> bool:
        """Whether its first cell alone is a header cell."""
        return len(self.cells) > 1 and [cell.tag for cell in self.cells[:2]] == ["th", "td"]


class TableReader:
    """Reads the visible tables of a page."""

    def __init__(self, tree: "LexborHTMLParser", is_visible: "Callable[[LexborNode], bool]") -> None:
        self._layout = {table.mem_id for table in tree.css(_LAYOUT)} | _find_tables_with_headings(tree)
        self._is_visible = is_visible
        self._labels: dict[int, tuple[int, str]] = {}
        """The first cell with a text, and the text, by row: a row may have thousands of tables."""

    def is_data(self, table: "LexborNode") -> bool:
        """Return whether a table contains data.

        Other tables only arrange the page.

        The latter says so, has headings inside, a single column, or tables inside but neither header cells nor a
        caption.
        """
        return self._has_data(table, list(self._rows(table)))

    def _has_data(self, table: "LexborNode", rows: list[_Row]) -> bool:
        if table.mem_id in self._layout or max((len(row.cells) for row in rows), default=0) < 2:
            return False
        if any(cell.tag == "th" for row in rows for cell in row.cells) or self._caption(table) is not None:
            return True
        return not _has_tables(table)

    def read(self, table: "LexborNode", read_text: "Callable[[LexborNode], str]", *, label: str = "") -> Table | None:
        """Read a table of data; return None for another.

        Args:
            read_text: reads a cell or the caption on one line.
            label: the caption of a table without one.
        """
        rows = list(self._rows(table))
        if not self._has_data(table, rows):
            return None
        builder = TableBuilder()
        for number, row in enumerate(rows):
            if number and row.group != rows[number - 1].group:
                builder.end_group()
            builder.add_row(_cell(cell, read_text) for cell in row.cells)
        header_rows, header_columns = _header(rows)
        caption = self._caption(table)
        return builder.build(
            header_rows=header_rows, header_columns=header_columns, caption=read_text(caption) if caption else label
        )

    def find_inner_tables(self, table: "LexborNode") -> "Iterator[LexborNode]":
        """Yield the outermost tables of data inside a table."""
        pending = [table.first_child] if _has_tables(table) else []
        while pending:
            node = pending.pop()
            while node is not None:
                if node.tag == "table" and self.is_data(node):
                    yield node
                elif node.first_child is not None:
                    pending.append(node.next)
                    node = node.first_child
                    continue
                node = node.next

    def label(self, inner: "LexborNode", read_text: "Callable[[LexborNode], str]") -> str:
        """Return the first text of the row whose cell has a table.

        It is empty if that text is in the same cell.
        """
        cell, row = inner, inner.parent
        while row is not None and row.tag != "tr":
            cell, row = row, row.parent
        if row is None:
            return ""
        if row.mem_id not in self._labels:
            texts = ((other.mem_id, read_text(other)) for other in row.iter() if other.tag in _CELLS)
            self._labels[row.mem_id] = next(((node, text) for node, text in texts if text), (0, ""))
        node, text = self._labels[row.mem_id]
        return "" if node == cell.mem_id else shorten_repetition(text)

    def _caption(self, table: "LexborNode") -> "LexborNode | None":
        return next((child for child in table.iter() if child.tag == "caption" and self._is_visible(child)), None)

    def _rows(self, table: "LexborNode") -> Iterator[_Row]:
        groups = [child for child in table.iter() if child.tag in _GROUPS and self._is_visible(child)]
        groups.sort(key=lambda group: _GROUPS[group.tag or ""])
        for number, group in enumerate(groups):
            for row in [group] if group.tag == "tr" else group.iter():
                cells = [cell for cell in row.iter() if cell.tag in _CELLS and self._is_visible(cell)]
                if row.tag == "tr" and cells and self._is_visible(row):
                    yield _Row(cells=cells, group=number, in_head=group.tag == "thead")


def _find_tables_with_headings(tree: "LexborHTMLParser") -> set[int]:
    tables: set[int] = set()
    visited: set[int] = set()
    for heading in tree.css(_HEADINGS_INSIDE):
        node = heading.parent
        while node is not None and node.mem_id not in visited:
            visited.add(node.mem_id)
            if node.tag == "table":
                tables.add(node.mem_id)
            node = node.parent
    return tables


def _has_tables(table: "LexborNode") -> bool:
    return any(inside.mem_id != table.mem_id for inside in table.css("table"))


def _cell(cell: "LexborNode", read_text: "Callable[[LexborNode], str]") -> Cell:
    attributes = cell.attributes
    if not attributes:
        return Cell(text=read_text(cell))
    rows = _number(attributes.get("rowspan"))
    return Cell(
        text=read_text(cell),
        columns=_number(attributes.get("colspan")) or 1,
        # 0 means all rows below the cell in its group.
        rows=bounds.MAX_SPANNED_ROWS if rows == 0 else min(rows or 1, bounds.MAX_SPANNED_ROWS),
    )


def _number(value: str | None) -> int | None:
    match = _INTEGER.match(value or "")
    return int(match[1]) if match else None


def _header(rows: list[_Row]) -> tuple[int | None, int]:
    """Return the number of header rows and of header columns.

    The result is None for rows that are found by their cells.
    """
    count = next((number for number, row in enumerate(rows) if not row.is_header), len(rows))
    # A header row of one cell over the whole table is its title, which is found by the cells.
    if count and any(len(row.cells) > 1 for row in rows[:count]) and len(rows[0].cells) > 1:
        return count, 0
    below = [row for row in rows[count:] if len(row.cells) > 1]
    if 2 * sum(row.names_itself for row in below) > len(below):
        return count, 1
    return None, 0
