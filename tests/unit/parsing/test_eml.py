"""Mails made here: plain, HTML, attachments, broken."""

from email.message import EmailMessage

import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse


def mail(subject: str = "Budget für 2025") -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = "Ada Lovelace <ada@example.org>"
    message["To"] = "bob@example.org, eve@example.org"
    message["Date"] = "Mon, 06 Jan 2025 10:00:00 +0000"
    return message


def parse_eml(data: bytes) -> ParsedDocument:
    return parse(SourceDocument(source="a.eml", data=data))


def test_parse_eml__plain_body_and_attachments() -> None:
    message = mail()
    message.set_content("The budget is grün.\n\nRegards")
    message.add_alternative("<p>Not this one</p>", subtype="html")
    message.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename="plan.pdf")
    parsed = parse_eml(message.as_bytes())
    assert parsed.text == (
        "Budget für 2025\n\n"
        "From: Ada Lovelace <ada@example.org>\nTo: bob@example.org, eve@example.org\n"
        "Date: Mon, 06 Jan 2025 10:00:00 +0000\n\n"
        "The budget is grün.\n\nRegards\n\nAttachments: plan.pdf"
    )
    assert parsed.title == "Budget für 2025"
    assert [(h.level, h.title, h.start) for h in parsed.headings] == [(1, "Budget für 2025", 0)]
    assert parsed.media_type == "message/rfc822"


def test_parse_eml__html_body() -> None:
    message = mail("Report")
    message.set_content(
        "<h2>Numbers</h2><table><tr><td>a</td><td>1</td></tr></table><script>x</script>", subtype="html"
    )
    parsed = parse_eml(message.as_bytes())
    assert parsed.text.endswith("Numbers\n\na | 1")
    assert [h.title for h in parsed.headings] == ["Report", "Numbers"]
    assert parsed.text[parsed.headings[1].start :].startswith("Numbers")


@pytest.mark.parametrize("charset", ["no-such-charset", "ascii", None])
def test_parse_eml__charset_that_is_wrong_or_missing(charset: str | None) -> None:
    content_type = f"Content-Type: text/plain; charset={charset}\n" if charset else ""
    parsed = parse_eml(f"From: a@x\nDate: today\n{content_type}\nGrüße".encode())
    assert parsed.text.endswith("Grüße")
    assert parsed.title is None


def test_parse_eml__without_body_has_its_header() -> None:
    assert parse_eml(b"From: a@x\nDate: today\nSubject: Ping\n\n").text.startswith("Ping\n\nFrom: a@x")


@pytest.mark.parametrize("cut", range(20, 900, 23))
def test_parse_eml__truncated_anywhere(cut: int) -> None:
    message = mail()
    message.set_content("words " * 20)
    message.add_attachment(bytes(100), maintype="image", subtype="png", filename="a.png")
    try:
        assert parse_eml(message.as_bytes()[:cut]).text.strip()
    except ParseError as error:
        assert error.code in {"corrupt", "empty"}  # noqa: PT017 — either end is right
