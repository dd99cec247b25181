"""Write generated tables as files of each format."""

import csv
import html
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import docx
import openpyxl
import pptx
from openpyxl.utils import get_column_letter

from benchmarks.table_data import Case, Item, KnownTable

Placed = tuple[int, int, Item]
"""Row, column, cell."""


def _place(rows: Sequence[Sequence[Item]]) -> Iterator[Placed]:
    """Yield the cells with the places that merged cells leave them."""
    covered: set[tuple[int, int]] = set()
    for row, items in enumerate(rows):
        column = 0
        for item in items:
            while (row, column) in covered:
                column += 1
            covered.update((row + y, column + x) for y in range(item.rows) for x in range(item.columns))
            yield row, column, item
            column += item.columns


def _sheet(case: Case) -> Iterator[Placed]:
    """Yield all cells of the case on one sheet."""
    top, left = case.offset
    for table in case.tables:
        lines = [*([Item(text=text)] for text in table.titles), *table.header, *table.body]
        placed = list(_place([*lines, *([Item(text=text)] for text in table.notes)]))
        yield from ((top + row, left + column, item) for row, column, item in placed)
        if case.side_by_side:
            left += max(column + item.columns for _, column, item in placed) + 1
        else:
            top += len(lines) + len(table.notes) + 1


def write_xlsx(case: Case) -> bytes:
    """Write a workbook."""
    workbook = openpyxl.Workbook()
    sheet: Any = workbook.active
    for row, column, item in _sheet(case):
        cell = sheet.cell(row + 1, column + 1, item.text if item.raw is None else item.raw)
        cell.number_format = item.code
        if item.columns * item.rows > 1:
            last = f"{get_column_letter(column + item.columns)}{row + item.rows}"
            sheet.merge_cells(f"{cell.coordinate}:{last}")
    return _save(workbook)


def write_csv(case: Case) -> bytes:
    """Write separated values."""
    placed = list(_sheet(case))
    width = 1 + max(column for _, column, _ in placed)
    rows = [[""] * width for _ in range(1 + max(row for row, _, _ in placed))]
    for row, column, item in placed:
        rows[row][column] = item.text
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


def write_html(case: Case) -> bytes:
    """Write a page; every second table is marked up with `thead` and a caption."""
    parts = ["<!doctype html><html><body><p>Some words before the tables of this page.</p>"]
    for number, table in enumerate(case.tables):
        marked = number % 2 == 0
        caption = f"<caption>{html.escape(' '.join(table.titles))}</caption>" if marked and table.titles else ""
        parts += [] if marked else [f"<p>{html.escape(text)}</p>" for text in table.titles]
        header = "".join(f"<tr>{''.join(_html_cell(item, header=True) for item in row)}</tr>" for row in table.header)
        body = "".join(f"<tr>{_html_row(table, row)}</tr>" for row in table.body)
        parts.append(f"<table>{caption}{f'<thead>{header}</thead>' if marked and header else header}{body}</table>")
        parts += [f"<p>{html.escape(text)}</p>" for text in table.notes]
    return "\n".join(parts).encode()


def _html_row(table: KnownTable, row: Sequence[Item]) -> str:
    return "".join(_html_cell(item, header=table.row_headers and not number) for number, item in enumerate(row))


def _html_cell(item: Item, *, header: bool) -> str:
    tag = "th" if header else "td"
    spans = f' colspan="{item.columns}"' if item.columns > 1 else ""
    spans += f' rowspan="{item.rows}"' if item.rows > 1 else ""
    return f"<{tag}{spans}>{html.escape(item.text)}</{tag}>"


def _fill(table: KnownTable, add: Callable[[int, int], Any]) -> None:
    """Fill a table of python-docx or python-pptx, which `add` creates."""
    placed = list(_place([*table.header, *table.body]))
    height = len(table.header) + len(table.body)
    grid = add(height, max(column + item.columns for _, column, item in placed))
    for row, column, item in placed:
        cell = grid.cell(row, column)
        if item.columns * item.rows > 1:
            cell.merge(grid.cell(row + item.rows - 1, column + item.columns - 1))
        cell.text = item.text


def write_docx(case: Case) -> bytes:
    """Write a Word document."""
    document = docx.Document()
    document.add_paragraph("Some words before the tables of this document.")
    for table in case.tables:
        for text in table.titles:
            document.add_paragraph(text, style="Caption")
        _fill(table, document.add_table)
        for text in table.notes or [""]:
            document.add_paragraph(text)
    return _save(document)


def write_pptx(case: Case) -> bytes:
    """Write a presentation, a slide for each table."""
    deck = pptx.Presentation()
    for table in case.tables:
        shapes: Any = deck.slides.add_slide(deck.slide_layouts[5]).shapes
        shapes.title.text = " ".join(table.titles) or "Table"
        _fill(table, partial(_add_table, shapes))
    return _save(deck)


def _add_table(shapes: Any, rows: int, columns: int) -> Any:
    return shapes.add_table(rows, columns, 0, 0, 900, 900).table


def write_md(case: Case) -> bytes:
    """Write pipe tables; a second header row is a row, as Markdown has one header row only."""
    parts = []
    for table in case.tables:
        (header, *others) = table.header
        lines = [[item.text for item in header], ["---"] * len(header)]
        lines += [[item.text for item in row] for row in (*others, *table.body)]
        parts += [*table.titles, "\n".join(f"| {' | '.join(line)} |" for line in lines), *table.notes]
    return "\n\n".join(parts).encode()


def _save(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


WRITERS: dict[str, Callable[[Case], bytes]] = {
    "xlsx": write_xlsx,
    "html": write_html,
    "docx": write_docx,
    "pptx": write_pptx,
    "csv": write_csv,
    "md": write_md,
}
