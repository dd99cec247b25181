"""Outlook messages, and exports of Confluence spaces."""

import random
import struct
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import OutputLimits, parse
from tests.files import pack_zip
from tests.unit.parsing.compound import Storage, compound_file

_STRING, _BINARY, _NUMBER = 0x001F, 0x0102, 0x0003
_SUBJECT, _SENDER, _HEADERS, _BODY, _HTML, _CLASS = 0x0037, 0x0C1A, 0x007D, 0x1000, 0x1013, 0x001A
Properties = Mapping[int, "str | bytes | int"]
_NAME, _DATA, _METHOD = 0x3707, 0x3701, 0x3705


def storage(header: int, values: Properties) -> dict[str, "bytes | Storage"]:
    """Return the streams of properties, by their ids."""
    table, streams = bytes(header), {}
    for key, value in values.items():
        if isinstance(value, int):
            table += struct.pack("<HHIII", _NUMBER, key, 6, value, 0)
            continue
        kind, data = (_STRING, value.encode("utf-16-le")) if isinstance(value, str) else (_BINARY, value)
        table += struct.pack("<HHIII", kind, key, 6, len(data), 0)
        streams[f"__substg1.0_{key:04X}{kind:04X}"] = data
    return {"__properties_version1.0": table, **streams}


def outlook_message(values: Properties, *attachments: Properties) -> bytes:
    content = storage(32, values)
    for number, attachment in enumerate(attachments):
        content[f"__attach_version1.0_#{number:08X}"] = storage(8, attachment)
    return compound_file(content)


def read(data: bytes, source: str = "a") -> ParsedDocument:
    return parse(SourceDocument(source=source, data=data))


def test_parse_msg__texts_and_attachments() -> None:
    headers = "From: Ada <ada@example.org>\r\nTo: Bob <bob@example.org>\r\nDate: Mon, 02 Nov 2026 10:00:00 +0000\r\n"
    message = {_CLASS: "IPM.Note", _SUBJECT: "The offer", _HEADERS: headers, _BODY: "Dear Bob,\r\nsee the sheet."}
    sheet: Properties = {_METHOD: 1, _NAME: "plans.csv", _DATA: b"Plan,Seats\nA,5\n"}
    parsed = read(outlook_message(message, sheet, {_METHOD: 5, _NAME: "inner.msg"}))
    assert parsed.text == (
        "The offer\n\nFrom: Ada <ada@example.org>\nTo: Bob <bob@example.org>\nDate: Mon, 02 Nov 2026 10:00:00 +0000\n\n"
        "Dear Bob,\nsee the sheet.\n\nAttachments: plans.csv\n\nplans.csv\n\nPlan | Seats\nPlan: A; Seats: 5"
    )
    assert parsed.title == "The offer"
    assert [note.code for note in parsed.notes] == ["attachment_unreadable"]
    assert parsed.places[-1].place.words == "attachment plans.csv, cells A2:B2"


def test_parse_msg__html_and_encrypted() -> None:
    page = "<p>Grüße <b>an alle</b></p>".encode("cp1252")
    assert "Grüße an alle" in read(outlook_message({_SUBJECT: "Hi", _HTML: page, 0x3FDE: 1252})).text
    with pytest.raises(ParseError, match="encrypted") as caught:
        read(outlook_message({_CLASS: "IPM.Note.SMIME", _SUBJECT: "Hi"}))
    assert caught.value.code == "encrypted"


def test_parse_msg__says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kosmos_rag.core.extras.find_spec", lambda _name: None)
    with pytest.raises(ParseError, match=r"pip install .kosmos-rag\[msg\]"):
        read(outlook_message({_SUBJECT: "Hi"}))


def entities(*objects: str) -> str:
    return f"<hibernate-generic datetime='2026-11-02'>{''.join(objects)}</hibernate-generic>"


def wiki_page(number: int, title: str, body: str, *, parent: int = 0, extra: str = "", position: int = 0) -> str:
    above = f'<property name="parent" class="Page"><id name="id">{parent}</id></property>' if parent else ""
    return (
        f'<object class="Page" package="com.atlassian.confluence.pages"><id name="id">{number}</id>'
        f'<property name="title"><![CDATA[{title}]]></property><property name="position">{position}</property>'
        f'{above}{extra}</object><object class="BodyContent"><id name="id">9{number}</id>'
        f'<property name="body"><![CDATA[{body}]]></property>'
        f'<property name="content" class="Page"><id name="id">{number}</id></property></object>'
    )


SPACE = '<object class="Space"><id name="id">1</id><property name="name"><![CDATA[Team]]></property></object>'
EARLIER = '<property name="originalVersion" class="Page"><id name="id">2</id></property>'
DRAFT = '<property name="contentStatus"><![CDATA[draft]]></property>'
DESCRIPTOR = {"exportDescriptor.properties": "spaceKey=TEAM"}


def test_parse_confluence_export__current_pages_below_their_parents() -> None:
    code = '<ac:structured-macro ac:name="code"><ac:plain-text-body><![CDATA[a[b[0]] > 1]] ></ac:plain-text-body>'
    xml = entities(
        wiki_page(3, "Backup", f"<p>At night.</p>{code}</ac:structured-macro>", parent=2, position=1),
        wiki_page(4, "Access", "<h1>Keys</h1><table><tr><th>Key<th>Use<tr><td>K1<td>read</table>", parent=2),
        SPACE,
        wiki_page(2, "Home", "<p>Welcome &amp; hello.</p>"),
        wiki_page(
            5,
            "Old",
            "<p>stale</p>",
            extra=EARLIER,
        ),
        wiki_page(6, "Draft", "<p>stale</p>", extra=DRAFT),
        wiki_page(7, "Circle", "<p>round</p>", parent=8),
        wiki_page(8, "Square", "<p>edge</p>", parent=7),
    )
    parsed = read(pack_zip({**DESCRIPTOR, "entities.xml": xml, "attachments/3/1/1": b"PK\x03\x04 any archive"}))
    assert parsed.title == "Team"
    assert [(heading.level, heading.title) for heading in parsed.headings] == [
        (1, "Home"), (2, "Access"), (3, "Keys"), (2, "Backup"), (1, "Circle"), (2, "Square"),
    ]  # fmt: skip
    assert "Key: K1; Use: read" in parsed.text
    assert "a[b[0]]" in parsed.text
    assert "stale" not in parsed.text


def test_parse_confluence_export__html_in_the_order_of_its_index() -> None:
    frame = "<html><head><title>Team : {0}</title></head><body><h1>{0}</h1><p>{1}</p></body></html>"
    members = {
        "TEAM/A_1.html": frame.format("Access", "Keys are kept here, in the safe of the office."),
        "TEAM/B_2.html": frame.format("Backup", "Copies are made each night at two."),
        "TEAM/index.html": "<title>Team</title><a href='http://atlassian.com'>by</a>"
        '<a href="B_2.html">B</a><a href="A_1.html">A</a>',
    }
    parsed = read(pack_zip(members))
    assert [heading.title for heading in parsed.headings] == ["Backup", "Access"]
    assert parsed.title == "Team"
    site = read(pack_zip({"index.html": "<p>any site</p>", "a.html": "<p>a</p>"}))
    assert site.media_type == "application/zip"


@cache
def hostile_exports() -> list[bytes]:
    """Return broken exports and messages: cut off, with changed bytes, or made to cost much."""
    chance = random.Random(20)
    xml = entities(SPACE, wiki_page(2, "Home", "<p>a</p>"), wiki_page(3, "B", "<p>b</p>", parent=2))
    message = outlook_message({_SUBJECT: "Hi", _BODY: "text"}, {_METHOD: 1, _NAME: "a.txt", _DATA: b"word"})
    result = [
        entities(*(wiki_page(number, "T", "<p>x</p>", parent=number - 1) for number in range(2, 3_000))),
        entities(*[wiki_page(2, "T", "<p>x</p>", parent=2)] * 500),
        entities(wiki_page(2, "T", "<div>" * 5_000)),
        entities(wiki_page(2, "T" * 1_000_000, "x")),
        entities("<object>" * 50_000),
        f"<!DOCTYPE a [<!ENTITY b 'c'>]>{entities(SPACE)}",
        "<a/>", "", "not XML",
    ]  # fmt: skip
    cuts = [xml[: chance.randrange(len(xml))] for _ in range(20)]
    variants = [pack_zip({**DESCRIPTOR, "entities.xml": text}) for text in (*result, *cuts)]
    variants += [message[: chance.randrange(8, len(message))] for _ in range(30)]
    for _ in range(50):
        changed = bytearray(message)
        for _ in range(chance.randrange(1, 40)):
            changed[chance.randrange(8, len(changed))] = chance.randrange(256)
        variants.append(bytes(changed))
    return variants


@pytest.mark.parametrize("number", range(109))
def test_parse__hostile_exports_end_with_a_text_or_a_reason(number: int) -> None:
    document = SourceDocument(source="a", data=hostile_exports()[number])
    result = ""
    with suppress(ParseError):
        result = parse(document, OutputLimits(text_bytes=10**7, pages=100)).text
    assert "\0" not in result
