"""Letters of a PDF: bold faces, codes of TeX fonts, and letters that run in another direction."""

import sys
from collections.abc import Mapping, Sequence
from types import FrameType, MappingProxyType

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse
from kosmos_rag.parsing.pdf import glyphs
from tests.reliability.hostile_pdf import pdf

TEXT = ["The pump of the plant is checked each week by", "two persons of the shift, and they write it down."]


def draw(content: str, *fonts: str) -> ParsedDocument:
    """A page whose fonts are named F1, F2 and so on."""
    return draw_pages([content], *fonts)


def draw_pages(
    contents: Sequence[str], *fonts: str, others: Mapping[int, bytes] = MappingProxyType({})
) -> ParsedDocument:
    """Pages whose fonts are named F1, F2 and so on, in a file with other objects."""
    resources = " ".join(f"/F{number} {font}" for number, font in enumerate(fonts, start=1))
    objects: dict[int, bytes] = {**others}
    for number, content in zip(range(10, 10 + 2 * len(contents), 2), contents, strict=True):
        page = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 400] /Contents {number + 1} 0 R "
            f"/Resources << /Font << {resources} >> >> >>"
        )
        stream = f"<< /Length {len(content)} >>\nstream\n{content}\nendstream"
        objects |= {number: page.encode(), number + 1: stream.encode("latin-1")}
    kids = " ".join(f"{number} 0 R" for number in range(10, 10 + 2 * len(contents), 2))
    objects[2] = f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode()
    return parse(SourceDocument(source="a.pdf", data=pdf(objects)))


def font(name: str, stem: int = 0) -> str:
    descriptor = f"<< /Type /FontDescriptor /FontName /{name} /Flags 32 /StemV {stem} >>"
    return f"<< /Type /Font /Subtype /Type1 /BaseFont /{name} /FontDescriptor {descriptor} >>"


def show(number: int, y: int, text: str) -> str:
    return f"BT /F{number} 10 Tf 50 {y} Td ({text}) Tj ET "


@pytest.mark.parametrize("stem", [80, 160], ids=["usual", "as wide as bold"])
def test_parse_pdf__bold_is_what_is_heavier_than_the_text(stem: int) -> None:
    lines = [show(2, 350, "Checks"), *(show(1, 330 - 12 * at, text) for at, text in enumerate(TEXT * 3))]
    parsed = draw("".join(lines), font("Plain", stem), font("Plain-Bold", 170))
    assert [heading.title for heading in parsed.headings] == ["Checks"]


def test_parse_pdf__a_cover_in_heavy_letters_has_the_headings_of_the_pages_after_it() -> None:
    cover = [show(2, 350, "Plant handbook"), show(2, 300, "Words of the cover in heavy letters"), show(1, 280, TEXT[0])]
    body = [show(2, 350, "Checks"), *(show(1, 330 - 12 * at, text) for at, text in enumerate(TEXT * 3))]
    parsed = draw_pages(["".join(cover), "".join(body)], font("Plain", 80), font("Wide", 170))
    titles = [heading.title for heading in parsed.headings]
    assert titles == ["Plant handbook", "Words of the cover in heavy letters", "Checks"]
    assert parsed.title == "Plant handbook"


def test_parse_pdf__a_word_in_another_face_cuts_no_paragraph_where_weights_are_wrong() -> None:
    first = "BT /F2 10 Tf 50 330 Td (R) Tj /F1 10 Tf 8 0 Td (is the language of the plan, and it is read.) Tj ET "
    parsed = draw(show(1, 342, TEXT[0]) + first + show(1, 318, TEXT[1]), font("Plain", 160), font("PlainSans", 80))
    assert "\n\n" not in parsed.text


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (r"o\033ice \034nds a \035oor, e\036cient ba\037e", "office finds a floor, efficient baffle"),
        (r"o\013ice \014nds e\016cient ba\017e", "office finds efficient baffle"),
        (r"pages 2\0253", "pages 2–3"),
    ],
    ids=["T1", "OT1", "a dash"],
)
def test_parse_pdf__ligatures_of_tex_fonts_without_unicode(codes: str, expected: str) -> None:
    procedures = " ".join(f"/c{code} 6 0 R" for code in range(256))
    differences = " ".join(f"/c{code}" for code in range(256))
    type3 = (
        "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 10 10] /FontMatrix [0.1 0 0 0.1 0 0] /FirstChar 0 /LastChar 255 "
        f"/Widths [{'5 ' * 256}] /CharProcs << {procedures} >> "
        f"/Encoding << /Type /Encoding /Differences [0 {differences}] >> >>"
    )
    glyph = b"<< /Length 32 >>\nstream\n5 0 0 0 5 7 d1 0 0 4 7 re f       \nendstream"
    content = show(1, 300, codes)
    page = (
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 400] /Contents 4 0 R "
        f"/Resources << /Font << /F1 {type3} >> >> >>"
    )
    stream = f"<< /Length {len(content)} >>\nstream\n{content}\nendstream"
    data = pdf({3: page.encode(), 4: stream.encode(), 6: glyph})
    assert " ".join(parse(SourceDocument(source="a.pdf", data=data)).text.split()) == expected


def test_parse_pdf__letters_upside_down_at_the_side_leave_a_line_whole() -> None:
    stamp = "BT /F1 21.6 Tf -0.2 0 0 -0.2 45 333 Tm (NOTE) Tj ET "
    parsed = draw(stamp + show(1, 330, TEXT[0]), "5 0 R")
    assert TEXT[0] in parsed.text


def test_parse_pdf__half_a_character_outside_the_first_plane_moves_no_letter() -> None:
    # LibreOffice gives a telephone of a symbol font as one half of its two codes.
    map_of_codes = (
        "/CMapName /a def 1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfchar <7e> <d83d> endbfchar"
    )
    objects: dict[int, bytes] = {
        2: b"<< /Type /Pages /Kids [10 0 R] /Count 1 >>",
        10: b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 400] /Contents 11 0 R /Resources << /Font << "
        b"/F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> "
        b"/F2 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 12 0 R >> >> >> >>",
        11: _stream(f"{show(2, 350, '~')}BT /F1 10 Tf 62 350 Td (555 1234) Tj ET {show(1, 320, TEXT[0])}"),
        12: _stream(map_of_codes),
    }
    assert parse(SourceDocument(source="a.pdf", data=pdf(objects))).text.split("\n") == ["555 1234", TEXT[0]]


def _stream(content: str) -> bytes:
    return f"<< /Length {len(content)} >>\nstream\n{content}\nendstream".encode("latin-1")


def test_parse_pdf__numbers_of_glyphs_are_read_as_their_letters() -> None:
    face = "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 1 1] /FontMatrix [1 0 0 1 0 0] /CharProcs << >> /FirstChar 0 "
    names = " ".join(f"/g{code}" for code in range(256))
    face += f"/LastChar 255 /Widths [{'0.5 ' * 256}] /Encoding << /Differences [0 {names}] >> >>"
    lines = []
    for at, text in enumerate(TEXT):
        codes = "".join(f"{ord(letter) - 29:02x}" for letter in text)
        lines.append(f"BT /F1 10 Tf 50 {350 - 12 * at} Td <{codes}> Tj ET ")
    assert draw("".join(lines), face).text.split("\n") == TEXT


def test_parse_pdf__accents_of_tex_belong_to_the_letters_below_them() -> None:
    # TeX draws the accent of each letter before it, at the same place; the i below one has no dot.
    encoding = "<< /Type /Encoding /BaseEncoding /StandardEncoding >>"
    face = f"<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman /Encoding {encoding} >>"
    words = "".join(
        f"BT /F1 10 Tf {left} 350 Td ({before}) Tj ET BT /F1 10 Tf {left + width} 350 Td (\\302) Tj ET "
        f"BT /F1 10 Tf {left + width} 350 Td ({letter}{after}) Tj ET "
        for left, before, width, letter, after in [(50, "M", 9, "e", "xico"), (90, "F", 5.5, "\\365", "sica")]
    )
    assert draw(words, face).text == "México Física"


def test_parse_pdf__double_accents_of_tex_belong_to_their_letters() -> None:
    encoding = "<< /Type /Encoding /BaseEncoding /StandardEncoding >>"
    face = f"<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman /Encoding {encoding} >>"
    parts = [(50, "el"), (58, "\\315"), (57.2, "o"), (62.2, "re")]
    words = "".join(f"BT /F1 10 Tf {left} 350 Td ({text}) Tj ET " for left, text in parts)
    assert draw(words, face).text == "előre"


def test_parse_pdf__letters_of_a_negative_size_that_are_turned_back_are_upright() -> None:
    words = "".join(
        f"BT /F1 -10 Tf -1 0 0 -1 {left} {y} Tm ({text}) Tj ET "
        for left, y, text in [(50, 350, "Precincts"), (120, 350, "Total"), (50, 330, "44"), (120, 330, "51,712")]
    )
    assert draw(words, font("Helvetica")).text == "Precincts Total\n44 51,712"


def test_parse_pdf__letters_of_an_arabic_ligature_are_in_order() -> None:
    # The fourth glyph draws two letters, which the file names in the order in which they are read.
    codes = {"a": "0627", "b": "0644", "c": "0645", "d": "0644 0627".replace(" ", ""), "e": "062A"}
    lines = "".join(f"<{ord(code):02x}> <{letters}>\n" for code, letters in codes.items())
    mapping = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapType 2 def\n"
        "1 begincodespacerange <00> <ff> endcodespacerange\n"
        f"{len(codes)} beginbfchar\n{lines}endbfchar endcmap end end"
    )
    face = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 40 0 R >>"
    # The page has the glyphs from left to right.
    content = "BT /F1 10 Tf 50 350 Td (edcba) Tj ET"
    others = {40: f"<< /Length {len(mapping)} >>\nstream\n{mapping}\nendstream".encode()}
    assert draw_pages([content], face, others=others).text == "\u0627\u0644\u0645\u0644\u0627\u062a"


def test_parse_pdf__a_cedilla_of_tex_belongs_to_the_letter_above_it() -> None:
    face = "<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman /Encoding /WinAnsiEncoding >>"
    words = "".join(
        f"BT /F1 10 Tf {left} {y} Td ({letters}) Tj ET "
        for left, y, letters in [(50, 350, "fa"), (57.8, 350, "\\270"), (57, 350, "con"), (50, 338, "atttttttt")]
    )
    assert draw(words, face).text.split() == ["façon", "atttttttt"]


@pytest.mark.parametrize("face", ["Helvetica", "Times-Roman", "Times-Italic"])
@pytest.mark.parametrize("size", [4, 6, 10])
@pytest.mark.parametrize("text", ["Run `open` or `use` it", "geht\xb4s, l\xb4eau d\xb4Artagnan, l\xb4Yser, \xb4zu"])
def test_parse_pdf__accents_that_were_typed_beside_letters_are_no_part_of_them(face: str, size: int, text: str) -> None:
    font = f"<< /Type /Font /Subtype /Type1 /BaseFont /{face} /Encoding /WinAnsiEncoding >>"
    assert draw(f"BT /F1 {size} Tf 50 350 Td ({text}) Tj ET", font).text == text


def count_calls_for_accents(lines: int) -> int:
    """Calls within the module that composes accents, for a page of some lines with three in the same columns."""
    content = "".join(f"BT /F1 .5 Tf 50 {399 - 0.9 * line} Td (`x `x `x) Tj ET " for line in range(lines))
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == glyphs.__file__

    sys.setprofile(count)
    try:
        text = draw(content, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>").text
    finally:
        sys.setprofile(None)
    assert text.count("x") == 3 * lines
    return calls


def test_accents__of_four_times_as_many_lines_are_not_compared_sixteen_times_as_often() -> None:
    few = count_calls_for_accents(100)
    assert 0 < count_calls_for_accents(400) < 6 * few
