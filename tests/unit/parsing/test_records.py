"""Calendars, address books, XML and feeds: each event, person, element or entry by its fields."""

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse

CALENDAR = """BEGIN:VCALENDAR
VERSION:2.0
BEGIN:VTIMEZONE
TZID:Europe/Vienna
END:VTIMEZONE
BEGIN:VEVENT
UID:1@example.org
DTSTART;TZID=Europe/Vienna:20260105T140000
DTEND:20260105T150000Z
SUMMARY:Review\\, second round
LOCATION:Room 4
ORGANIZER;CN="Lovelace, Ada":mailto:ada@example.org
ATTENDEE;PARTSTAT=ACCEPTED;CN=Grace Hopper:MAILTO:grace@example.org
DESCRIPTION:The limit is 40 MB.\\nPlease read the pl
 an before.
BEGIN:VALARM
TRIGGER:-PT15M
END:VALARM
END:VEVENT
BEGIN:VTODO
SUMMARY:Send the plan
DUE;VALUE=DATE:20260109
END:VTODO
END:VCALENDAR
"""

CARDS = """BEGIN:VCARD
VERSION:3.0
N:Lovelace;Ada;;;
FN:Ada Lovelace
ORG:Analytical Engines;Research
item1.EMAIL;TYPE=WORK:ada@example.org
TEL;TYPE="cell":+43 1 234
ADR;TYPE=home:;;Ring 1;Vienna;;1010;Austria
PHOTO;ENCODING=b:AAAA
END:VCARD
BEGIN:VCARD
FN:Grace Hopper
BDAY:19061209
END:VCARD
"""

PERSON = """Name: Ada Lovelace
Organization: Analytical Engines, Research
Email (work): ada@example.org
Phone (cell): +43 1 234
Address (home): Ring 1, Vienna, 1010, Austria"""

RSS = """<?xml version="1.0"?>
<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"
     xmlns:dc="http://purl.org/dc/elements/1.1/"><channel>
<title>News</title><description>What is new.</description>
<item><title>Release 2</title><link>https://example.org/2</link><pubDate>Mon, 05 Jan 2026</pubDate>
<dc:creator>Ada</dc:creator><description>Short.</description>
<content:encoded><![CDATA[<p>The <b>limit</b> is 40 MB.</p>]]></content:encoded></item>
<item><title>Release 1</title><description>First words.</description></item>
</channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Notes</title>
<entry><title>One</title><link href="https://example.org/1"/><updated>2026-01-05</updated>
<author><name>Grace</name></author><summary>Words of one.</summary></entry></feed>"""

ORDERS = """<?xml version="1.0" encoding="utf-8"?>
<!-- generated -->
<o:orders xmlns:o="urn:o" year="2026">
  <customer>Ada <b>Lovelace</b> of Vienna</customer>
  <item id="7"><name>Tent</name><price>40</price></item>
  <item id="8"><name>Rope</name><price>5</price></item>
  <note/>
</o:orders>"""


def parse_text(text: str, name: str) -> ParsedDocument:
    return parse(SourceDocument(source=name, data=text.encode()))


def test_parse_calendar__events_are_fields() -> None:
    parsed = parse_text(CALENDAR.replace("\n", "\r\n"), "a.ics")
    assert [heading.title for heading in parsed.headings] == ["Review, second round", "Send the plan"]
    assert parsed.text.split("\n\n")[1].splitlines() == [
        "Start: 2026-01-05 14:00 Europe/Vienna",
        "End: 2026-01-05 15:00 UTC",
        "Location: Room 4",
        "Organizer: Lovelace, Ada (ada@example.org)",
        "Attendee: Grace Hopper (grace@example.org), accepted",
        "Description: The limit is 40 MB. Please read the plan before.",
    ]
    assert parsed.text.endswith("Send the plan\n\nDue: 2026-01-09")


def test_parse_calendar__persons_are_fields() -> None:
    parsed = parse_text(CARDS, "team.vcf")
    assert parsed.text.split("\n\n") == [
        "Ada Lovelace",
        PERSON,
        "Grace Hopper",
        "Name: Grace Hopper\nBirthday: 1906-12-09",
    ]


def test_parse_xml__feeds_are_entries() -> None:
    parsed = parse_text(RSS, "news.rss")
    assert (parsed.title, [heading.title for heading in parsed.headings]) == ("News", ["Release 2", "Release 1"])
    assert parsed.text.split("\n\n") == [
        "What is new.",
        "Release 2",
        "Link: https://example.org/2\nDate: Mon, 05 Jan 2026\nAuthor: Ada",
        "The limit is 40 MB.",
        "Release 1",
        "First words.",
    ]
    atom = parse_text(ATOM, "notes.xml")
    assert atom.title == "Notes"
    assert atom.text.endswith("Link: https://example.org/1\nUpdated: 2026-01-05\nAuthor: Grace\n\nWords of one.")


def test_parse_xml__elements_have_their_names() -> None:
    assert parse_text(ORDERS, "orders.xml").text.splitlines() == [
        "orders: @year: 2026",
        "orders.customer: Ada Lovelace of Vienna",
        "orders.item: @id: 7; name: Tent; price: 40",
        "orders.item: @id: 8; name: Rope; price: 5",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<a><b>not closed",
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<a>&x;</a>',
        "<a>" * 100_000 + "words" + "</a>" * 100_000,
    ],
)
def test_parse_xml__broken_and_hostile_files_keep_their_lines_or_words(text: str) -> None:
    parsed = parse_text(text, "a.xml")
    assert "root:" not in parsed.text
    assert len(parsed.text) <= len(text)
