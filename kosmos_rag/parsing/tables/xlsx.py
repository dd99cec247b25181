"""Parse XLSX: a sheet is a section of tables and texts.

A number is formatted as its cell shows it.
"""

# openpyxl's public interface has number formats, hidden rows and merged cells only if all cells are objects.
# ruff: noqa: SLF001

from collections.abc import Mapping
from contextlib import closing
from io import BytesIO
from typing import Any

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.archives.screening import screen_office
from kosmos_rag.parsing.clean import clean_property_title, clean_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.number_format import plain, show
from kosmos_rag.parsing.tables.sheet_cells import SheetCells
from kosmos_rag.parsing.tables.sheets import Remark
from kosmos_rag.parsing.tables.table import collapse_whitespace
from kosmos_rag.parsing.tables.xlsx_remarks import read_remarks

_NOT_CALCULATED = "{} formulas have no stored value and are kept as formulas; open the file with Excel and save it"
_VISIBLE = "visible"
_GENERAL = "General"
_TRUE = ("1", "true")


def parse_xlsx(data: bytes, limits: OutputLimits, *, hidden_cells: bool = False) -> ParsedDocument:
    """Parse the sheets of an Excel workbook.

    Formulas are the values that Excel stored last. A formula that was never calculated is its own text.

    Args:
        hidden_cells: whether to read hidden sheets, rows and columns.

    Raises:
        ParseError: `too_large`, `encrypted`, `corrupt` or `unsupported` for an archive that is not safe to open.
    """
    from openpyxl import load_workbook

    data = screen_office(data, "XLSX")
    composition = Composition(limits)
    with closing(load_workbook(BytesIO(data), read_only=True, data_only=True, keep_links=False)) as workbook:
        formats = _Formats(workbook)
        formulas = 0
        for sheet in workbook.worksheets:
            if hidden_cells or sheet.sheet_state == _VISIBLE:
                reader = _SheetReader(sheet, formats, limits)
                reader.read(hidden_cells=hidden_cells)
                formulas += reader.formulas
                if not reader.cells.is_blank or reader.remarks:
                    composition.add_sheet(reader.cells.build_sheet(clean_title(sheet.title), reader.remarks))
        if formulas:
            composition.add_note("formulas_not_calculated", _NOT_CALCULATED.format(formulas))
        return composition.build(media_types.XLSX, clean_property_title(workbook.properties.title or ""))


class _Formats:
    """The number formats of a workbook's cell styles."""

    def __init__(self, workbook: Any) -> None:
        self._workbook = workbook
        self._codes: dict[int, str] = {}
        self._bold: dict[int, bool] = {}

    def show(self, value: Any, style: int) -> str:
        if isinstance(value, str):
            return collapse_whitespace(value)
        code = self._codes.get(style)
        if code is None:
            code = self._codes[style] = self._code(style)
        return (
            plain(value) if code == _GENERAL and not isinstance(value, bool) else collapse_whitespace(show(value, code))
        )

    def is_bold(self, style: int) -> bool:
        """Return whether cells of a style have bold letters."""
        bold = self._bold.get(style)
        if bold is None:
            styles, fonts = self._workbook._cell_styles, self._workbook._fonts
            font = styles[style].fontId if style < len(styles) else len(fonts)
            bold = self._bold[style] = font < len(fonts) and bool(fonts[font].b)
        return bold

    def _code(self, style: int) -> str:
        from openpyxl.styles.numbers import BUILTIN_FORMATS, BUILTIN_FORMATS_MAX_SIZE

        styles, formats = self._workbook._cell_styles, self._workbook._number_formats
        number = styles[style].numFmtId if style < len(styles) else 0
        custom_index = number - BUILTIN_FORMATS_MAX_SIZE
        if custom_index >= 0:
            return str(formats[custom_index]) if custom_index < len(formats) else _GENERAL
        return str(BUILTIN_FORMATS.get(number, _GENERAL))


class _SheetReader:
    """Reads the cells of a sheet."""

    def __init__(self, sheet: Any, formats: _Formats, limits: OutputLimits) -> None:
        self.cells = SheetCells()
        self.remarks: list[Remark] = []
        self.formulas = 0
        """Cells whose formula is kept instead of a value."""
        self._sheet = sheet
        self._formats = formats
        self._limits = limits

    def read(self, *, hidden_cells: bool) -> None:
        from openpyxl.utils import range_boundaries

        workbook = self._sheet.parent
        with self._sheet._get_source() as source:
            parser = _create_parser(
                source,
                self._sheet._shared_strings,
                data_only=True,
                epoch=workbook.epoch,
                date_formats=workbook._date_formats,
                timedelta_formats=workbook._timedelta_formats,
            )
            size = 0
            hidden_rows = set()
            for number, cells in parser.parse():
                hidden = parser.row_dimensions.pop(str(number), {}).get("hidden") in _TRUE
                if not hidden or hidden_cells:
                    row = self._texts(cells)
                    bold = [cell["column"] - 1 for cell in cells if self._formats.is_bold(cell["style_id"])]
                    size += sum(map(len, row))
                    self._limits.check_text(size)
                    self.cells.add_row(number, row, bold)
                else:
                    hidden_rows.add(number)
        for merged in parser.merged_cells.mergeCell if parser.merged_cells else ():
            left, top, right, bottom = range_boundaries(merged.ref)
            self.cells.merge(top, bottom, left, right)
        hidden_columns = [] if hidden_cells else _hidden_columns(parser.column_dimensions, self.cells.width)
        self.cells.remove_columns(hidden_columns)
        left_out = set(hidden_columns)
        self.remarks = [
            remark
            for remark in read_remarks(workbook._archive, self._sheet._worksheet_path)
            if remark.row not in hidden_rows and remark.column - 1 not in left_out
        ]

    def _texts(self, cells: list[dict[str, Any]]) -> list[str]:
        row: list[str] = []
        for cell in cells:
            if cell["value"] is not None:
                column = cell["column"] - 1
                if column > len(row):
                    row += [""] * (column - len(row))
                text = self._formats.show(cell["value"], cell["style_id"])
                self.formulas += cell["data_type"] == "f"
                if column >= len(row):
                    row.append(text)
                else:  # a hostile file names a cell twice
                    row[column] = text
        return row


def _create_parser(*arguments: Any, **settings: Any) -> Any:
    """Return openpyxl's parser of a sheet, which gives formulas where they have no value."""
    from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

    class Parser(WorkSheetParser):  # type: ignore[misc] # openpyxl has no types
        def parse_cell(self, element: Any) -> dict[str, Any]:
            cell: dict[str, Any] = super().parse_cell(element)
            # The type `str` is that of a calculated text, also of an empty one.
            if cell["value"] is None and element.get("t") != "str":
                formula = element.findtext(FORMULA_TAG)
                if formula:
                    cell |= {"value": f"={formula}", "data_type": "f"}
            return cell

    return Parser(*arguments, **settings)


def _hidden_columns(dimensions: Mapping[str, Mapping[str, str]], width: int) -> list[int]:
    """Return the hidden columns, from 0, of the first `width`."""
    hidden: set[int] = set()
    for attributes in dimensions.values():
        if attributes.get("hidden") in _TRUE:
            hidden.update(range(int(attributes["min"]) - 1, min(int(attributes["max"]), width)))
    return sorted(hidden)
