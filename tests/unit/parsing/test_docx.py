"""DOCX files made here: order, headings, tables, and archives that are not safe to open."""

import io
import re
import zipfile
from collections.abc import Callable

import docx
import pytest
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import qn

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse
from tests.files import save

NAMESPACES = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)


def parse_docx(data: bytes) -> ParsedDocument:
    return parse(SourceDocument(source="a.docx", data=data))


def parse_error(data: bytes) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_docx(data)
    return caught.value


def repacked(data: bytes, change: Callable[[str, bytes], bytes], **added: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
        for name, content in added.items():
            new.writestr(name, content)
    return out.getvalue()


def unchanged(_name: str, content: bytes) -> bytes:
    return content


def test_parse_docx__order_tables_and_headings(report_docx: bytes) -> None:
    parsed = parse_docx(report_docx)
    assert parsed.text == (
        "The Report\n\nBefore the table.\n\nResults\n\nRegion | Sales\nRegion: North; Sales: 12\n\n"
        "After\tthe table.\n\nDetails\n\nThe end."
    )
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "The Report"), (1, "Results"), (2, "Details")]
    assert all(parsed.text[h.start :].startswith(h.title) for h in parsed.headings)
    assert parsed.pages == ()


def test_parse_docx__title(report_docx: bytes) -> None:
    assert parse_docx(report_docx).title == "Annual Report"
    document = docx.Document()
    document.add_paragraph("words")
    assert parse_docx(save(document)).title is None
    document.add_heading("Chapter", 1)
    assert parse_docx(save(document)).title == "Chapter"


def test_parse_docx__title_is_not_made_up_without_properties(report_docx: bytes) -> None:
    def without_properties(name: str, content: bytes) -> bytes:
        return content.replace(b"metadata/core-properties", b"metadata/other") if name == "_rels/.rels" else content

    assert parse_docx(repacked(report_docx, without_properties)).title == "The Report"


def test_parse_docx__a_letterhead_is_read_once() -> None:
    document = docx.Document()
    document.add_paragraph("Dear Ms Berg, the goods have come.")
    section = document.sections[0]
    section.different_first_page_header_footer = True
    section.first_page_header.paragraphs[0].text = "ACME GmbH, Linz"
    table = section.header.add_table(1, 2, 5_000_000)
    table.cell(0, 0).text, table.cell(0, 1).text = "Reference", "4711"
    section.header.add_paragraph("ACME GmbH, Linz")
    section.footer.paragraphs[0].text = "IBAN AT61 1904"
    page = section.footer.add_paragraph("Page ")
    page._p.append(
        parse_xml(f'<w:fldSimple {docx.oxml.ns.nsdecls("w")} w:instr=" PAGE "><w:r><w:t>1</w:t></w:r></w:fldSimple>')
    )
    document.add_section()
    texts = ["ACME GmbH, Linz", "Reference", "4711", "Dear Ms Berg, the goods have come.", "IBAN AT61 1904"]
    assert parse_docx(save(document)).text.split("\n\n") == texts


def test_parse_docx__a_header_that_no_page_has_is_left_out() -> None:
    document = docx.Document()
    document.add_paragraph("The goods have come.")
    document.sections[0].first_page_header.paragraphs[0].text = "A first page of its own"
    document.sections[0].even_page_header.paragraphs[0].text = "An even page"
    assert parse_docx(save(document)).text == "The goods have come."


def test_parse_docx__headers_of_the_section_before_and_of_even_pages() -> None:
    document = docx.Document()
    document.settings.odd_and_even_pages_header_footer = True
    section = document.sections[0]
    section.first_page_header.paragraphs[0].text = "ACME GmbH, Linz"
    section.even_page_header.paragraphs[0].text = "Manual of the pump"
    document.add_paragraph("The pump.")
    document.add_section().different_first_page_header_footer = True
    assert parse_docx(save(document)).text.split("\n\n") == ["Manual of the pump", "ACME GmbH, Linz", "The pump."]


def simple_field(name: str) -> str:
    return f'<w:fldSimple w:instr=" {name} "><w:r><w:t>1</w:t></w:r></w:fldSimple>'


def complex_field(name: str, result: str = "") -> str:
    return (
        f'<w:r><w:fldChar w:fldCharType="begin"/><w:instrText> {name[:2]}</w:instrText></w:r>'
        f'<w:r><w:instrText>{name[2:]} \\* MERGEFORMAT </w:instrText><w:fldChar w:fldCharType="separate"/></w:r>'
        f'<w:r><w:t>{result}</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )


@pytest.mark.parametrize("field", [simple_field, complex_field])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("No. QM-17, valid from 1 March 2026<tab/>Page PAGE of NUMPAGES", "No. QM-17, valid from 1 March 2026"),
        ("No. QM-17<ptab/>Page PAGE", "No. QM-17"),
        ("Version 4 – PAGE/NUMPAGES – for staff", "Version 4 for staff"),
        ("S. PAGE | Valid to 2027", "Valid to 2027"),
        ("第PAGE页 共NUMPAGES页", ""),
        ("P a g e | PAGE", ""),
        ("PAGE | Page", ""),
        ("- PAGE -", ""),
        ("Author AUTHOR", "Author 1"),
        ("* * *", "* * *"),
    ],
)
def test_parse_docx__a_page_number_goes_with_its_word_alone(
    field: Callable[[str], str], content: str, expected: str
) -> None:
    inner = "".join(
        field(piece)
        if piece in ("PAGE", "NUMPAGES")
        else complex_field(piece, "1")
        if piece == "AUTHOR"
        else f"<w:r><w:{piece[1:]}</w:r>"
        if piece.startswith("<")
        else f'<w:r><w:t xml:space="preserve">{piece}</w:t></w:r>'
        for piece in re.split(r"(NUMPAGES|PAGE|AUTHOR|<\w+/>)", content)
    )
    document = docx.Document()
    document.add_paragraph("The text.")
    document.sections[0].footer._element.append(parse_xml(f"<w:p {NAMESPACES}>{inner}</w:p>"))
    assert parse_docx(save(document)).text.split("\n\n")[1:] == [text for text in [expected] if text]


@pytest.mark.parametrize("is_known", [True, False])
def test_parse_docx__a_broken_header_does_not_fail_the_file(is_known: bool) -> None:
    document = docx.Document()
    document.add_paragraph("The text.")
    document.sections[0].header.paragraphs[0].text = "ACME GmbH, Linz"
    document.sections[0].footer.paragraphs[0].text = "IBAN AT61 1904"

    def broken(name: str, content: bytes) -> bytes:
        if name == "[Content_Types].xml" and not is_known:
            return content.replace(b"application/vnd.openxmlformats-officedocument.wordprocessingml.header+xml", b"a/b")
        return b"<w:hdr" if name.startswith("word/header") else content

    assert parse_docx(repacked(save(document), broken)).text == "The text.\n\nIBAN AT61 1904"


def test_parse_docx__blank_paragraphs_and_rows_leave_no_trace() -> None:
    document = docx.Document()
    for text in ("", "  ", "one", "\n", "  two\n"):
        document.add_paragraph(text)
    document.add_table(rows=2, cols=2)
    document.add_heading("", 1)
    parsed = parse_docx(save(document))
    assert parsed.text == "one\n\n  two"
    assert parsed.headings == ()


def test_parse_docx__merged_cells_are_written_once() -> None:
    document = docx.Document()
    table = document.add_table(rows=1, cols=3)
    merged = table.cell(0, 0).merge(table.cell(0, 1))
    merged.text = "wide"
    table.cell(0, 2).text = "two\nlines"
    assert parse_docx(save(document)).text == "wide | two lines"


def test_parse_docx__wrapped_and_tracked_content() -> None:
    document = docx.Document()
    body = document.element.body
    for xml in (
        "<w:sdt {}><w:sdtContent><w:p><w:r><w:t>in a control</w:t></w:r></w:p></w:sdtContent></w:sdt>",
        (
            "<w:p {}><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins><w:del><w:r><w:t>no</w:t></w:r></w:del>"
            "<w:moveFrom><w:r><w:t>no</w:t></w:r></w:moveFrom></w:p>"
        ),
        (
            "<w:p {}><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/>"
            "<w:t>c</w:t><w:noBreakHyphen/><w:t>d</w:t></w:r></w:p>"
        ),
        (
            "<w:p {}><w:r><mc:AlternateContent><mc:Choice><w:p><w:r><w:t>box</w:t></w:r></w:p></mc:Choice>"
            "<mc:Fallback><w:t>no</w:t></mc:Fallback></mc:AlternateContent></w:r></w:p>"
        ),
    ):
        body.insert(len(body) - 1, parse_xml(xml.format(NAMESPACES)))
    assert parse_docx(save(document)).text == "in a control\n\ninserted\n\na\tb\nc-d\n\nbox"


def test_parse_docx__nested_table_stays_in_its_cell() -> None:
    document = docx.Document()
    cell = document.add_table(rows=1, cols=2).cell(0, 0)
    cell.text = "outer"
    cell.add_table(rows=1, cols=1).cell(0, 0).text = "inner"
    assert parse_docx(save(document)).text == "outer inner"


def test_parse_docx__without_text_is_empty() -> None:
    assert parse_error(save(docx.Document())).code == "empty"


@pytest.mark.parametrize(
    "kind",
    [
        "vnd.ms-word.document.macroEnabled.main+xml",
        "vnd.openxmlformats-officedocument.wordprocessingml.template.main+xml",
        "vnd.ms-word.template.macroEnabledTemplate.main+xml",
    ],
)
def test_parse_docx__files_with_macros_and_templates_are_documents(report_docx: bytes, kind: str) -> None:
    def of_kind(name: str, content: bytes) -> bytes:
        main = b"vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
        return content.replace(main, kind.encode()) if name == "[Content_Types].xml" else content

    parsed = parse_docx(repacked(report_docx, of_kind, **{"word/vbaProject.bin": b"\xd0\xcf\x11\xe0macros"}))
    assert parsed == parse_docx(report_docx)


def test_parse_docx__another_kind_of_word_file_is_unsupported(report_docx: bytes) -> None:
    def glossary(name: str, content: bytes) -> bytes:
        return content.replace(b"document.main+xml", b"document.glossary+xml")

    error = parse_error(repacked(report_docx, glossary))
    assert error.code == "unsupported"
    assert "glossary" in str(error)


def test_parse_docx__table_of_one_column_is_layout() -> None:
    document = docx.Document()
    box = document.add_table(rows=2, cols=1)
    box.cell(0, 0).text = "First in the box."
    box.cell(0, 0).add_paragraph("A title in the box", style="Heading 2")
    inner = box.cell(1, 0).add_table(rows=2, cols=2)
    for cell, text in zip(inner.rows[0].cells + inner.rows[1].cells, ["Plan", "Seats", "Basic", "15"], strict=True):
        cell.text = text
    parsed = parse_docx(save(document))
    assert parsed.text == "First in the box.\n\nA title in the box\n\nPlan | Seats\nPlan: Basic; Seats: 15"
    assert [(h.level, h.title) for h in parsed.headings] == [(2, "A title in the box")]


def test_parse_docx__text_of_a_cell_is_not_repeated_for_its_tables() -> None:
    document = docx.Document()
    outer = document.add_table(rows=1, cols=2)
    cell, outer.cell(0, 1).text = outer.cell(0, 0), "right"
    cell.text = "long text"
    for _ in range(3):
        inner = cell.add_table(rows=1, cols=2)
        inner.cell(0, 0).text, inner.cell(0, 1).text = "a", "b"
    assert parse_docx(save(document)).text == "long text | right\n\na | b\n\na | b\n\na | b"


def test_parse_docx__table_in_a_cell_follows_under_the_name_of_its_row() -> None:
    document = docx.Document()
    outer = document.add_table(rows=1, cols=2)
    outer.cell(0, 0).text = "left"
    outer.cell(0, 1).text = "right"
    inner = outer.cell(0, 1).add_table(rows=2, cols=2)
    for cell, text in zip(inner.rows[0].cells + inner.rows[1].cells, ["Plan", "Seats", "Basic", "15"], strict=True):
        cell.text = text
    assert parse_docx(save(document)).text == "left | right\n\nleft\nPlan | Seats\nPlan: Basic; Seats: 15"


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"bomb.bin": bytes(8 * 2**20)}, "times its size"),
        ({f"member{number}": b"" for number in range(2_000)}, "members"),
    ],
    ids=["ratio", "members"],
)
def test_parse_docx__bomb_is_too_large(report_docx: bytes, added: dict[str, bytes], message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        parse_docx(repacked(report_docx, unchanged, **added))
    assert caught.value.code == "too_large"


def test_parse_docx__declared_size_is_too_large(report_docx: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(report_docx)) as archive:
        size = archive.getinfo("word/document.xml").file_size
    forged = report_docx.replace(size.to_bytes(4, "little"), (300 * 2**20).to_bytes(4, "little"))
    assert parse_error(forged).code == "too_large"


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil", "word\\..\\evil", "C:\\evil"])
def test_parse_docx__member_outside_the_archive(report_docx: bytes, name: str) -> None:
    error = parse_error(repacked(report_docx, unchanged, **{name: b"x"}))
    assert error.code == "corrupt"
    assert "points outside" in str(error)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_parse_docx__doctype_is_refused(report_docx: bytes, encoding: str) -> None:
    def with_doctype(name: str, content: bytes) -> bytes:
        if name != "word/document.xml":
            return content
        declaration, _, root = content.decode().partition("?>")
        doctype = '<!DOCTYPE w [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
        return f"{declaration.replace('UTF-8', encoding)}?>{doctype}{root}".encode(encoding)

    with pytest.raises(ParseError, match="DOCTYPE") as caught:
        parse_docx(repacked(report_docx, with_doctype))
    assert caught.value.code == "corrupt"


def test_parse_docx__encrypted_member(report_docx: bytes) -> None:
    data = bytearray(report_docx)
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 8] |= 1
    assert parse_error(bytes(data)).code == "encrypted"


def test_parse_docx__malformed_xml_is_corrupt(report_docx: bytes) -> None:
    def malformed(name: str, content: bytes) -> bytes:
        return content[:-20] if name == "word/document.xml" else content

    error = parse_error(repacked(report_docx, malformed))
    assert error.code == "corrupt"
    assert error.__cause__ is not None


def test_parse_docx__truncated_anywhere(report_docx: bytes) -> None:
    for cut in range(4, len(report_docx), 401):
        assert parse_error(report_docx[:cut]).code == "corrupt"


def test_parse_docx__merged_cells_and_rows_that_begin_late() -> None:
    document = docx.Document()
    document.add_paragraph("Table 1: sales", style="Caption")
    table = document.add_table(rows=4, cols=3)
    for row, line in enumerate(["Region|2024|", "|Q1|Q2", "North|1|2", "|3|4"]):
        for column, text in enumerate(line.split("|")):
            table.cell(row, column).text = text
    table.cell(0, 1).merge(table.cell(0, 2))
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(2, 0).merge(table.cell(3, 0))
    late = table.add_row()._tr
    late.remove(late.tc_lst[0])
    late.get_or_add_trPr().append(OxmlElement("w:gridBefore", {qn("w:val"): "1"}))
    late.tc_lst[0].p_lst[0].add_r().text = "5"
    parsed = parse_docx(save(document))
    assert parsed.text.split("\n") == [
        "Table 1: sales",
        "Region | 2024 / Q1 | 2024 / Q2",
        "Region: North; 2024 / Q1: 1; 2024 / Q2: 2",
        "Region: North; 2024 / Q1: 3; 2024 / Q2: 4",
        "2024 / Q1: 5",
    ]
    assert parsed.tables[0].context == ("Table 1: sales", "Region | 2024 / Q1 | 2024 / Q2")


def test_parse_docx__rows_marked_as_header() -> None:
    document = docx.Document()
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(table._cells, ["10", "20", "30", "40"], strict=True):
        cell.text = text
    table.rows[0]._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
    assert parse_docx(save(document)).text == "10 | 20\n10: 30; 20: 40"
