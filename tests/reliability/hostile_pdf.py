"""PDF files that mean harm, written object by object."""

import zlib
from collections.abc import Callable, Iterator, Mapping

import fpdf

_CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
_PAGES = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
_PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R "
    b"/Resources << /Font << /F 5 0 R >> /XObject << /X 6 0 R >> >> >>"
)
_FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
_WORDS = b"BT /F 12 Tf 10 100 Td (Words to find) Tj ET"


def _stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


def pdf(changed: Mapping[int, bytes] | None = None, trailer: bytes = b"", tail: bytes = b"") -> bytes:
    """A PDF of one page with text; `changed` has other objects in place of its own, or more."""
    objects = {1: _CATALOG, 2: _PAGES, 3: _PAGE, 4: _stream(_WORDS), 5: _FONT, **(changed or {})}
    out = bytearray(b"%PDF-1.7\n")
    table = []
    for number, body in sorted(objects.items()):
        table.append(b"%d 1\n%010d 00000 n \n" % (number, len(out)))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    at = len(out)
    out += b"xref\n0 1\n0000000000 65535 f \n" + b"".join(table)
    out += b"trailer\n<< /Size %d /Root 1 0 R %s >>\n" % (max(objects) + 1, trailer)
    return bytes(out) + (tail or b"startxref\n%d\n%%%%EOF\n" % at)


def _zeros(blocks: int) -> Iterator[bytes]:
    """A deflated stream of a megabyte of zeros for each block: one block written again and again."""
    deflater = zlib.compressobj()
    block = deflater.compress(bytes(2**20)) + deflater.flush(zlib.Z_FULL_FLUSH)
    yield block
    again = zlib.compressobj(wbits=-15)
    repeated = again.compress(bytes(2**20)) + again.flush(zlib.Z_FULL_FLUSH)
    for _ in range(blocks - 1):
        yield repeated


def _bomb(megabytes: int, layers: int) -> bytes:
    """A content stream of zeros, deflated as many times as there are layers."""
    pieces = _zeros(megabytes)
    for _ in range(layers - 1):
        deflater = zlib.compressobj()
        pieces = iter([b"".join(map(deflater.compress, pieces)), deflater.flush()])
    return _stream(b"".join(pieces), b"/Filter [%s]" % (b"/FlateDecode " * layers))


def _million_pages() -> bytes:
    """Six levels of ten children that are all the same: a million pages in eight objects."""
    levels = {
        10 + level: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b"%d 0 R " % (11 + level) * 10, 10 ** (6 - level))
        for level in range(6)
    }
    return pdf({2: levels[10], **levels, 16: _PAGE})


def _many_objects() -> bytes:
    kids = b" ".join(b"%d 0 R" % number for number in range(10, 20_010))
    return pdf({2: b"<< /Type /Pages /Kids [%s] /Count 20000 >>" % kids} | dict.fromkeys(range(10, 20_010), _PAGE))


def _with_password() -> bytes:
    document = fpdf.FPDF()
    document.set_encryption(owner_password="owner", user_password="user")
    document.add_page()
    return bytes(document.output())


def _resources_loop() -> bytes:
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >>"
    return pdf({4: _stream(b"/X Do " * 50), 6: _stream(b"/X Do " * 50, form)})


def _outline(entry: bytes) -> bytes:
    return pdf(
        {
            1: b"<< /Type /Catalog /Pages 2 0 R /Outlines 7 0 R >>",
            7: b"<< /Type /Outlines /First 8 0 R /Last 8 0 R /Count 9999 >>",
            8: b"<< /Title (a) /Parent 7 0 R /Dest [3 0 R /Fit] %s >>" % entry,
        }
    )


def _rules(across: int, down: int, step: int, length: int) -> bytes:
    return b"".join(
        b"%d %d m %d %d l S " % (step * x, step * y, step * x + 8 * length, step * y)
        for x in range(across)
        for y in range(down)
    )


def _cells(columns: int, rows: int) -> bytes:
    cells = (b"1 0 0 1 %d %d Tm (1) Tj " % (30 * x, 12 * y) for y in range(rows, 0, -1) for x in range(columns))
    return b"BT /F 9 Tf %s ET" % b"".join(cells)


def _annotation(kind: bytes, text: bytes) -> bytes:
    return b"<< /Type /Annot /Subtype %s /Contents (%s) /Rect [0 0 9 9] >>" % (kind, text)


PDFS: dict[str, Callable[[], bytes]] = {
    "bomb of 512 MB": lambda: pdf({4: _bomb(512, 1)}),
    "bomb of 20 GB in two layers": lambda: pdf({4: _bomb(20_000, 2)}),
    "bomb of 20 GB in four layers": lambda: pdf({4: _bomb(20_000, 4)}),
    "pages that contain themselves": lambda: pdf({2: b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"}),
    "pages that contain their parent": lambda: pdf(
        {2: b"<< /Type /Pages /Kids [7 0 R] /Count 1 >>", 7: b"<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 5 >>"}
    ),
    "a million pages that are one": _million_pages,
    "a million pages by its word": lambda: pdf({2: b"<< /Type /Pages /Kids [3 0 R] /Count 1000000 >>"}),
    "minus one page": lambda: pdf({2: b"<< /Type /Pages /Kids [3 0 R] /Count -1 >>"}),
    "twenty thousand pages": _many_objects,
    "xref that comes before itself": lambda: pdf(trailer=b"/Prev 9"),
    "xref that is its own start": lambda: pdf(trailer=b"/Prev 0", tail=b"startxref\n0\n%%EOF"),
    "xref beyond the end": lambda: pdf(tail=b"startxref\n99999999999999999999\n%%EOF"),
    "xref that is missing": lambda: pdf(tail=b"%%EOF"),
    "xref stream that is itself": lambda: pdf(trailer=b"/XRefStm 9"),
    "password": _with_password,
    "encryption of no kind": lambda: pdf(trailer=b"/Encrypt << /Filter /None /V 99 >>"),
    "encryption that is itself": lambda: pdf({9: b"9 0 R"}, trailer=b"/Encrypt 9 0 R"),
    "root that is itself": lambda: pdf({1: b"1 0 R"}),
    "root that is a page": lambda: pdf({1: _PAGE}),
    "form that draws itself": _resources_loop,
    "outline that goes round": lambda: _outline(b"/Next 8 0 R"),
    "outline that is its child": lambda: _outline(b"/First 8 0 R /Last 8 0 R"),
    "arrays in arrays": lambda: pdf({4: b"[" * 200_000}),
    "dictionaries in dictionaries": lambda: pdf({4: b"<< /A " * 200_000}),
    "brackets in the text": lambda: pdf({4: _stream(b"BT /F 12 Tf " + b"[" * 500_000 + b" TJ ET")}),
    "states that are never restored": lambda: pdf({4: _stream(b"q " * 1_000_000 + _WORDS)}),
    "a million words": lambda: pdf({4: _stream(b"BT /F 1 Tf " + b"(words) Tj " * 1_000_000 + b"ET")}),
    "length that is negative": lambda: pdf({4: b"<< /Length -5 >>\nstream\n(x)\nendstream"}),
    "length that is immense": lambda: pdf({4: b"<< /Length 999999999999 >>\nstream\n(x)\nendstream"}),
    "length that is itself": lambda: pdf({4: b"<< /Length 4 0 R >>\nstream\n(x)\nendstream"}),
    "object stream in itself": lambda: pdf(
        {7: _stream(b"7 0 8 10 << /A 1 >>", b"/Type /ObjStm /N 99999999 /First 8 /Extends 7 0 R")}
    ),
    "image of broken JBIG2": lambda: pdf(
        {
            4: _stream(b"/X Do " + _WORDS),
            6: _stream(b"\x97JB2\r\n", b"/Subtype /Image /Width 65535 /Height 65535 /Filter /JBIG2Decode"),
        }
    ),
    "predictor without end": lambda: pdf(
        {
            4: _stream(
                zlib.compress(b"x" * 100),
                b"/Filter /FlateDecode /DecodeParms << /Predictor 15 /Columns 2147483647 /Colors 32 >>",
            )
        }
    ),
    "font that is drawn with itself": lambda: pdf(
        {
            5: b"<< /Type /Font /Subtype /Type3 /FontBBox [0 0 9 9] /FontMatrix [1 0 0 1 0 0] /FirstChar 87 "
            b"/LastChar 87 /Widths [9] /Encoding << /Differences [87 /W] >> /CharProcs << /W 4 0 R >> "
            b"/Resources << /Font << /F 5 0 R >> >> >>"
        }
    ),
    "twenty thousand lines apart": lambda: pdf({4: _stream(_WORDS + _rules(150, 130, 4, 3))}),
    "five thousand lines apart": lambda: pdf({4: _stream(_WORDS + _rules(70, 70, 20, 1))}),
    "lines of graph paper": lambda: pdf({4: _stream(_WORDS + _rules(140, 140, 1, 1))}),
    "a table of four thousand columns": lambda: pdf({4: _stream(_cells(4_000, 1))}),
    "a table of four thousand cells": lambda: pdf({4: _stream(_cells(40, 99))}),
    "letters of as many sizes": lambda: pdf(
        {4: _stream(b"BT 10 100 Td " + b"".join(b"/F %d Tf (a) Tj " % size for size in range(1, 20_000)) + b"ET")}
    ),
    "five thousand notes": lambda: pdf(
        {3: _PAGE[:-2] + b"/Annots [%s] >>" % (b"7 0 R " * 5_000), 7: _annotation(b"/Text", b"x" * 60_000)}
    ),
    "a form that is its own parent": lambda: pdf(
        {
            1: _CATALOG[:-2] + b"/AcroForm << /Fields [7 0 R] >> >>",
            3: _PAGE[:-2] + b"/Annots [7 0 R] >>",
            7: b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (a) /Parent 7 0 R /Kids [7 0 R] /Rect [0 0 9 9] >>",
        }
    ),
    "header alone": lambda: b"%PDF-1.7\n",
    "NUL bytes after the header": lambda: b"%PDF-1.7\n" + bytes(2**20),
    "header a thousand times": lambda: b"%PDF-1.7\n" * 1000 + b"endobj",
}
