"""Files that exceed the limits of the PDF parser, and files that just do not."""

from contextlib import closing

import pypdfium2
import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse
from kosmos_rag.parsing.pdf.cells import find_columns
from kosmos_rag.parsing.pdf.graphics import Box, Graphics, Rules, read_graphics
from kosmos_rag.parsing.pdf.grid import Grid
from kosmos_rag.parsing.pdf.lattices import Lattice, find_lattices
from kosmos_rag.parsing.pdf.text_layer import Run
from tests.reliability.hostile_pdf import pdf

PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R "
    b"/Resources << /Font << /F 5 0 R >> /XObject << /X 6 0 R >> >> /Annots [%s] >>"
)


def _stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


def _parse(data: bytes) -> ParsedDocument:
    return parse(SourceDocument(source="a.pdf", data=data))


def _read_graphics(data: bytes) -> Graphics:
    with closing(pypdfium2.PdfDocument(data)) as document:
        return read_graphics(document[0], {})


def _notes(*texts: bytes) -> bytes:
    notes = b" ".join(b"<< /Type /Annot /Subtype /Text /Contents (%s) /Rect [1 1 9 9] >>" % text for text in texts)
    return pdf({3: PAGE % notes})


@pytest.mark.parametrize(("count", "expected"), [(20_000, 20_000), (20_001, 0)])
def test_graphics__of_a_page_with_too_many_are_left_out(count: int, expected: int) -> None:
    assert len(_read_graphics(pdf({4: _stream(b"10 10 80 1 re f\n" * count)})).rules) == expected


@pytest.mark.parametrize(("depth", "expected"), [(4, 1), (5, 0)])
def test_graphics__of_forms_within_forms_are_read_to_a_depth(depth: int, expected: int) -> None:
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 200 200] /Resources << /XObject << /X %d 0 R >> >>"
    forms = {number: _stream(b"/X Do", form % (number + 1)) for number in range(6, 5 + depth)}
    rule = _stream(b"10 10 80 1 re f", form % 5)
    assert len(_read_graphics(pdf({4: _stream(b"/X Do"), **forms, 5 + depth: rule})).rules) == expected


@pytest.mark.parametrize(("count", "expected"), [(300, True), (301, False)])
def test_grid__of_graph_paper_is_no_table(count: int, expected: bool) -> None:
    width = 10.0 * (count - 1)
    vertical = [Box(10.0 * number, 0, 10.0 * number, 20) for number in range(count)]
    horizontal = [Box(0, height, width, height) for height in (0.0, 20.0)]
    assert Grid(Lattice(horizontal, vertical, Box(0, 0, width, 20))).is_readable == expected


@pytest.mark.parametrize(("count", "expected"), [(300, 299), (301, 1), (1201, 1)])
def test_lattice__of_bands_with_different_columns_is_cut_up_to_a_number_of_lines(count: int, expected: int) -> None:
    end = 10.0 * (count - 1)
    horizontal = [Box(0, 10.0 * number, end + 20, 10.0 * number) for number in reversed(range(count))]
    inner = [
        Box(10.0 * number + 10, 10.0 * number, 10.0 * number + 10, 10.0 * number + 10) for number in range(count - 1)
    ]
    vertical = [Box(0, 0, 0, end), *inner, Box(end + 20, 0, end + 20, end)]
    lattices = find_lattices(Rules(horizontal, vertical))
    assert len(lattices) == expected
    assert sum(lattice.box.height for lattice in lattices) == end


@pytest.mark.parametrize(("count", "expected"), [(50, 50), (51, 0)])
def test_columns__of_too_many_numbers_in_a_row_are_none(count: int, expected: int) -> None:
    lines = [
        [Run("12", 20.0 * number, 20.0 * number + 8, 100.0 - 10 * row, 8, False) for number in range(count)]
        for row in range(4)
    ]
    assert len(find_columns(lines)) == expected


@pytest.mark.parametrize(("crossing", "expected"), [(3, 2), (4, 1)])
def test_columns__are_told_apart_where_few_of_25_rows_cross_the_gap(crossing: int, expected: int) -> None:
    lines = [
        [Run("Subtotal of all the programs", 20.0, 120.0, 500.0 - 10 * row, 8, False)]
        if row < crossing
        else [Run("Ann", 20.0, 40.0, 500.0 - 10 * row, 8, False), Run("512", 100.0, 120.0, 500.0 - 10 * row, 8, False)]
        for row in range(25)
    ]
    assert len(find_columns(lines)) == expected


def test_text__of_signs_alone_is_garbled_from_fifty_on() -> None:
    short, long = (pdf({4: _stream(b"BT /F 9 Tf 1 9 Td (%s) Tj ET" % (b"#%" * 25)[:length])}) for length in (49, 50))
    assert _parse(short).text.startswith("#%")
    with pytest.raises(ParseError, match="50 of 50 characters are no letters"):
        _parse(long)


def test_annotations__of_a_page_are_read_up_to_a_number() -> None:
    text = _parse(_notes(*(b"note %d" % number for number in range(2_001)))).text
    assert "note 1999" in text
    assert "note 2000" not in text


@pytest.mark.parametrize(
    ("lengths", "expected"), [((2**20,), 1), ((2**20 + 1,), 0), ((2**20 - 8, 9), 1), ((2**20 - 8, 8), 2)]
)
def test_annotations__of_a_page_have_a_megabyte_of_letters(lengths: tuple[int, ...], expected: int) -> None:
    text = _parse(_notes(*(b"x" * length for length in lengths))).text
    assert len([part for part in text.split("\n\n") if part.startswith("x")]) == expected


def test_outline__is_read_up_to_a_number_of_entries() -> None:
    count = 10_001
    entry = b"<< /Title (Words to find) /Parent 7 0 R /Dest [3 0 R /Fit] %s >>"
    entries = {
        8 + number: entry % (b"/Next %d 0 R" % (9 + number) if number < count - 1 else b"") for number in range(count)
    }
    root = b"<< /Type /Outlines /First 8 0 R /Last %d 0 R /Count %d >>" % (7 + count, count)
    catalog = b"<< /Type /Catalog /Pages 2 0 R /Outlines 7 0 R >>"
    assert len(_parse(pdf({1: catalog, 7: root, **entries})).headings) == 10_000
