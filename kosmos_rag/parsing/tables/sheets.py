"""Divide the cells of a sheet into tables and texts.

Blank rows and columns separate them.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from kosmos_rag.core.types.places import cell_range
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.tables.forms import find_bold_names, split_labels
from kosmos_rag.parsing.tables.headers import NO_SPANS, Rows, Spans, find_header, is_label
from kosmos_rag.parsing.tables.table import Table

_NOTE = re.compile(r"\W*(?:source|note|quelle|anmerkung|hinweis)s?\b|[*†]", re.IGNORECASE)
"""Begins a text that belongs to what is above it."""


_RowSpans = Mapping[int, Sequence[tuple[int, int]]]
"""Column and number of columns of each merged cell, by row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SheetText:
    """A text of a sheet: each row is a line."""

    text: str
    row: int
    """Of its first line."""
    column: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """A comment on a cell, or a text box at it."""

    text: str
    row: int
    """Number in the file, from 1; 0 for a text box that is at no cell."""
    column: int

    @property
    def cells(self) -> str | None:
        """The cell, such as `B12`."""
        return cell_range(self.row, self.column, self.row, self.column) if self.row and self.column else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """The cells of a sheet, and their numbers in the file."""

    rows: Rows
    """Texts by row and column."""
    spans: Spans = field(default_factory=dict)
    """Number of columns of a merged cell, by row and column."""
    bold: Collection[tuple[int, int]] = frozenset()
    """Row and column of cells in bold letters."""
    name: str | None = None
    row_numbers: Sequence[int] | None = None
    """Number of each row in the file, from 1; None where no row is left out."""
    column_numbers: Sequence[int] | None = None
    """Number of each column in the file, from 1; None where no column is left out."""
    remarks: Sequence[Remark] = ()

    def format_cells(self, part: Table | SheetText, lines: tuple[int, int]) -> str | None:
        """Return the cells of some rows, such as `B12:D12`.

        The result is None where they are empty.

        Args:
            lines: rows of the part, half open.
        """
        if isinstance(part, SheetText):
            (first, last), left, right = lines, part.column, part.column
            top, bottom = part.row + first, part.row + last - 1
        else:
            filled = [
                (row, column, column + part.spans.get((row, column), 1) - 1)
                for row in range(*lines)
                for column, cell in enumerate(part.rows[row])
                if cell
            ]
            if not filled or part.position is None:
                return None
            row, column = part.position
            top, bottom = row + filled[0][0], row + filled[-1][0]
            left, right = column + min(cell[1] for cell in filled), column + max(cell[2] for cell in filled)
        numbers, columns = self.row_numbers, self.column_numbers
        return cell_range(
            numbers[top] if numbers else top + 1,
            _number(columns, left),
            numbers[bottom] if numbers else bottom + 1,
            _number(columns, right),
        )


def _number(numbers: Sequence[int] | None, index: int) -> int:
    return index + 1 if numbers is None or index >= len(numbers) else numbers[index]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """A rectangle of the sheet."""

    top: int
    left: int
    width: int
    rows: Rows
    """Of the columns from `left` on; a row may be shorter than the block."""

    def columns(self, start: int, end: int) -> "_Block":
        """Return the block of some of its columns."""
        rows = self.rows if start == 0 and end == self.width else [row[start:end] for row in self.rows]
        return _Block(top=self.top, left=self.left + start, width=end - start, rows=rows)

    def spans(self, spans: _RowSpans) -> Spans:
        """Return the spans of its cells, by its own rows and columns."""
        if not spans:
            return NO_SPANS
        return {
            (index, column - self.left): min(width, self.left + self.width - column)
            for index in range(len(self.rows))
            for column, width in spans.get(self.top + index, ())
            if self.left <= column < self.left + self.width
        }


def split_sheet(sheet: Sheet) -> Iterator[Table | SheetText]:
    """Yield the tables of a sheet and the texts between them.

    They are ordered from top to bottom and left to right.

    A short text above a table is its caption. A block without a header, below a table and in its columns, continues it.
    """
    by_row: dict[int, list[tuple[int, int]]] = {}
    for (row, column), width in sheet.spans.items():
        by_row.setdefault(row, []).append((column, width))
    text: SheetText | None = None
    width = max(map(len, sheet.rows), default=0)
    for block in _join_continued(_blocks(sheet.rows, by_row), by_row):
        if block.width > 1:
            is_caption = text is not None and len(text.text) <= bounds.MAX_TITLE_CHARS and not _NOTE.match(text.text)
            yield from [text] if text and not is_caption else []
            parts = _table_parts(block, by_row, text.text if text and is_caption else "")
            is_whole = (block.width, len(block.rows)) == (width, len(sheet.rows))
            for part in parts:
                # A CSV file is no form.
                if isinstance(part, Table) and sheet.name is not None:
                    yield from split_labels(_name_by_letters(part, sheet), is_whole=is_whole)
                else:
                    yield part
            text = None
        else:
            yield from [text] if text else []
            text = _text(block)
    yield from [text] if text else []


def _name_by_letters(table: Table, sheet: Sheet) -> Table:
    """Return a table with what bold letters show of its names."""
    if not sheet.bold or table.position is None:
        return table
    top, left = table.position
    bold = [
        [(top + number, left + column) in sheet.bold for column, cell in enumerate(row) if cell]
        for number, row in enumerate(table.rows)
    ]
    header_rows, has_labels = find_bold_names(table.rows, table.spans, bold)
    return replace(table, header_rows=header_rows, has_labels=has_labels)


def _text(block: _Block) -> SheetText:
    return SheetText(text="\n".join(row[0] for row in block.rows), row=block.top, column=block.left)


def _blocks(rows: Rows, spans: _RowSpans) -> Iterator[_Block]:
    """Split along blank rows and blank columns in turn.

    It ends when there are none.
    """
    pending = [_Block(top=0, left=0, width=max(map(len, rows), default=0), rows=rows)]
    while pending:
        block = pending.pop()
        parts = _cut_rows(block)
        if len(parts) == 1:
            parts = _cut_columns(parts[0], spans)
            if len(parts) == 1:
                yield parts[0]
                continue
        pending += reversed(parts)


def _cut_rows(block: _Block) -> list[_Block]:
    bands = []
    at = 0
    for filled, group in groupby(map(any, block.rows)):
        end = at + sum(1 for _ in group)
        if filled:
            rows = block.rows if end - at == len(block.rows) else block.rows[at:end]
            bands.append(replace(block, top=block.top + at, rows=rows))
        at = end
    return bands


def _cut_columns(block: _Block, spans: _RowSpans) -> list[_Block]:
    """Split along blank columns if both sides can be tables.

    No side begins or ends with a blank column.
    """
    columns = sorted(_find_used_columns(block, spans))
    groups = [[columns[0], columns[0] + 1]]
    for column in columns[1:]:
        if column > groups[-1][1]:
            groups.append([column, column])
        groups[-1][1] = column + 1
    parts = [block.columns(*groups[0])]
    for start, end in groups[1:]:
        last, part = parts[-1], block.columns(start, end)
        is_far = start - last.width - last.left + block.left > 1
        if _are_apart(last, part) or (is_far and _is_list(last, part)):
            parts.append(part)
        else:
            parts[-1] = block.columns(last.left - block.left, end)
    return parts


def _find_used_columns(block: _Block, spans: _RowSpans) -> set[int]:
    columns: set[int] = set()
    for row in block.rows:
        if len(columns) == block.width:
            break
        columns.update(column for column, cell in enumerate(row) if cell)
    for (index, column), width in block.spans(spans).items():
        if sum(map(bool, block.rows[index])) > 1:  # a title may cover several tables
            columns.update(range(column, column + width))
    return columns


def _is_list(left: _Block, right: _Block) -> bool:
    """Return whether a column of words next to a table is a list of its own.

    Its rows are not those of the table.
    """
    rows = {index for index, row in enumerate(right.rows) if any(row)}
    is_other = rows != {index for index, row in enumerate(left.rows) if any(row)}
    is_one_list = right.width == 1 < left.width and len(rows) == max(rows, default=0) - min(rows, default=0) + 1
    return is_one_list and is_other and all(is_label(right.rows[index][0]) for index in rows)


def _are_apart(left: _Block, right: _Block) -> bool:
    """Return whether the sides of a blank column are separate tables.

    A table may have a blank column as a separator; then the right side has no labels, and as many rows.
    """
    if left.width == 1 or right.width == 1:
        return False
    labels = [row[0] for row in right.rows[1 : bounds.SAMPLE_ROWS] if row and row[0]]
    if labels and 2 * sum(map(is_label, labels)) > len(labels):
        return True
    heights = sorted(sum(map(any, part.rows)) for part in (left, right))
    return 4 * heights[0] < 3 * heights[1]


def _join_continued(blocks: Iterator[_Block], spans: _RowSpans) -> Iterator[_Block]:
    """Join blocks of values to the table above them.

    The table must have a header, or consist only of one.
    """
    table: _Block | None = None
    rows: list[Sequence[str]] = []
    is_open = False
    for block in blocks:
        if table and is_open and _is_below(table, len(rows), block) and _has_values(block, spans):
            is_header = len(rows) == 1
            rows += [()] * (block.top - table.top - len(rows))
            padding = [""] * (block.left - table.left)
            rows += ([*padding, *row] for row in block.rows)
            is_open = not is_header or _has_header(replace(table, rows=rows), spans)
            continue
        if table:
            yield replace(table, rows=rows)
        table, rows = block, [*block.rows]
        is_open = len(rows) == 1 or _has_header(block, spans)
    if table:
        yield replace(table, rows=rows)


def _is_below(table: _Block, height: int, block: _Block) -> bool:
    """Return whether a block is below a table, within its columns."""
    is_inside = table.left <= block.left and block.left + block.width <= table.left + table.width
    return min(table.width, block.width) > 1 and is_inside and block.top >= table.top + height


def _has_header(block: _Block, spans: _RowSpans) -> bool:
    first = replace(block, rows=block.rows[: bounds.SAMPLE_ROWS])
    return find_header(first.rows, first.spans(spans)).count > 0


def _has_values(block: _Block, spans: _RowSpans) -> bool:
    """Return whether a block has no header and no row names."""
    first = replace(block, rows=block.rows[: bounds.SAMPLE_ROWS])
    header = find_header(first.rows, first.spans(spans))
    return not header.count and not header.columns


def _table_parts(block: _Block, spans: _RowSpans, caption: str) -> Iterator[Table | SheetText]:
    """Yield a table and the notes in its last rows.

    In a row with a note only the first column has text.
    """
    end = len(block.rows)
    while end and block.rows[end - 1][0] and not any(block.rows[end - 1][1:]):
        if block.width == 2 and not _NOTE.match(block.rows[end - 1][0]):
            break  # a value may be missing
        end -= 1
    if end < 2:
        end = len(block.rows)
    yield Table(rows=block.rows[:end], spans=block.spans(spans), caption=caption, position=(block.top, block.left))
    if end < len(block.rows):
        yield _text(replace(block, top=block.top + end, rows=block.rows[end:]))
