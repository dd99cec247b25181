"""Write PDF files with tables set by fpdf2 and reportlab themselves.

They use `pdf.table()` of fpdf2 and platypus of reportlab. The styles of `HELD_OUT` were written after the rules, and
measured once before anything was changed for them.
"""

import io
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.pdf_tables import Fact

_UNITS = (
    "Northern region|Southern region|Eastern region|Western region|Central office|Online sales|Retail stores|"
    "Wholesale|Export of goods|Spare parts|Training|Licences"
).split("|")
_MEASURES = (
    "Revenue|Cost (EUR)|Margin %|Units sold|Average price per unit|Staff|Orders in June|2023|2024|Visitors|Open cases|"
    "Net result|Claims"
).split("|")
_REMARKS = (
    "open|closed in May of the last year|under review by the board of directors|approved|none|see the annex|"
    "renewed for another two years in the spring|to be decided by the new head of the department"
).split("|")
_INTRODUCTION = "All of the figures below were reported by the departments themselves and have not been audited. " * 4
_ALL = (0, 0), (-1, -1)
_RIGHT = ("ALIGN", (1, 0), (-1, -1), "RIGHT")
_BOLD = ("FONT", (0, 0), (-1, 0), "Helvetica-Bold")
_MIDDLE = ("VALIGN", *_ALL, "MIDDLE")
_TWO_HEADER_ROWS = [
    *[_RIGHT, ("SPAN", (1, 0), (2, 0)), ("SPAN", (3, 0), (4, 0)), ("ALIGN", (0, 0), (-1, 0), "CENTER")],
]

Rows = list[list[str]]
Command = tuple[Any, ...]
Maker = Callable[[random.Random], tuple[bytes, list[Fact]]]


def _line(kind: str, first: tuple[int, int] = (0, 0), last: tuple[int, int] = (-1, -1)) -> Command:
    return kind, first, last, 0.5, "black"


def _rows(chance: random.Random, columns: int, count: int, *, empty: float = 0.1, remark: bool = False) -> Rows:
    names = ["Department", *chance.sample(_MEASURES, columns)]
    rows = [
        [unit, *("" if chance.random() < empty else _number(chance) for _ in range(columns))]
        for unit in chance.sample(_UNITS, count)
    ]
    if remark:
        names[-1] = "Note"
        for row in rows:
            row[-1] = chance.choice(_REMARKS)
    return [names, *rows]


def _number(chance: random.Random) -> str:
    kind = chance.randrange(6)
    if kind == 0:
        return f"({chance.randint(1, 999)})"
    if kind == 1:
        return f"{chance.uniform(0, 99):.1f}%"
    return f"${chance.randint(1, 500)}.00" if kind == 2 else f"{chance.randint(1, 99999):,}"


def _facts(rows: Rows, names: Sequence[str]) -> list[Fact]:
    return [(row[0], name, value) for row in rows for name, value in zip(names, row, strict=True) if value]


def _fpdf(layout: str, *, remark: bool = False) -> Maker:
    def make(chance: random.Random) -> tuple[bytes, list[Fact]]:
        import fpdf

        rows = _rows(chance, 4, 9, empty=0.15, remark=remark)
        pdf = fpdf.FPDF()
        pdf.add_page()
        pdf.set_font("helvetica", size=10)
        pdf.multi_cell(0, text=_INTRODUCTION, new_x="LMARGIN", new_y="NEXT")
        pdf.ln(4)
        with pdf.table(borders_layout=layout, text_align=["LEFT", *["RIGHT"] * 4]) as table:
            for row in rows:
                cells = table.row()
                for cell in row:
                    cells.cell(cell)
        pdf.ln(4)
        pdf.multi_cell(0, text=_INTRODUCTION)
        return bytes(pdf.output()), _facts(rows[1:], rows[0])

    return make


def _platypus(
    style: Sequence[Command],
    *,
    columns: int = 4,
    count: int = 9,
    empty: float = 0.1,
    wrapped: bool = False,
    header: Rows | None = None,
    repeated: int = 1,
    times: int = 1,
) -> Maker:
    def make(chance: random.Random) -> tuple[bytes, list[Fact]]:
        names, *body = _rows(chance, columns, count, empty=empty, remark=wrapped)
        body = [[f"{row[0]} {'I' * time}".strip(), *row[1:]] for time in range(times) for row in body]
        top = header or [names]
        paths = [" / ".join(filter(None, path)) for path in zip(*_spread(top), strict=True)]
        return _set([*top, *body], style, wrapped=wrapped, repeated=repeated), _facts(body, paths)

    return make


def _spread(header: Rows) -> Rows:
    upper = [list(row) for row in header]
    for row in upper[:-1]:
        for column in range(2, len(row)):
            row[column] = row[column] or row[column - 1]
    return upper


def _set(rows: Rows, style: Sequence[Command], *, wrapped: bool, repeated: int) -> bytes:
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

    body = getSampleStyleSheet()["BodyText"]
    cells = [[Paragraph(cell, body) if wrapped and len(cell) > 16 else cell for cell in row] for row in rows]
    widths = [100, *[60] * (len(rows[0]) - 2), 150] if wrapped else None
    out = io.BytesIO()
    SimpleDocTemplate(out).build(
        [
            *[Paragraph("1. Overview", body), Paragraph(_INTRODUCTION, body), Spacer(1, 12)],
            *[Table(cells, repeatRows=repeated, style=TableStyle(list(style)), colWidths=widths), Spacer(1, 12)],
            Paragraph(_INTRODUCTION, body),
        ]
    )
    return out.getvalue()


_SPANNED = [["", "First half", "", "Second half", ""], ["Unit", "Sales", "Cost", "Sales", "Cost"]]
_YEARS = [["Unit", "2023", "2024", "2025"]]

DEVELOPMENT: dict[str, Maker] = {
    **{f"fpdf2 {layout}": _fpdf(layout) for layout in ("ALL", "HORIZONTAL_LINES", "SINGLE_TOP_LINE", "NONE")},
    **{f"fpdf2 {layout}": _fpdf(layout, remark=True) for layout in ("MINIMAL", "NO_HORIZONTAL_LINES")},
    "platypus grid": _platypus([_line("GRID"), _MIDDLE, _RIGHT, _BOLD]),
    "platypus shaded": _platypus(
        [_RIGHT, _BOLD, *(("BACKGROUND", (0, row), (-1, row), "lightgrey") for row in range(0, 9, 2))]
    ),
    "platypus rows": _platypus([_line("LINEBELOW"), _MIDDLE, _BOLD], columns=3, empty=0.2, wrapped=True),
    "platypus box": _platypus([_line("BOX"), _line("LINEBELOW", (0, 0), (-1, 0)), _RIGHT, _BOLD], empty=0.3),
}
HELD_OUT: dict[str, Maker] = {
    "inner grid": _platypus([_line("INNERGRID"), _RIGHT, _BOLD]),
    "wrapped, at the top": _platypus([_line("LINEABOVE"), ("VALIGN", *_ALL, "TOP"), _BOLD], columns=3, wrapped=True),
    "wrapped, unruled": _platypus([_MIDDLE, _BOLD], columns=3, wrapped=True),
    "wide, many gaps": _platypus([_RIGHT, _BOLD, ("FONTSIZE", *_ALL, 7)], columns=6, empty=0.3),
    "centred grid, plain header": _platypus([_line("GRID"), ("ALIGN", *_ALL, "CENTER")], columns=4, empty=0.2),
    "years": _platypus([_line("LINEBELOW", (0, 0), (-1, 0)), _RIGHT], columns=3, header=_YEARS),
    "two pages, header once": _platypus([_line("GRID"), _RIGHT, _BOLD], count=12, times=3, repeated=0),
    "spanned header": _platypus([_line("GRID"), *_TWO_HEADER_ROWS], header=_SPANNED, repeated=2),
    "spanned header, book": _platypus(
        [
            *[_line("LINEABOVE", (0, 0), (-1, 0)), _line("LINEBELOW", (0, 1), (-1, 1)), *_TWO_HEADER_ROWS],
            *[_line("LINEBELOW", (1, 0), (2, 0)), _line("LINEBELOW", (3, 0), (4, 0))],
            _line("LINEBELOW", (0, -1), (-1, -1)),
        ],
        header=_SPANNED,
        repeated=2,
    ),
    "tight, many gaps": _platypus(
        [_RIGHT, ("TOPPADDING", *_ALL, 0), ("BOTTOMPADDING", *_ALL, 0), ("LEADING", *_ALL, 11)], empty=0.4
    ),
}


def documents(*, held_out: bool, seeds: int = 3) -> Iterator[tuple[str, bytes, list[Fact]]]:
    """Yield name, file and facts of the generated documents."""
    for name, make in (HELD_OUT if held_out else DEVELOPMENT).items():
        for seed in range(seeds):
            yield f"{name} {seed}", *make(random.Random(f"{name} {seed}"))
