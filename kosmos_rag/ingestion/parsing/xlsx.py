"""Parse XLSX: a sheet is a section, a row a line with the names of its columns."""

from contextlib import closing
from datetime import datetime, time
from io import BytesIO
from typing import Any

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.ingestion.parsing import media_types
from kosmos_rag.ingestion.parsing.archive import screen_office
from kosmos_rag.ingestion.parsing.clean import clean_title
from kosmos_rag.ingestion.parsing.compose import Composition
from kosmos_rag.ingestion.parsing.limits import OutputLimits
from kosmos_rag.ingestion.parsing.tables import one_line

_VISIBLE = "visible"


def parse_xlsx(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse the visible sheets of an Excel workbook.

    Formulas are the values that Excel stored last.

    Raises:
        ParseError: `too_large`, `encrypted`, `corrupt` or `unsupported` for an archive that is not safe to open.
    """
    from openpyxl import load_workbook

    screen_office(data, "XLSX")
    composition = Composition(limits)
    with closing(load_workbook(BytesIO(data), read_only=True, data_only=True, keep_links=False)) as workbook:
        for sheet in workbook.worksheets:
            if sheet.sheet_state == _VISIBLE:
                _add_sheet(composition, sheet)
        return composition.parsed(media_types.XLSX, clean_title(workbook.properties.title or ""))


def _add_sheet(composition: Composition, sheet: Any) -> None:
    # The file's word on its size would pad every row to it.
    sheet.reset_dimensions()
    rows = [[one_line(_text(value)) for value in row] for row in sheet.iter_rows(values_only=True)]
    if any(map(any, rows)):
        composition.heading(1, sheet.title)
        composition.sheet(rows)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time.min else value.isoformat(" ")
    return str(value)
