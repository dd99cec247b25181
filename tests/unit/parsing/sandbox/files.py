"""Files that keep a parser busy, made of little."""

import io
import zipfile

import openpyxl

_SHEET = "xl/worksheets/sheet1.xml"


def wide_workbook(rows: int) -> bytes:
    """A workbook with its one cell of each row in the last column that there is: some milliseconds a row."""
    workbook = openpyxl.Workbook()
    plain = io.BytesIO()
    workbook.save(plain)
    cells = "".join(f'<row r="{n}"><c r="XFD{n}"><v>{n}</v></c></row>' for n in range(1, rows + 1))
    namespace = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    sheet = f'<worksheet xmlns="{namespace}"><sheetData>{cells}</sheetData></worksheet>'
    out = io.BytesIO()
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, sheet if name == _SHEET else old.read(name))
    return out.getvalue()


def many_objects(count: int) -> bytes:
    """JSON that takes twenty times its size in memory."""
    return b"[" + b"{}," * count + b"{}]"
