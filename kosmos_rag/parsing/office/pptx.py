"""Parse PPTX: a slide is a page, its title a heading.

Tables and the speaker's notes are read too.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.archives.screening import screen_office
from kosmos_rag.parsing.clean import clean_property_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.office.boxes import Edges, order_boxes
from kosmos_rag.parsing.office.drawings import CHART, DIAGRAM, read_drawing
from kosmos_rag.parsing.office.pptx_text import read_paragraphs
from kosmos_rag.parsing.tables.builder import Cell, TableBuilder
from kosmos_rag.parsing.tables.table import Table, collapse_whitespace


def parse_pptx(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a PowerPoint presentation, without hidden slides.

    Raises:
        ParseError: `too_large`, `encrypted`, `corrupt` or `unsupported` for an archive that is not safe to open.
    """
    from pptx import Presentation

    data = screen_office(data, "PPTX")
    presentation = Presentation(BytesIO(data))
    composition = Composition(limits)
    running: set[str] = set()
    for slide in presentation.slides:
        composition.begin_page()
        if slide.element.get("show") != "0":
            _add_slide(composition, slide, running)
    title = clean_property_title(presentation.core_properties.title or "")
    return composition.build(media_types.PPTX, title or composition.first_title)


def _add_slide(composition: Composition, slide: Any, running: set[str]) -> None:
    """Add a slide; `running` are the dates and footers of those before."""
    title = slide.shapes.title
    if title is not None:
        composition.add_heading(1, title.text_frame.text)
    for shape in _shapes(slide.shapes):
        if (title is not None and shape.shape_id == title.shape_id) or _is_running(shape, running):
            continue
        _add_shape(composition, shape)
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None and frame.text.strip():
        composition.add_block(f"Notes: {frame.text}")


def _is_running(shape: Any, running: set[str]) -> bool:
    """Return whether a shape is a slide number, or a date or footer read before."""
    from pptx.enum.shapes import PP_PLACEHOLDER

    kind = shape.placeholder_format.type if shape.is_placeholder else None
    if kind not in (PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.FOOTER):
        return bool(kind == PP_PLACEHOLDER.SLIDE_NUMBER)
    is_known = shape.text_frame.text in running
    running.add(shape.text_frame.text)
    return is_known


def _shapes(shapes: Any) -> Iterator[Any]:
    """Yield the shapes as they are read on the slide, with those of groups."""
    from pptx.shapes.group import GroupShape

    pending = [iter(order_boxes(list(shapes), _box))]
    while pending:
        shape = next(pending[-1], None)
        if shape is None:
            pending.pop()
        elif isinstance(shape, GroupShape):
            pending.append(iter(order_boxes(list(shape.shapes), _box)))
        else:
            yield shape


def _box(shape: Any) -> Edges | None:
    """Return the edges of a shape; None where neither it nor its layout has a place."""
    if None in (shape.left, shape.top, shape.width, shape.height):
        return None
    return shape.left, shape.top, shape.left + shape.width, shape.top + shape.height


def _add_shape(composition: Composition, shape: Any) -> None:
    if shape.has_text_frame:
        composition.add_block("\n".join(_lines(shape.text_frame)))
    elif shape.has_table:
        composition.add_table(_table(shape.table))
    else:
        for element in shape.element.iter(CHART, DIAGRAM):
            for content in read_drawing(element, shape.part):
                if isinstance(content, Table):
                    composition.add_table(content)
                else:
                    composition.add_block(content)


def _table(table: Any) -> Table:
    builder = TableBuilder()
    for row in table.rows:
        cells = (cell for cell in row.cells if not cell.is_spanned)
        builder.add_row(
            Cell(
                text=collapse_whitespace(" ".join(_lines(cell.text_frame))),
                columns=cell.span_width,
                rows=cell.span_height,
            )
            for cell in cells
        )
    return builder.build()


def _lines(frame: Any) -> Iterator[str]:
    return read_paragraphs(paragraph._p for paragraph in frame.paragraphs)  # noqa: SLF001 — its element has no public name
