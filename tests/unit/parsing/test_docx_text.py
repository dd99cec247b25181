"""What Word prints and its XML says elsewhere: numbers, notes, equations, charts."""

import io
import zipfile
from typing import Any

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse
from tests.files import save

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def parse_document(document: Any) -> ParsedDocument:
    return parse(SourceDocument(source="a.docx", data=save(document)))


def append(document: Any, xml: str) -> None:
    body = document.element.body
    body.insert(len(body) - 1, parse_xml(xml))


def relate(document: Any, kind: str, name: str, content: str, media_type: str = "application/xml") -> str:
    part = Part(PackURI(f"/word/{name}"), media_type, content.encode(), document.part.package)
    return str(document.part.relate_to(part, f"{OFFICE}/{kind}"))


def add_list(document: Any, levels: str) -> None:
    """Replace the lists of the template by one of the given levels, of number 7."""
    for rel in document.part.rels.values():
        if rel.reltype == RELATIONSHIP_TYPE.NUMBERING:
            rel.target_part._element = parse_xml(
                f'<w:numbering {W}><w:abstractNum w:abstractNumId="3">{levels}</w:abstractNum>'
                '<w:num w:numId="7"><w:abstractNumId w:val="3"/></w:num><w:num w:numId="8"><w:abstractNumId w:val="3"/>'
                '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride></w:num></w:numbering>'
            )


def level(number: int, style: str, text: str, start: int = 1) -> str:
    numbers = f'<w:start w:val="{start}"/><w:numFmt w:val="{style}"/><w:lvlText w:val="{text}"/>'
    return f'<w:lvl w:ilvl="{number}">{numbers}</w:lvl>'


def item(text: str, depth: int = 0, number: int = 7) -> str:
    return (
        f'<w:p {W}><w:pPr><w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/></w:numPr></w:pPr>'
        f"<w:r><w:t>{text}</w:t></w:r></w:p>"
    )


def test_parse_docx__numbers_and_bullets_are_those_printed() -> None:
    document = docx.Document()
    add_list(document, level(0, "decimal", "%1.", 3) + level(1, "lowerLetter", "%1.%2)") + level(2, "bullet", "\uf0b7"))
    for text, depth, number in (
        *(("one", 0, 7), ("inner", 1, 7), ("more", 1, 7), ("dot", 2, 7), ("two", 0, 7), ("again", 1, 7)),
        *(("own", 0, 8), ("none", 0, 99)),
    ):
        append(document, item(text, depth, number))
    assert parse_document(document).text.split("\n\n") == [
        *("3. one", "3.a) inner", "3.b) more", "- dot", "4. two", "4.a) again", "3. own", "none"),
    ]


def test_parse_docx__heading_of_a_style_based_on_one() -> None:
    document = docx.Document()
    style = document.styles.add_style("Chapter", WD_STYLE_TYPE.PARAGRAPH)
    style.base_style = document.styles["Heading 2"]
    document.add_paragraph("Results", style="Chapter")
    document.add_paragraph("words")
    assert [(h.level, h.title) for h in parse_document(document).headings] == [(2, "Results")]


def test_parse_docx__heading_by_outline_level() -> None:
    document = docx.Document()
    style = document.styles.add_style("Kapitel", WD_STYLE_TYPE.PARAGRAPH)
    style.element.get_or_add_pPr().append(parse_xml(f'<w:outlineLvl {W} w:val="1"/>'))
    document.add_paragraph("Contents", style="TOC Heading")
    document.add_paragraph("The plan", style="Kapitel")
    outlined = f'<w:p {W}><w:pPr><w:outlineLvl w:val="0"/></w:pPr><w:r><w:t>{{}}</w:t></w:r></w:p>'
    append(document, outlined.format("Its own level"))
    append(document, outlined.format("A text of many words. " * 20))
    assert [(h.level, h.title) for h in parse_document(document).headings] == [(2, "The plan"), (1, "Its own level")]


def test_parse_docx__list_style_and_levels_of_a_number() -> None:
    document = docx.Document()
    for rel in document.part.rels.values():
        if rel.reltype == RELATIONSHIP_TYPE.NUMBERING:
            rel.target_part._element = parse_xml(
                f'<w:numbering {W}><w:abstractNum w:abstractNumId="1"><w:numStyleLink w:val="Ours"/></w:abstractNum>'
                f'<w:abstractNum w:abstractNumId="2"><w:styleLink w:val="Ours"/>{level(0, "decimal", "%1.")}'
                '</w:abstractNum><w:num w:numId="7"><w:abstractNumId w:val="1"/></w:num>'
                '<w:num w:numId="8"><w:abstractNumId w:val="2"/></w:num>'
                f'<w:num w:numId="9"><w:abstractNumId w:val="1"/><w:lvlOverride w:ilvl="0">'
                f"{level(0, 'upperRoman', '%1)')}</w:lvlOverride></w:num></w:numbering>"
            )
    for text, number in (("one", 7), ("two", 8), ("three", 9)):
        append(document, item(text, number=number))
    assert parse_document(document).text == "1. one\n\n2. two\n\nIII) three"


def test_parse_docx__hidden_text_is_left_out() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("The price is ")
    paragraph.add_run("secret ").font.hidden = True
    paragraph.add_run("public").font.hidden = False
    assert parse_document(document).text == "The price is public"


def test_parse_docx__notes_and_comments_follow_their_paragraph() -> None:
    document = docx.Document()
    note = '<w:{0} w:id="{1}" w:author="Ann"><w:p><w:r><w:t>{2}</w:t></w:r></w:p></w:{0}>'
    relate(document, "footnotes", "footnotes.xml", f"<w:x {W}>{note.format('footnote', 2, 'A note.')}</w:x>")
    relate(document, "endnotes", "endnotes.xml", f"<w:x {W}>{note.format('endnote', 2, 'An end.')}</w:x>")
    relate(document, "comments", "comments2.xml", f"<w:x {W}>{note.format('comment', 5, 'Why?')}</w:x>")
    append(
        document,
        f'<w:p {W}><w:r><w:t>Words</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:t> and</w:t></w:r>'
        '<w:r><w:endnoteReference w:id="2"/></w:r><w:r><w:commentReference w:id="5"/></w:r>'
        '<w:r><w:footnoteReference w:id="9"/></w:r></w:p>',
    )
    document.add_paragraph("More.")
    assert parse_document(document).text.split("\n\n") == [
        "Words[1] and[2]",
        "[1] A note.",
        "[2] An end.",
        "Comment (Ann): Why?",
        "More.",
    ]


def test_parse_docx__superscripts_and_subscripts() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("10")
    for text, script in (("-", "sup"), ("6", "sup"), (" H", ""), ("2", "sub"), ("O, the 1", ""), ("st", "sup")):
        run = paragraph.add_run(text)
        if script:
            setattr(run.font, f"{script}erscript" if script == "sup" else "subscript", True)
    assert parse_document(document).text == "10^-6 H_2O, the 1st"


def test_parse_docx__formula_as_superscript_in_several_runs() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("x")
    for text in ("n", "+1"):
        paragraph.add_run(text).font.superscript = True
    paragraph.add_run(" Ca")
    paragraph.add_run("2+").font.superscript = True
    paragraph.add_run(" is")
    paragraph.add_run("see below").font.superscript = True
    assert parse_document(document).text == "x^(n+1) Ca^(2+) issee below"


def m(name: str, *parts: str) -> str:
    return f"<m:{name}>{''.join(parts)}</m:{name}>"


def t(text: str) -> str:
    return f"<m:r><m:rPr/><m:t>{text}</m:t></m:r>"


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        (m("f", m("num", t("a+b")), m("den", t("2"))), "(a+b)/2"),
        (m("sSup", m("e", t("x")), m("sup", t("2"))), "x^2"),
        (m("sSub", m("e", t("H")), m("sub", t("2"))) + t("O"), "H_2O"),
        (m("sSubSup", m("e", t("x")), m("sub", t("i")), m("sup", t("n+1"))), "x_i^(n+1)"),
        (m("rad", m("deg"), m("e", t("b-4"))), "√(b-4)"),
        (m("rad", m("deg", t("3")), m("e", t("8"))), "root3(8)"),
        (
            m("nary", "<m:naryPr><m:chr m:val='∑'/></m:naryPr>", m("sub", t("i=1")), m("sup", t("n")), m("e", t("i"))),
            "∑_(i=1)^n i",
        ),
        (m("d", "<m:dPr><m:begChr m:val='['/><m:endChr m:val=')'/></m:dPr>", m("e", t("0")), m("e", t("1"))), "[0|1)"),
        (m("m", m("mr", m("e", t("a")), m("e", t("b"))), m("mr", m("e", t("c")), m("e", t("d")))), "[a, b; c, d]"),
        (m("func", m("fName", t("sin")), m("e", t("x"))), "sin x"),
        (m("limLow", m("e", t("lim")), m("lim", t("n→∞"))), "lim_(n→∞)"),
        (m("eqArr", m("e", t("a")), m("e", t("b"))), "a; b"),
        (m("unknown", t("q")), "q"),
    ],
)
def test_parse_docx__equations_in_one_line(equation: str, text: str) -> None:
    document = docx.Document()
    append(document, f"<w:p {W} {M}><w:r><w:t>So </w:t></w:r><m:oMath>{equation}</m:oMath></w:p>")
    assert parse_document(document).text == f"So {text}"


CHART = """<c:chartSpace xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"
 xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><c:chart><c:title><c:tx><c:rich><a:p><a:r><a:t>Sales
</a:t></a:r></a:p></c:rich></c:tx></c:title><c:plotArea><c:barChart><c:ser><c:tx><c:strRef><c:strCache><c:pt idx="0">
<c:v>2024</c:v></c:pt></c:strCache></c:strRef></c:tx><c:cat><c:strRef><c:strCache><c:pt idx="0"><c:v>North</c:v></c:pt>
<c:pt idx="1"><c:v>South</c:v></c:pt></c:strCache></c:strRef></c:cat><c:val><c:numRef><c:numCache><c:pt idx="0"><c:v>12
</c:v></c:pt><c:pt idx="1"><c:v>7</c:v></c:pt></c:numCache></c:numRef></c:val></c:ser></c:barChart></c:plotArea>
</c:chart></c:chartSpace>"""
DIAGRAM = """<d:dataModel xmlns:d="http://schemas.openxmlformats.org/drawingml/2006/diagram"
 xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><d:t><a:p><a:r><a:t>First</a:t></a:r></a:p><a:p/></d:t>
<d:t><a:p><a:r><a:t>Then this</a:t></a:r></a:p></d:t></d:dataModel>"""


def test_parse_docx__charts_and_diagrams() -> None:
    document = docx.Document()
    document.add_paragraph("Before")
    chart = relate(document, "chart", "charts/chart1.xml", CHART)
    diagram = relate(document, "diagramData", "diagrams/data1.xml", DIAGRAM)
    drawing = (
        f'<w:p {W} {R} xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
        'xmlns:d="http://schemas.openxmlformats.org/drawingml/2006/diagram"><w:r><w:drawing>{}</w:drawing></w:r></w:p>'
    )
    append(document, drawing.format(f'<c:chart r:id="{chart}"/>'))
    append(document, drawing.format(f'<d:relIds r:dm="{diagram}"/>'))
    append(document, drawing.format('<c:chart r:id="rId999"/>'))
    parsed = parse_document(document)
    assert parsed.text == "Before\n\nSales\n2024\nNorth; 2024: 12\nSouth; 2024: 7\n\nFirst\nThen this"
    assert len(parsed.tables) == 1


def test_parse_docx__included_html_and_text() -> None:
    document = docx.Document()
    document.add_heading("Top", 1)
    html = relate(document, "aFChunk", "a.html", "<h2>Inside</h2><p>Words", "text/html")
    plain = relate(document, "aFChunk", "b.txt", "plain words", "text/plain")
    other = relate(document, "aFChunk", "c.rtf", "{\\rtf1}", "application/rtf")
    for identity in (html, plain, other, "rId999"):
        append(document, f'<w:altChunk {W} {R} r:id="{identity}"/>')
    parsed = parse_document(document)
    assert parsed.text == "Top\n\nInside\n\nWords\n\nplain words"
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "Top"), (2, "Inside")]


def test_parse_docx__style_based_on_itself_ends() -> None:
    document = docx.Document()
    style = document.styles.add_style("Loop", WD_STYLE_TYPE.PARAGRAPH)
    style.base_style = style
    document.add_paragraph("words", style="Loop")
    assert parse_document(document).text == "words"


def test_parse_docx__note_that_refers_to_itself_ends() -> None:
    document = docx.Document()
    note = '<w:footnote w:id="2"><w:p><w:r><w:t>a</w:t><w:footnoteReference w:id="2"/></w:r></w:p></w:footnote>'
    relate(document, "footnotes", "footnotes.xml", f"<w:x {W}>{note}</w:x>")
    append(document, f'<w:p {W}><w:r><w:t>b</w:t><w:footnoteReference w:id="2"/></w:r></w:p>')
    assert parse_document(document).text.startswith("b[1]")


def strict(data: bytes) -> bytes:
    """Write a DOCX with the names of strict Open XML."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            part = old.read(name).decode("latin-1")
            for transitional, name_of_strict in (
                ("http://schemas.openxmlformats.org/wordprocessingml/2006/main", "wordprocessingml/main"),
                ("http://schemas.openxmlformats.org/officeDocument/2006/relationships", "officeDocument/relationships"),
            ):
                part = part.replace(transitional, f"http://purl.oclc.org/ooxml/{name_of_strict}")
            new.writestr(name, part.encode("latin-1"))
    return out.getvalue()


def test_parse_docx__strict_open_xml(report_docx: bytes) -> None:
    parsed = parse(SourceDocument(source="a.docx", data=strict(report_docx)))
    assert parsed == parse(SourceDocument(source="a.docx", data=report_docx))


def test_parse_docx__xml_of_word_2003() -> None:
    source = (
        '<?xml version="1.0"?><?mso-application progid="Word.Document"?><w:wordDocument '
        'xmlns:w="http://schemas.microsoft.com/office/word/2003/wordml" xmlns:x="urn:x"><w:styles>'
        '<w:style w:styleId="b"><w:name w:val="heading 1"/></w:style></w:styles><w:body><x:sect><w:p><w:pPr>'
        '<w:pStyle w:val="b"/></w:pPr><w:r>'
        "<w:t>Top</w:t></w:r></w:p><w:p><w:r><w:t>Words</w:t></w:r><w:r><w:pict><w:binData>iVBORw0</w:binData></w:pict>"
        "</w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p>"
        "</w:tc></w:tr></w:tbl></x:sect></w:body></w:wordDocument>"
    )
    parsed = parse(SourceDocument(source="a.xml", data=source.encode()))
    assert parsed.text == "Top\n\nWords\n\na | b"
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "Top")]


@pytest.mark.parametrize("body", ["", "<w:p>", "</w:wordDocument>", "<!DOCTYPE a><w:body/>"])
def test_parse_docx__broken_xml_of_word_2003(body: str) -> None:
    data = f'<w:wordDocument xmlns:w="http://schemas.microsoft.com/office/word/2003/wordml">{body}'
    with pytest.raises(ParseError) as caught:
        parse(SourceDocument(source="a.xml", data=data.encode()))
    assert caught.value.code == "corrupt"


def text_box(*paragraphs: str) -> str:
    inside = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    content = f"<w:sdt><w:sdtContent>{inside}</w:sdtContent></w:sdt>"
    return f"<w:r><w:pict><w:txbxContent>{content}</w:txbxContent></w:pict></w:r>"


def test_parse_docx__a_text_box_is_paragraphs_of_its_own() -> None:
    document = docx.Document()
    box = text_box("The limit is 40 MB.", "It holds for all.")
    append(document, f"<w:p {W}>{box}<w:r><w:t>The paragraph that anchors it.</w:t></w:r></w:p>")
    document.add_paragraph("After it.")
    assert parse_document(document).text.split("\n\n") == [
        *("The paragraph that anchors it.", "The limit is 40 MB.", "It holds for all.", "After it."),
    ]


def include_html(document: Any, html: str) -> None:
    identity = relate(document, "aFChunk", "chunk.html", html, "text/html")
    append(document, f'<w:altChunk {W} {R} r:id="{identity}"/>')


@pytest.mark.parametrize(
    "doctype", ["<!DOCTYPE html>", '<!doctype html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "xhtml1-strict.dtd">']
)
def test_parse_docx__included_html_may_have_its_doctype(doctype: str) -> None:
    document = docx.Document()
    include_html(document, f"{doctype}<html><body><p>Words</p></body></html>")
    assert parse_document(document).text == "Words"


def test_parse_docx__included_html_declares_no_entities() -> None:
    document = docx.Document()
    include_html(document, '<!DOCTYPE html [<!ENTITY a "b">]><html><body><p>&a;</p></body></html>')
    with pytest.raises(ParseError) as caught:
        parse_document(document)
    assert caught.value.code == "corrupt"
