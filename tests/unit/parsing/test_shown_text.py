"""What a person sees in a file: forms, deleted words, notes, invitations, names in other encodings."""

import json
import time
import zipfile
from email.message import EmailMessage
from io import BytesIO
from typing import Any

import docx
import pytest
from docx.table import Table as WordTable
from docx.text.paragraph import Paragraph
from pptx import Presentation
from pptx.util import Inches

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing.file_parser import parse
from kosmos_rag.parsing.office.boxes import order_boxes


def parse_named(source: str, data: bytes | str) -> ParsedDocument:
    return parse(SourceDocument(source=source, data=data.encode() if isinstance(data, str) else data))


def save(file: Any) -> bytes:
    buffer = BytesIO()
    file.save(buffer)
    return buffer.getvalue()


def fill(table: WordTable, *rows: str) -> None:
    for row, line in zip(table.rows, rows, strict=True):
        for cell, text in zip(row.cells, line.split("|"), strict=True):
            cell.text = text


def add_table(document: Any, *rows: str) -> WordTable:
    table: WordTable = document.add_table(rows=len(rows), cols=rows[0].count("|") + 1)
    fill(table, *rows)
    return table


FORM = ("Name|Jürgen Groß|Personalnr.|4711", "Abteilung|Einkauf|Datum|03.04.2026", "Zweck|Messe|Projekt|P-17")
EXPENSES = ("Datum|Art|Ort|Betrag", "01.04.|Hotel|Köln|120,00", "02.04.|Taxi|Köln|34,50")
FORM_TEXT = "Name: Jürgen Groß; Personalnr.: 4711\nAbteilung: Einkauf; Datum: 03.04.2026\nZweck: Messe; Projekt: P-17"
EXPENSES_TEXT = (
    "Datum | Art | Ort | Betrag\n"
    "Datum: 01.04.; Art: Hotel; Ort: Köln; Betrag: 120,00\nDatum: 02.04.; Art: Taxi; Ort: Köln; Betrag: 34,50"
)


def test_form__above_a_table_names_none_of_its_columns() -> None:
    document = docx.Document()
    add_table(document, *FORM, *EXPENSES)
    assert parse_named("form.docx", save(document)).text == f"{FORM_TEXT}\n\n{EXPENSES_TEXT}"
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row.split('|'))}</tr>" for row in (*FORM, *EXPENSES))
    page = parse_named("form.html", f"<!DOCTYPE html><table>{rows}</table>")
    assert page.text == f"{FORM_TEXT}\n\n{EXPENSES_TEXT}"


def test_form__of_a_sheet_keeps_the_places_of_its_cells() -> None:
    import openpyxl

    workbook = openpyxl.Workbook()
    for row in (*FORM, *EXPENSES):
        workbook.active.append(row.split("|"))
    parsed = parse_named("form.xlsx", save(workbook))
    assert parsed.text == f"Sheet\n\n{FORM_TEXT}\n\n{EXPENSES_TEXT}"
    at = parsed.text.index("Datum: 02.04.")
    assert [place.cells for place in parsed.places if place.start == at] == ["A6:D6"]


@pytest.mark.parametrize(
    "rows",
    [
        ("Name|Team|Result", "Ann|x|5", "Ben|y|absent", "Cid|x|7", "Dan|z|8"),
        ("Name|Team|Phone|Room", "Ann|x|unknown|a", "Ben|y|on request|b", "Cid|x|123|c", "Dan|x|456|d"),
        ("Station|Region|Pollutant|Level", "Linz|north|PM10|low", "Graz|south|CO2|high"),
        ("Region|Q1|Q2|Q3", "North|10|20|30", "South|11|21|31"),
        ("Region|Q1", "North|10", "South|11"),
        ("Name|Address 1|City|Country", "Smith|34 Main St|London|UK", "Jones|12 High St|Leeds|UK"),
        ("Feature|Office 365", "Mail|yes", "Chat|no"),
        ("Symptom|Type 2 diabetes", "Thirst|common", "Fatigue|rare"),
        ("Ada|ada@x.org|Lead|London", "Bob|bob@x.org|Dev|Paris"),
        ("Ann|5|Ben|7", "Cid|8|Dan|9"),
        ("x|y|z|1",),
    ],
)
def test_table__with_words_between_numbers_is_no_form(rows: tuple[str, ...]) -> None:
    document = docx.Document()
    add_table(document, *rows)
    assert parse_named("table.docx", save(document)).text.startswith(rows[0].replace("|", " | "))


def test_table__of_four_words_says_nothing_of_their_roles() -> None:
    document = docx.Document()
    add_table(document, "Kunde|Müller GmbH", "Ort|Graz")
    assert parse_named("table.docx", save(document)).text == "Kunde | Müller GmbH\nOrt | Graz"


def embolden(*paragraphs: Paragraph) -> None:
    for paragraph in paragraphs:
        for run in paragraph.runs:
            run.bold = True


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (("Name|Ada", "City|London", "Role|Author"), "Name: Ada\nCity: London\nRole: Author"),
        (("Name|Ada|City|London", "Role|Author|Land|UK"), "Name: Ada; City: London\nRole: Author; Land: UK"),
    ],
)
def test_labels__in_bold_letters_name_the_values_beside_them(rows: tuple[str, ...], text: str) -> None:
    document = docx.Document()
    table = add_table(document, *rows)
    embolden(*(paragraph for row in table.rows for cell in row.cells[::2] for paragraph in cell.paragraphs))
    assert parse_named("labels.docx", save(document)).text == text


def test_first_row__in_bold_letters_names_the_columns() -> None:
    document = docx.Document()
    table = add_table(document, "Server|Use", "db1|files")
    embolden(*(paragraph for cell in table.rows[0].cells for paragraph in cell.paragraphs))
    assert parse_named("bold.docx", save(document)).text == "Server | Use\nServer: db1; Use: files"


@pytest.mark.parametrize(
    ("rows", "bold", "text"),
    [
        (("Total|500", "Wages|300", "Rent|200"), (0,), "Total | 500\nWages | 300\nRent | 200"),
        (("Plan|Price", "Basic|10", "Pro|10", "Note|see below"), (0, 1, 2), "Plan: Price\nBasic: 10\nPro: 10"),
        (("Day|Sum", "2026-01-01|open", "2026-01-02|shut"), (0, 1), "Day | Sum\nDay: 2026-01-01; Sum: open"),
    ],
)
def test_rows__in_bold_letters_with_numbers_name_no_columns(
    rows: tuple[str, ...], bold: tuple[int, ...], text: str
) -> None:
    document = docx.Document()
    table = add_table(document, *rows)
    embolden(*(paragraph for row in bold for cell in table.rows[row].cells for paragraph in cell.paragraphs))
    assert parse_named("bold.docx", save(document)).text.startswith(text)


def test_first_column__in_bold_letters_is_below_a_header() -> None:
    document = docx.Document()
    table = add_table(document, "Plan|Price", "Basic|10", "Pro|20")
    embolden(*(paragraph for cell in table.columns[0].cells for paragraph in cell.paragraphs))
    expected = "Plan | Price\nPlan: Basic; Price: 10\nPlan: Pro; Price: 20"
    assert parse_named("bold.docx", save(document)).text == expected


def test_text__that_is_struck_through_is_left_out() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Fee: ")
    paragraph.add_run("90").font.strike = True
    paragraph.add_run(" 80")
    presentation = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    frame = slide.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame
    for text, strike in (("Fee: ", "noStrike"), ("90", "sngStrike"), (" 80", "noStrike")):
        run = frame.paragraphs[0].add_run()
        run.text = text
        run.font._element.set("strike", strike)
    pages = (
        f"<p>Fee: {old} 80</p>"
        for old in ("<s>90</s>", "<strike>90</strike>", '<b style="text-decoration: line-through">90</b>')
    )
    files: dict[str, bytes | str] = {
        "a.docx": save(document),
        "a.pptx": save(presentation),
        "a.fodt": flat_odf("<text:p>Fee: <text:span text:style-name='S'>90</text:span> 80</text:p>"),
    }
    texts = [parse_named(name, data).text for name, data in files.items()]
    texts += [parse_named("a.html", f"<!DOCTYPE html><body>{page}").text for page in pages]
    assert [" ".join(text.split()) for text in texts] == ["Fee: 80"] * 6


def flat_odf(body: str) -> str:
    names = {
        "office": "office", "text": "text", "table": "table", "style": "style", "draw": "drawing",
        "svg": "svg-compatible", "presentation": "presentation",
    }  # fmt: skip
    spaces = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{uri}:1.0"' for name, uri in names.items())
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<office:document {spaces} '
        'office:mimetype="application/vnd.oasis.opendocument.text"><office:automatic-styles>'
        '<style:style style:name="S" style:family="text"><style:text-properties style:text-line-through-style="solid"/>'
        f"</style:style></office:automatic-styles><office:body><office:text>{body}</office:text></office:body>"
        "</office:document>"
    )


def test_parse_odf__headers_and_footers_of_the_pages_once() -> None:
    pages = (
        "<office:master-styles><style:master-page style:name='Standard'>"
        "<style:header><text:p>ACME Ltd, Linz</text:p></style:header>"
        "<style:header-first style:display='false'><text:p>Not shown</text:p></style:header-first>"
        "<style:footer><text:p>Bank: AT12 3456 Page <text:page-number>1</text:page-number></text:p></style:footer>"
        "</style:master-page><style:master-page style:name='Envelope'>"
        "<style:header><text:p>Not on a page</text:p></style:header></style:master-page></office:master-styles>"
    )
    data = flat_odf("<text:p>The letter.</text:p>").replace("<office:body>", f"{pages}<office:body>")
    assert parse_named("a.fodt", data).text.split("\n\n") == ["ACME Ltd, Linz", "The letter.", "Bank: AT12 3456"]


def test_parse_odf__headers_of_pages_whose_named_style_a_paragraph_has() -> None:
    pages = "".join(
        f"<style:master-page style:name='{name}'><style:header><text:p>{name}</text:p></style:header>"
        "</style:master-page>"
        for name in ("Standard", "First", "Envelope")
    )
    styles = "".join(
        f"<style:style style:name='{name}' style:family='paragraph' style:master-page-name='{page}'/>"
        for name, page in [("Title", "First"), ("Sender", "Envelope")]
    )
    parts = f"<office:styles>{styles}</office:styles><office:master-styles>{pages}</office:master-styles>"
    data = flat_odf("<text:p text:style-name='Title'>The letter.</text:p>")
    text = parse_named("a.fodt", data.replace("<office:body>", f"{parts}<office:body>")).text
    assert text.split("\n\n") == ["Standard", "First", "The letter."]


def odf_table(*rows: list[str]) -> str:
    cells = (
        "".join(
            f"<table:table-cell>{cell if '<' in cell else f'<text:p>{cell}</text:p>'}</table:table-cell>"
            for cell in row
        )
        for row in rows
    )
    return f"<table:table>{''.join(f'<table:table-row>{row}</table:table-row>' for row in cells)}</table:table>"


def test_odf__table_in_a_cell_is_a_table_of_its_own() -> None:
    inner = odf_table(["Port", "Use"], ["22", "ssh"], ["80", "http"])
    outer = odf_table(["Server", "Ports", "State"], ["db1", inner, "open"], ["db2", "none", "closed"])
    assert parse_named("a.fodt", flat_odf(outer)).text == (
        "Server | Ports | State\nServer: db1; State: open\nServer: db2; Ports: none; State: closed\n\n"
        "db1\nPort | Use\nPort: 22; Use: ssh\nPort: 80; Use: http"
    )


def test_odf__table_of_one_column_arranges_the_page() -> None:
    assert (
        parse_named("a.fodt", flat_odf(odf_table(["<text:h text:outline-level='1'>Box</text:h>"]))).headings[0].title
        == "Box"
    )


def test_odf__pictures_and_hidden_rows_are_no_text() -> None:
    hidden = "<table:table-row table:visibility='collapse'>{}</table:table-row>".format(
        "<table:table-cell><text:p>gone</text:p></table:table-cell>"
    )
    picture = "<draw:frame><draw:image><office:binary-data>aGVsbG8=</office:binary-data></draw:image></draw:frame>"
    table = odf_table(["<text:p>Box</text:p>"]).replace("</table:table>", f"{hidden}</table:table>")
    data = flat_odf(f"<text:p>One {picture}word</text:p>{table}")
    assert parse_named("a.fodt", data).text.split() == ["One", "word", "Box"]
    two_cells = table.replace("<text:p>gone</text:p></table:table-cell>", "</table:table-cell><table:table-cell/>")
    assert parse_named("a.fodt", flat_odf(two_cells)).text == "Box"


@pytest.mark.parametrize("kind", ["'{}'", '"{}-template"'])
def test_odf__flat_file_is_known_by_its_type(kind: str) -> None:
    name = "application/vnd.oasis.opendocument.text"
    data = flat_odf("<text:p>word</text:p>").replace(f'"{name}"', kind.format(name))
    assert parse_named("a.fodt", data).text == "word"


def test_odf__boxes_of_a_slide_are_read_by_their_places() -> None:
    def box(name: str, left: int, top: int, kind: str = "") -> str:
        return (
            f'<draw:frame svg:x="{left}cm" svg:y="{top}cm" svg:width="4cm" svg:height="1cm"{kind}>'
            f"<draw:text-box><text:p>{name}</text:p></draw:text-box></draw:frame>"
        )

    boxes = [("right", 9, 5), ("low", 1, 8), ("left", 1, 5)]
    page = "".join(box(*each) for each in boxes) + box("Title", 1, 9, ' presentation:class="title"')
    data = (
        flat_odf("")
        .replace("opendocument.text", "opendocument.presentation")
        .replace("office:text", "office:presentation")
    )
    body = f"<draw:page>{page}</draw:page>"
    parsed = parse_named("a.fodp", data.replace("<office:presentation>", f"<office:presentation>{body}"))
    assert parsed.text.split() == ["Title", "left", "low", "right"]


def test_order_boxes__of_many_rows() -> None:
    rows = [[(left, 24 * row, left + 50, 24 * row + 10) for left in (0, 60)] for row in range(1_000)]
    boxes = [box for row in rows for box in row]
    assert order_boxes(boxes[::-1], lambda box: box) == boxes
    pages = [(0, 24 * row, 50, 24 * row + 10) for row in range(600)]
    started = time.process_time()
    assert order_boxes(pages, lambda box: box) == pages
    assert time.process_time() - started < 5


def test_pptx__rows_of_cards_are_read_row_by_row() -> None:
    presentation = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    for top in (0, 1):
        for left in (0, 1):
            for number, part in enumerate(("head", "text")):
                place = Inches(0.5 + 3 * left), Inches(1 + 3 * top + 0.6 * number), Inches(2.5), Inches(0.5)
                slide.shapes.add_textbox(*place).text_frame.text = f"{part}{top}{left}"
    expected = ["head00", "text00", "head01", "text01", "head10", "text10", "head11", "text11"]
    assert parse_named("cards.pptx", save(presentation)).text.split() == expected


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ('In 2019<sup><a href="#fn1">1</a></sup>.', "In 2019[1]."),
        ('Seen<a href="#fn2" role="doc-noteref"><sup>2</sup></a>', "Seen[2]"),
        ('Seen<a href="#n" class="footnote-ref">3</a>', "Seen[3]"),
        ('Part<a href="#part">3</a>', "Part3"),
        ('1<sup><a href="#a">st</a></sup> of May', "1st of May"),
        ("<ruby>漢字<rp>(</rp><rt>かんじ</rt><rp>)</rp></ruby>", "漢字"),
        ("Donau&shy;dampf", "Donaudampf"),
        ('<div class="tab-pane active">apt</div><div class="tab-pane" style="display: none">brew</div>', "apt\n\nbrew"),
    ],
)
def test_html__words_are_as_they_are_seen(markup: str, text: str) -> None:
    assert parse_named("a.html", f"<!DOCTYPE html><html><body>{markup}</body></html>").text == text
    cell = parse_named("a.html", f"<!DOCTYPE html><table><tr><th>A<th>B<tr><td>x<td>{markup}</table>").text
    assert cell == f"A | B\nA: x; B: {' '.join(text.split())}"


EVENT = """BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Fair
DTSTART;VALUE=DATE:20260201
DTEND;VALUE=DATE:20260203
RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;UNTIL=20261231;WKST=MO
EXDATE;TZID=Europe/Vienna:20260301T100000,20260302T100000
ATTENDEE;CN=Ben;PARTSTAT=DECLINED:mailto:ben@example.org
DURATION:PT1H30M
BEGIN:VALARM
DESCRIPTION:Reminder
END:VALARM
END:VEVENT
BEGIN:VEVENT
DTSTART:20260401T080000Z
END:VEVENT
END:VCALENDAR
"""


def test_calendar__says_what_programs_show() -> None:
    parsed = parse_named("a.ics", EVENT)
    assert parsed.text == (
        "Fair\n\nStart: 2026-02-01\nEnd: 2026-02-02\nRepeats: every 2 weeks on MO, WE until 2026-12-31\n"
        "Not on: 2026-03-01 10:00 Europe/Vienna, 2026-03-02 10:00 Europe/Vienna\n"
        "Attendee: Ben (ben@example.org), declined\nDuration: 1 h 30 min\n\nEvent\n\nStart: 2026-04-01 08:00 UTC"
    )
    assert [heading.title for heading in parsed.headings] == ["Fair", "Event"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("DTSTART;VALUE=DATE:20260201\nDTEND;VALUE=DATE:20260201", "Start: 2026-02-01"),
        ("DTSTART:20260201\nDURATION:-PT15M", "Start: 2026-02-01\nDuration: -15 min"),
        ("BEGIN:VALARM\nDESCRIPTION:no\nEND:VALARM\nEND:VALARM\nDTSTART:20260201", "Start: 2026-02-01"),
    ],
)
def test_calendar__of_odd_times_and_components(lines: str, text: str) -> None:
    calendar = f"BEGIN:VCALENDAR\nBEGIN:VEVENT\n{lines}\nEND:VEVENT\nEND:VCALENDAR\n"
    assert parse_named("a.ics", calendar).text == f"Event\n\n{text}"


def test_address_book__keeps_spaces_after_soft_line_ends() -> None:
    note = "NOTE;ENCODING=QUOTED-PRINTABLE:Hello=\n World=3D and=\n  more =\nlast"
    card = f"BEGIN:VCARD\nN:Lee;Ada\n{note}\nURL:http://a/?b=\n 1\nEND:VCARD\n"
    assert parse_named("a.vcf", card).text == "Ada Lee\n\nNote: Hello World= and more last\nURL: http://a/?b=1"


def test_address_book__of_an_old_version_is_decoded() -> None:
    card = (
        "BEGIN:VCARD\nVERSION:2.1\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCller;J=C3=\n=BCrgen\n"
        "TEL;HOME:123\nNOTE;CHARSET=ISO-8859-1;QUOTED-PRINTABLE:gr=FCn\nEND:VCARD\n"
    )
    assert parse_named("a.vcf", card).text == "Jürgen Müller\n\nPhone (home): 123\nNote: grün"


def test_xml__is_read_in_the_encoding_that_it_declares() -> None:
    for kind, element in (
        ("xml", "<a><b>grün</b></a>"),
        ("svg", '<svg xmlns="http://www.w3.org/2000/svg"><text>grün</text></svg>'),
    ):
        for encoding, declared in (("latin-1", "ISO-8859-1"), ("utf-8", "ISO-8859-1"), ("utf-8", "utf-8")):
            data = f"<?xml version='1.0' encoding='{declared}'?>\n{element}".encode(encoding)
            assert parse_named(f"a.{kind}", data).text.endswith("grün")


def test_feed__entry_without_a_title_has_a_section() -> None:
    items = "<item><title>A &lt;b&gt;bold&lt;/b&gt; one</title></item><item><description>Two</description></item>"
    parsed = parse_named("a.rss", f"<rss><channel>{items}</channel></rss>")
    assert parsed.text == "A bold one\n\nEntry\n\nTwo"
    assert [heading.title for heading in parsed.headings] == ["A bold one", "Entry"]


@pytest.mark.parametrize(("kind", "title"), [("", "use <b> tags"), (" type='html'", "use tags")])
def test_feed__title_of_atom_is_text_without_a_type(kind: str, title: str) -> None:
    entry = f"<entry><title{kind}>use &lt;b&gt; tags</title></entry>"
    parsed = parse_named("a.atom", f'<feed xmlns="http://www.w3.org/2005/Atom">{entry}</feed>')
    assert [heading.title for heading in parsed.headings] == [title]


def test_svg__shows_neither_hidden_texts_nor_second_copies() -> None:
    parts = (
        '<switch><foreignObject><p xmlns="http://www.w3.org/1999/xhtml">Node</p></foreignObject><text>Node</text></switch>'
        '<text display="none">gone</text><g style="display: none"><text>gone</text></g><defs><text>gone</text></defs>'
    )
    assert parse_named("a.svg", f'<svg xmlns="http://www.w3.org/2000/svg">{parts}</svg>').text == "Node"
    extension = '<foreignObject requiredExtensions="http://ns.adobe.com/AdobeIllustrator/10.0/" width="1"/>'
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg"><switch>{extension}<g><text>Sales</text></g></switch></svg>'
    assert parse_named("a.svg", drawing).text == "Sales"


def test_diagrams__name_lanes_shapes_without_labels_and_fields() -> None:
    process = (
        '<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL"><process id="p"><lane id="l" name="Sales">'
        '<flowNodeRef>t</flowNodeRef></lane><task id="t" name="Check"/><endEvent id="e"/>'
        '<sequenceFlow id="f" name="yes" sourceRef="t" targetRef="e"/></process></definitions>'
    )
    assert parse_named("a.bpmn", process).text == "lane: Sales (Check)\ntask: Check\nCheck → end event: yes"
    cell = '<UserObject label="Host %host%" placeholders="1" host="db1" id="2"><mxCell vertex="1"/></UserObject>'
    assert parse_named("a.drawio", f"<mxGraphModel><root>{cell}</root></mxGraphModel>").text == "Host db1"
    cell = f'<object label="{"%a%" * 1_000}" a="{"x" * 1_000}" placeholders="1" id="2"><mxCell vertex="1"/></object>'
    text = parse_named("a.drawio", f"<mxGraphModel><root>{cell}</root></mxGraphModel>").text
    assert len(text) < 200_000


def test_mail__invitation_is_read_beside_the_text() -> None:
    mail = EmailMessage()
    mail["From"], mail["Date"], mail["Subject"] = "ada@example.org", "Mon, 05 Jan 2026 10:00:00 +0100", "Meeting"
    mail.set_content("Please join.")
    mail.add_alternative(EVENT, subtype="calendar")
    assert parse_named("a.eml", mail.as_bytes()).text.count("Start: 2026-02-01") == 1
    mail.add_attachment(EVENT.encode(), maintype="text", subtype="calendar", filename="invite.ics")
    parsed = parse_named("a.eml", mail.as_bytes())
    assert parsed.text.count("Start: 2026-02-01") == 1
    assert "invite.ics" in [heading.title for heading in parsed.headings]


@pytest.mark.parametrize("uid", ["", "UID:1@example.org\n"])
def test_mail__invitation_is_read_beside_another_calendar(uid: str) -> None:
    calendar = "BEGIN:VCALENDAR\nBEGIN:VEVENT\n{}SUMMARY:{}\nEND:VEVENT\nEND:VCALENDAR\n"
    mail = EmailMessage()
    mail["From"], mail["Date"], mail["Subject"] = "ada@example.org", "Mon, 05 Jan 2026 10:00:00 +0100", "Meeting"
    mail.set_content("Please join.")
    mail.add_alternative(calendar.format(uid, "Fair"), subtype="calendar")
    holidays = calendar.format("UID:2@example.org\n", "Holidays").encode()
    mail.add_attachment(holidays, maintype="text", subtype="calendar", filename="holidays.ics")
    text = parse_named("a.eml", mail.as_bytes()).text
    assert text.count("Fair") == text.count("Holidays") == 1


def pack(files: dict[str, str]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("会議の資料とお知らせ.txt", "cp932"),
        ("Протокол встречи.txt", "cp866"),
        ("Größe.txt", "utf-8"),
        ("résumé.txt", "cp437"),
        ("Übersicht.txt", "cp850"),
    ],
)
def test_zip__names_without_a_mark_are_decoded(name: str, encoding: str) -> None:
    encoded = name.encode(encoding)
    data = pack({"x" * len(encoded): "text"}).replace(b"x" * len(encoded), encoded)
    assert parse_named("a.zip", data).headings[0].title == name


def test_slack__texts_of_programs_are_read() -> None:
    stamp = {"type": "message", "ts": "1767607900.0"}
    messages = [
        {**stamp, "username": "Jenkins", "text": "", "attachments": [{"title": "Build 5", "text": "failed"}]},
        {
            **stamp,
            "user": "U1",
            "text": "",
            "blocks": [{"elements": [{"elements": [{"type": "text", "text": "hello"}]}]}],
        },
    ]
    files = {"users.json": [{"id": "U1", "name": "ada"}], "channels.json": [], "general/2026-01-05.json": messages}
    parsed = parse_named("slack.zip", pack({name: json.dumps(content) for name, content in files.items()}))
    assert parsed.text.endswith("Jenkins, 10:11: Build 5 failed\nada, 10:11: hello")


ROWS = ("North; City: Kiel", "North; City: Bonn", "South; City: Rome")


def test_rtf__hides_what_is_not_shown_and_keeps_merged_cells() -> None:
    row = r"\trowd\clvm{}\cellx1000\cellx2000\intbl {}\cell {}\cell\row"
    table = (
        row.format("gf", "Region", "City")
        + row.format("gf", "North", "Kiel")
        + row.format("rg", "", "Bonn")
        + row.format("gf", "South", "Rome")
    )
    source = (
        r"{\rtf1\ansi Fee: {\strike 90} {\v secret}80 \strike old \u8364?\strike0 euros\par "
        + table
        + r"\pard end\par}"
    )
    lines = ["Fee:  80 euros", "", "Region | City", *(f"Region: {each}" for each in ROWS), "", "end"]
    assert parse_named("a.rtf", source).text == "\n".join(lines)


@pytest.mark.parametrize(
    "lines",
    [
        "Name|||Ada\nAge|||36\nCity|||London",
        "Region|||Q1|Q2\nNorth|||5|6\nSouth|||3|4",
        "Plan|Price|||Remark\nBasic|5|||cheap",
    ],
)
def test_xlsx__words_beside_a_wide_gap_stay_in_their_rows(lines: str) -> None:
    import openpyxl

    workbook = openpyxl.Workbook()
    for line in lines.split("\n"):
        workbook.active.append([cell or None for cell in line.split("|")])
    text = parse_named("a.xlsx", save(workbook)).text
    for line in lines.split("\n"):
        assert any(all(cell in row for cell in line.split("|")) for row in text.split("\n"))


def test_rtf__each_word_hides_text_until_its_own_end() -> None:
    source = r"{\rtf1\ansi One \v \strike0 secret\v0 two \strike \v0 old\plain three\par}"
    assert parse_named("a.rtf", source).text.split() == ["One", "two", "three"]


def test_xlsx__notes_and_lists_are_no_part_of_a_table() -> None:
    import openpyxl

    workbook = openpyxl.Workbook()
    for row in (["Region", "Q1", None, None, "Legend"], ["N", 1, None, None, "r = red"], ["S", 2], ["* preliminary"]):
        workbook.active.append(row)
    expected = "Sheet\n\nRegion | Q1\nRegion: N; Q1: 1\nRegion: S; Q1: 2\n\n* preliminary\n\nLegend\nr = red"
    assert parse_named("a.xlsx", save(workbook)).text == expected


@pytest.mark.parametrize(
    ("lines", "bold", "text"),
    [
        ("Name|Ada\nCity|London\nRole|Author", "A1 A2 A3", "Name: Ada\nCity: London\nRole: Author"),
        ("Name|City\nAda|London", "A1 B1", "Name | City\nName: Ada; City: London"),
        ("Report|\nItem|Sum\nTea|1\nMilk|2", "A1 A2 B2", "Report\nItem | Sum\nItem: Tea; Sum: 1\nItem: Milk; Sum: 2"),
        ("a|b\nc|d\ne|f", "A1 B1 A2 B2 A3 B3", "a | b\na: c; b: d\na: e; b: f"),
    ],
)
def test_xlsx__bold_letters_show_what_names_are(lines: str, bold: str, text: str) -> None:
    import openpyxl
    from openpyxl.styles import Font

    workbook = openpyxl.Workbook()
    for line in lines.split("\n"):
        workbook.active.append([cell or None for cell in line.split("|")])
    for cell in bold.split():
        workbook.active[cell].font = Font(bold=True)
    assert parse_named("a.xlsx", save(workbook)).text == f"Sheet\n\n{text}"


def test_docx__symbols_are_characters() -> None:
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    document = docx.Document()
    paragraph = document.add_paragraph()
    for font, code in (("Wingdings", "F0FC"), ("Symbol", "F0B1"), ("Symbol", "F06D"), ("Unknown", "F0B1")):
        symbol = OxmlElement("w:sym")
        symbol.set(qn("w:font"), font)
        symbol.set(qn("w:char"), code)
        paragraph.add_run()._r.append(symbol)
    assert parse_named("a.docx", save(document)).text == "✓±μ"


@pytest.mark.parametrize("tag", ["div", "span"])
def test_html__cells_by_role_are_apart(tag: str) -> None:
    def row(role: str, *cells: str) -> str:
        return f'<div role="row">{"".join(f"<{tag} role={role}>{cell}</{tag}>" for cell in cells)}</div>'

    table = f'<div role="table">{row("columnheader", "Name", "Age")}{row("cell", "Ann", "3")}</div>'
    assert parse_named("a.html", f"<!DOCTYPE html><p>x</p>{table}<p>y</p>").text == "x\n\nName | Age\nAnn | 3\n\ny"


def test_markdown__tabs_on_one_line_are_apart() -> None:
    source = '{{< tabs >}}{{< tab "Linux" >}}apt{{< /tab >}}{{< tab "Mac" >}}brew{{< /tab >}}{{< /tabs >}}\n'
    assert parse_named("a.md", source).text.strip() == "Linux: apt Mac: brew"


def test_office__readings_of_japanese_words_are_left_out() -> None:
    from docx.oxml import parse_xml

    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    reading, word = ("<w:r><w:t>かんじ</w:t></w:r>", "<w:r><w:t>漢字</w:t></w:r>")
    ruby = f"<w:ruby><w:rt>{reading}</w:rt><w:rubyBase>{word}</w:rubyBase></w:ruby>"
    document = docx.Document()
    document.add_paragraph()._p.append(parse_xml(f'<w:r xmlns:w="{space}">{ruby}</w:r>'))
    assert parse_named("a.docx", save(document)).text == "漢字"
    ruby = "<text:ruby><text:ruby-base>漢字</text:ruby-base><text:ruby-text>かんじ</text:ruby-text></text:ruby>"
    assert parse_named("a.fodt", flat_odf(f"<text:p>{ruby}</text:p>")).text == "漢字"
