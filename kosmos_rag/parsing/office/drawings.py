"""Read drawings of Office files: charts and diagrams (SmartArt).

A chart gives its data, a diagram its words.
"""

from collections.abc import Iterator
from typing import Any

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.tables.builder import Cell, TableBuilder
from kosmos_rag.parsing.tables.table import Table, collapse_whitespace

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"

CHART, DIAGRAM = f"{_C}chart", f"{_DIAGRAM}relIds"
"""The elements of a chart and of a diagram in a document."""


def read_drawing(element: Any, part: Any) -> Iterator[Table | str]:
    """Yield the data of a chart, or the words of a diagram.

    Args:
        element: a `CHART` or `DIAGRAM` element.
        part: the part of the package that has it; the drawing is related to it.
    """
    from docx.oxml import parse_xml

    key = element.get(f"{_R}id" if element.tag == CHART else f"{_R}dm")
    relation = part.rels[key] if key in part.rels else None  # noqa: SIM401 — no `get` in python-pptx
    if relation is None or relation.is_external:
        return
    root = parse_xml(relation.target_part.blob)
    if element.tag == CHART:
        yield _chart(root)
    else:
        yield "\n".join(filter(None, map(_words, root.iter(f"{_A}p"))))


def _words(element: Any) -> str:
    return collapse_whitespace("".join(text.text or "" for text in element.iter(f"{_A}t")))


def _chart(root: Any) -> Table:
    """Return a chart's data.

    One row for each category, one column for each series.
    """
    title = root.find(f".//{_C}chart/{_C}title")
    all_series = list(root.iter(f"{_C}ser"))
    categories = _points(all_series, f"{_C}cat", f"{_C}xVal")
    columns = [_points([series], f"{_C}val", f"{_C}yVal") for series in all_series]
    builder = TableBuilder()
    builder.add_row([Cell(text=""), *(Cell(text=_name(series)) for series in all_series)])
    for index in sorted({*categories, *(index for points in columns for index in points)})[: bounds.MAX_CHART_POINTS]:
        cells = (Cell(text=points.get(index, "")) for points in columns)
        builder.add_row([Cell(text=categories.get(index, "")), *cells])
    return builder.build(header_rows=1, caption="" if title is None else _words(title))


def _name(series: Any) -> str:
    value = series.find(f"{_C}tx//{_C}v")
    return "" if value is None else collapse_whitespace(value.text or "")


def _points(all_series: list[Any], *tags: str) -> dict[int, str]:
    """Return the points of the first series with some, by index."""
    for series in all_series:
        for tag in tags:
            points = {
                int(point.get("idx")): collapse_whitespace(point.findtext(f"{_C}v") or "")
                for point in series.iterfind(f"{tag}//{_C}pt")
                if (point.get("idx") or "").isdecimal()
            }
            if points:
                return points
    return {}
