"""Parse XLS (Excel 97 to 2003) with xlrd.

A sheet is a section of tables and texts; a number is formatted as its cell shows it.
"""

import io
from typing import Any

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.clean import clean_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.number_format import plain, show
from kosmos_rag.parsing.tables.sheet_cells import SheetCells
from kosmos_rag.parsing.tables.table import collapse_whitespace

_GENERAL = "General"


class _NoLog(io.TextIOBase):
    """Discards the warnings that xlrd would write to standard output."""

    def write(self, text: str) -> int:
        """Write nothing."""
        return len(text)


def parse_xls(data: bytes, limits: OutputLimits, *, hidden_cells: bool = False) -> ParsedDocument:
    """Parse the sheets of a workbook.

    Formulas are the values that Excel stored last. Hidden sheets, rows and columns are left out by default.

    Args:
        hidden_cells: whether to read hidden sheets, rows and columns.

    Raises:
        ParseError: `encrypted` or `too_large`.
    """
    import xlrd

    try:
        workbook = xlrd.open_workbook(file_contents=data, formatting_info=True, logfile=_NoLog())
    except xlrd.XLRDError as error:
        if "encrypted" in str(error):
            message = "the workbook has a password; remove it and save the document again"
            raise ParseError("encrypted", message) from error
        raise
    composition = Composition(limits)
    for sheet in workbook.sheets():
        if hidden_cells or sheet.visibility == 0:
            _add_sheet(composition, workbook, sheet, hidden_cells=hidden_cells)
    return composition.build(media_types.XLS, None)


def _add_sheet(composition: Composition, workbook: Any, sheet: Any, *, hidden_cells: bool) -> None:
    if sheet.nrows * sheet.ncols > bounds.MAX_SHEET_CELLS:
        raise ParseError("too_large", f"a sheet has {sheet.nrows} rows and {sheet.ncols} columns; split the workbook")
    cells = SheetCells()
    for number in range(sheet.nrows):
        if hidden_cells or not _is_hidden(sheet.rowinfo_map.get(number)):
            cells.add_row(number + 1, [_cell_text(workbook, cell) for cell in sheet.row(number)])
    for top, bottom, left, right in sheet.merged_cells:
        cells.merge(top + 1, bottom, left + 1, right)
    if not hidden_cells:
        cells.remove_columns([column for column in range(cells.width) if _is_hidden(sheet.colinfo_map.get(column))])
    if not cells.is_blank:
        composition.add_sheet(cells.build_sheet(clean_title(sheet.name)))


def _is_hidden(info: Any) -> bool:
    """Return whether a row or column is hidden, by its record."""
    return info is not None and bool(info.hidden)


def _cell_text(workbook: Any, cell: Any) -> str:
    import xlrd

    if cell.ctype == xlrd.XL_CELL_TEXT:
        return collapse_whitespace(cell.value)
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return "TRUE" if cell.value else "FALSE"
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return str(xlrd.error_text_from_code.get(cell.value, ""))
    if cell.ctype not in (xlrd.XL_CELL_NUMBER, xlrd.XL_CELL_DATE):
        return ""
    style = workbook.xf_list[cell.xf_index]
    code = workbook.format_map[style.format_key].format_str if style.format_key in workbook.format_map else _GENERAL
    if cell.ctype == xlrd.XL_CELL_DATE:
        try:
            return show(xlrd.xldate_as_datetime(cell.value, workbook.datemode), code)
        except (ValueError, OverflowError):
            return plain(cell.value)
    return plain(cell.value) if code == _GENERAL else show(cell.value, code)
