"""Media types come from content; names only decide between kinds of text."""

import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing import detect
from tests.files import pack_zip
from tests.unit.parsing.compound import Storage, compound_file

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"


def make_zip(*names: str) -> bytes:
    return pack_zip(dict.fromkeys(names, "content"))


@pytest.mark.parametrize("name", ["report.pdf", "report.txt", "report", "report.html"])
def test_detect__pdf_and_docx_under_any_name(name: str, report_pdf: bytes, report_docx: bytes) -> None:
    assert detect(report_pdf, name) == "application/pdf"
    assert detect(report_docx, name) == DOCX


@pytest.mark.parametrize(
    ("members", "media_type"),
    [
        (("[Content_Types].xml", "xl/workbook.xml"), XLSX),
        (("[Content_Types].xml", "ppt/presentation.xml"), PPTX),
        (("META-INF/container.xml", "mimetype"), "application/epub+zip"),
    ],
)
@pytest.mark.parametrize("name", ["a.docx", "a.zip", "a"])
def test_detect__archives_by_their_members(members: tuple[str, ...], media_type: str, name: str) -> None:
    assert detect(make_zip(*members), name) == media_type


def test_detect__pdf_after_other_bytes(report_pdf: bytes) -> None:
    assert detect(b"\x1b%-12345X@PJL\n" + report_pdf, "a.txt") == "application/pdf"
    assert detect(b"\xef\xbb\xbf\n" + report_pdf, "a.txt") == "application/pdf"


def test_detect__text_about_pdf() -> None:
    assert detect(b"A file that begins with %PDF-1.7 is a PDF.", "a.txt") == "text/plain"


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE html><p>x",
        "\n\n<html lang='en'><body>x",
        "<!-- a --> <!-- b -->\n<?xml version='1.0'?>\n<!doctype   HTML>\nx",
        "<HEAD><title>x</title>",
        "<body\n>x",
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a"])
def test_detect__html_by_its_first_tag(text: str, name: str) -> None:
    assert detect(text.encode(), name) == "text/html"


@pytest.mark.parametrize(
    ("text", "name", "media_type"),
    [
        ("<p>fragment</p>", "a.html", "text/html"),
        ("<p>fragment</p>", "a.md", "text/markdown"),
        ("<p>fragment</p>", "a.txt", "text/plain"),
        ("no tag at all", "a.html", "text/plain"),
        ("<!-- never closed", "a.html", "text/plain"),
        ("<?xml version='1.0'?><data/>", "a.xml", "application/xml"),
        ("<?xml version='1.0'?><data/>", "a.txt", "text/plain"),
        ('<!DOCTYPE book PUBLIC "-//OASIS//DTD DocBook XML V4.5//EN" "a.dtd">\n<book/>', "a.xml", "application/xml"),
        ("<rss version='2.0'></rss>", "news.rss", "application/xml"),
        ("BEGIN:VCALENDAR\n", "a.ics", "text/calendar"),
        ("Use `<html>` first.", "a.txt", "text/plain"),
        ("plain words", "notes.markdown", "text/markdown"),
        ("plain words", "C:\\notes\\A.MD", "text/markdown"),
        ("plain words", "https://example.org/a.md?raw=1#top", "text/markdown"),
        ("# Title\n\nWords.", "notes.txt", "text/markdown"),
        ("Words.\n\n## Section\nMore.", "notes", "text/markdown"),
        ("Words.\n```\ncode\n```\n", "notes", "text/markdown"),
        ("# a comment\nimport os\n", "a.py", "text/x-python"),
        ("#!/bin/sh\n\n# a comment\n", "run", "text/plain"),
        ("-- comment\nSELECT 1;\n", "a.sql", "application/sql"),
        ("a,b\n1,2\n", "a.csv", "text/csv"),
        ("a,b\n1,2\n", "a.txt", "text/plain"),
        ("a\tb\n", "a.TSV", "text/tab-separated-values"),
        ('{"a": 1}', "https://example.org/a.json?x=1", "application/json"),
        ('{"a": 1}\n', "a.ndjson", "application/jsonl"),
        ("<html><body>error 500", "a.csv", "text/html"),
        ("From: a@x\nDate: today\n\nHello", "a.eml", "message/rfc822"),
        ("Received: by x;\n\ttoday\nFrom: a@x\n\nHello", "a", "message/rfc822"),
        ("MIME-Version: 1.0\nContent-Type: text/html\n\nHello", "a", "message/rfc822"),
        ("--b1\nContent-Type: text/plain\n\nHello\n--b1--\n", "a.eml", "message/rfc822"),
        ("From: the desk of\n\nHello", "a.eml", "message/rfc822"),
        ("From: a@x\nDate: today\n\nHello", "a.py", "text/x-python"),
        ("From: the desk of\n\nHello", "a.txt", "text/plain"),
        ("Dear all,\nFrom: a\nDate: b\n", "a.eml", "text/plain"),
        ("#hashtag of today", "a.txt", "text/plain"),
    ],
)
def test_detect__kinds_of_text(text: str, name: str, media_type: str) -> None:
    assert detect(text.encode(), name) == media_type


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (b"GIF89a\1\0\1\0\0\0\0", "GIF"),
        (b"\x7fELF\2\1\1\0\0", "ELF"),
        (b"MZ\x90\0\3\0\0\0", "Windows program"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "WAVE"),
        (b"SQLite format 3\0", "SQLite"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "legacy Office"),
        (compound_file({"WordDocument": b"text"}), "legacy Word"),
        (make_zip("xl/workbook.bin", "[Content_Types].xml"), "binary Excel"),
        (make_zip("content.xml"), "OpenDocument"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.pdf", "a.docx"])
def test_detect__known_binary_is_unsupported_and_named(data: bytes, result: str, name: str) -> None:
    with pytest.raises(ParseError, match=result) as caught:
        detect(data, name)
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "jpeg"),
        (b"II*\0\x08\0\0\0", "tiff"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "webp"),
    ],
)
def test_detect__pictures(data: bytes, kind: str) -> None:
    assert detect(data, "a.pdf") == f"image/{kind}"


@pytest.mark.parametrize(
    "data",
    [
        b"\x1f\x8b\x08\0\0\0\0\0",
        b"BZh91AY\xff",
        bytes(257) + b"ustar",
        make_zip("xl/workbook.xml"),
        make_zip("word/document.xml"),
        make_zip("a.md", "b.pdf"),
        make_zip(),
    ],
)
def test_detect__archives(data: bytes) -> None:
    assert detect(data, "a.docx") == "application/zip"


@pytest.mark.parametrize(
    "text", ["BZh is a signature.", "GIF89a is an image format.", "MZ and BM are letters.", "PAR1 scored."]
)
def test_detect__text_with_the_letters_of_a_signature(text: str) -> None:
    assert detect(text.encode(), "a.txt") == "text/plain"


def test_detect__broken_zip_is_corrupt(report_docx: bytes) -> None:
    with pytest.raises(ParseError, match="ZIP") as caught:
        detect(report_docx[:2000], "a.docx")
    assert caught.value.code == "corrupt"
    assert "\n" not in str(caught.value)


def test_detect__office_document_with_password_is_encrypted() -> None:
    with pytest.raises(ParseError, match="password") as caught:
        detect(compound_file({"EncryptedPackage": b"secret", "EncryptionInfo": b"key"}), "a.docx")
    assert caught.value.code == "encrypted"


@pytest.mark.parametrize("inner", ["WordDocument", "PowerPoint Document", "EncryptedPackage", "Workbook"])
def test_detect__embedded_files_do_not_decide(inner: str) -> None:
    attached: Storage = {inner: b"of another file"}
    message: Storage = {"__properties_version1.0": bytes(32), "__attach_version1.0_#00000000": attached}
    assert detect(compound_file(message), "a") == "application/vnd.ms-outlook"
    whole: Storage = {"__properties_version1.0": bytes(32), "__substg1.0_37010102": compound_file(attached)}
    assert detect(compound_file(whole), "a") == "application/vnd.ms-outlook"
    assert detect(compound_file({"Workbook": b"sheets", "MBD00012": attached}), "a") == "application/vnd.ms-excel"
