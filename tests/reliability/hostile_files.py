"""Files of every format but PDF that mean harm, and sound ones to cut and to change."""

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from email.message import EmailMessage

import docx
import openpyxl
import pptx
import xlwt

from tests.files import pack_zip, save
from tests.reliability.hostile_pdf import pdf
from tests.unit.parsing.sandbox.files import many_objects, wide_workbook

Made = Callable[[], bytes]

_LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
_DOCTYPES = {
    "billion laughs": f'<!DOCTYPE x [<!ENTITY l0 "ha">{_LAUGHS}]><x>&l9;</x>',
    "/etc/passwd by an entity": '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
    "/etc/passwd by a parameter": '<!DOCTYPE x [<!ENTITY % e SYSTEM "file:///etc/passwd"> %e;]><x/>',
}
_OPF = "http://www.idpf.org/2007/opf"
_CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="book.opf"/></rootfiles></container>'
)
_SPINE = '<spine><itemref idref="a"/></spine></package>'


def _docx() -> bytes:
    document = docx.Document()
    document.add_heading("Report", 1)
    document.add_paragraph("Words of the report.")
    return save(document)


def _xlsx() -> bytes:
    workbook = openpyxl.Workbook()
    workbook.active.append(["name", "city"])
    workbook.active.append(["Ada", "London"])
    return save(workbook)


def _pptx() -> bytes:
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "Opening"
    return save(deck)


def _epub(href: str = "a.xhtml", page: str = "<html><body><h1>One</h1><p>Words.</p></body></html>") -> bytes:
    package = f'<package xmlns="{_OPF}"><manifest><item id="a" href="{href}" media-type="application/xhtml+xml"/>'
    return pack_zip(
        {"META-INF/container.xml": _CONTAINER, "book.opf": f"{package}</manifest>{_SPINE}", "a.xhtml": page}
    )


def _eml() -> bytes:
    message = EmailMessage()
    message["Subject"], message["From"], message["Date"] = "Plan", "a@example.org", "Mon, 06 Jan 2025 10:00:00 +0000"
    message.set_content("Words.")
    message.add_alternative("<p>Words.</p>", subtype="html")
    return message.as_bytes()


_NAMESPACES = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("text", "table"))
_ROW = "<table:table-row><table:table-cell><text:p>a</text:p></table:table-cell></table:table-row>"
_ODF_PARTS = {
    "text": "<text:h>One</text:h><text:list><text:list-item><text:p>a</text:p></text:list-item></text:list>",
    "spreadsheet": f'<table:table table:name="Plan">{_ROW}</table:table>',
    "presentation": "<text:p>Words</text:p>",
}
_WORD_2003 = (
    '<w:wordDocument xmlns:w="http://schemas.microsoft.com/office/word/2003/wordml">'
    "<w:body><w:p><w:r><w:t>Words</w:t></w:r></w:p></w:body></w:wordDocument>"
)


def _odf(kind: str) -> Made:
    content = f"<content {_NAMESPACES}>{_ODF_PARTS[kind]}</content>"
    return lambda: pack_zip({"mimetype": f"application/vnd.oasis.opendocument.{kind}", "content.xml": content})


def _xls() -> bytes:
    workbook = xlwt.Workbook()
    sheet = workbook.add_sheet("Plan")
    sheet.write(0, 0, "name")
    sheet.write_merge(1, 2, 0, 1, 12.5)
    return save(workbook)


def _notebook() -> bytes:
    code = {"cell_type": "code", "source": "1", "outputs": [{"text": "1"}]}
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# One"]}, code]}).encode()


def _parquet() -> bytes:
    import pyarrow
    from pyarrow.parquet import write_table

    out = io.BytesIO()
    write_table(pyarrow.table({"name": ["Ada", None], "born": [1815, 1900]}), out)
    return out.getvalue()


def _mbox() -> bytes:
    return b"".join(b"From a Mon Jan  6 10:00:00 2025\n" + _eml() + b"\n\n" for _ in range(2))


def _mhtml() -> bytes:
    head = b"From: <Saved by Blink>\nMIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n"
    part = b"--b\nContent-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n<html><p>Words =3D more</p>\n"
    return head + part + b"--b--"


def _confluence() -> bytes:
    page = (
        '<object class="Page"><id name="id">1</id><property name="title">Home</property></object>'
        '<object class="BodyContent"><property name="body"><![CDATA[<p>Words</p>]]></property>'
        '<property name="content" class="Page"><id>1</id></property></object>'
    )
    return pack_zip(
        {"exportDescriptor.properties": "", "entities.xml": f"<hibernate-generic>{page}</hibernate-generic>"}
    )


OTHER_KINDS: dict[str, Made] = {
    "a.odt": _odf("text"),
    "a.ods": _odf("spreadsheet"),
    "a.odp": _odf("presentation"),
    "a.xls": _xls,
    "a.rtf": lambda: rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}Caf\'e9 \u8364?\par\trowd a\cell b\cell\row\pard End\par}",
    "a.ipynb": _notebook,
    "a.parquet": _parquet,
    "a.svg": lambda: b"<svg xmlns='http://www.w3.org/2000/svg'><title>Net</title><text>A <tspan>B</tspan></text></svg>",
    "a.srt": lambda: b"1\n00:00:01,000 --> 00:00:02,000\n<i>Words</i>\n\n2\n00:02:01,000 --> 00:02:02,000\nMore\n",
    "a.vtt": lambda: b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ada>Words &amp; more\n",
    "a.rst": lambda: b"=====\nTitle\n=====\n\nPart\n----\n\nWords\n",
    "a.adoc": lambda: b"= Title\n\n== Part\n\n----\ncode\n----\n",
    "a.org": lambda: b"#+TITLE: Title\n* TODO One :tag:\nWords\n",
    "a.tex": lambda: (
        b"\\title{Title}\\section{One \\emph{more}}\nWords % no\n\\begin{verbatim}\\section{no}\\end{verbatim}"
    ),
    "a.mbox": _mbox,
    "a.mhtml": _mhtml,
    "a.zip": _confluence,
    "a.xml": _WORD_2003.encode,
}
"""A small document of each of the less common formats."""

SOUND: dict[str, Made] = {
    "a.pdf": pdf,
    "a.docx": _docx,
    "a.xlsx": _xlsx,
    "a.pptx": _pptx,
    "a.epub": _epub,
    "a.eml": _eml,
    "a.html": lambda: b"<!doctype html><title>T</title><h1>One</h1><table><tr><td>a<td>b</table><p>Words &amp; more",
    "a.md": lambda: b"---\ntitle: T\n---\n# One\n\nWords\n\n```\ncode\n```\n",
    "a.csv": lambda: b'name,city\nAda,"London, UK"\nBob,Paris\n',
    "a.json": lambda: json.dumps({"people": [{"name": "Ada"}, {"name": "Bob", "tags": [1, 2]}]}).encode(),
    "a.jsonl": lambda: b'{"name": "Ada"}\n{"name": "Bob"}\n',
    "a.py": lambda: b"class A:\n    def run(self):\n        return 1\n",
    "a.txt": lambda: "Grüße aus Köln, words and more".encode("cp1252"),
    **OTHER_KINDS,
}
"""A small document of each format."""

_MAIN_PARTS = {
    "a.docx": "word/document.xml",
    "a.xlsx": "xl/workbook.xml",
    "a.pptx": "ppt/presentation.xml",
    "a.epub": "META-INF/container.xml",
    "a.odt": "content.xml",
    "a.ods": "content.xml",
    "a.zip": "entities.xml",
}


def _changed(name: str, members: Mapping[str, bytes | str]) -> Made:
    """A sound archive with more members, or others in the place of its own."""

    def make() -> bytes:
        with zipfile.ZipFile(io.BytesIO(SOUND[name]())) as archive:
            sound = {member: archive.read(member) for member in archive.namelist()}
        return pack_zip({**sound, **members})

    return make


def _archives(name: str) -> dict[str, Made]:
    """What can be wrong with any archive."""
    main = _MAIN_PARTS[name]
    attacks: dict[str, Mapping[str, bytes | str]] = {
        "a member that unpacks to a thousand times its size": {"big.bin": bytes(20 * 2**20)},
        "a main part that unpacks to a thousand times its size": {main: b"<x>" + b" " * (20 * 2**20) + b"</x>"},
        "members without number": {f"m{number}": b"" for number in range(2001)},
        "a member above the folder": {"../../etc/cron.d/evil": b"x"},
        "a member at the root": {"/etc/cron.d/evil": b"x"},
        "a member of Windows": {"C:\\evil": b"x"},
        "an archive in it": {"inner.zip": pack_zip({"deeper.zip": pack_zip({"x": b"x"})})},
        "a part five thousand levels deep": {main: "<x>" * 5000 + "</x>" * 5000},
        "a part that is no XML": {main: bytes(1000)},
        **{attack: {main: doctype} for attack, doctype in _DOCTYPES.items()},
    }
    return {f"{name}: {attack}": _changed(name, members) for attack, members in attacks.items()}


_TEXTS: dict[str, Made] = {
    "a.html: five thousand levels": lambda: b"<!doctype html>" + b"<div>" * 5000 + b"deep",
    "a.html: half a million levels": lambda: b"<!doctype html>" + b"<b>" * 500_000 + b"deep",
    "a.html: a tag of many attributes": lambda: b"<!doctype html><a " + b" ".join(b"a%d=1" % n for n in range(200_000)),
    "a.html: options": lambda: b"<!doctype html><select>" + b"<option>x" * 300_000,
    "a.html: tables in tables": lambda: b"<!doctype html>" + b"<table><tr><td>" * 20_000 + b"x",
    "a.html: entities": lambda: b"<!doctype html><p>" + b"&CounterClockwiseContourIntegral;" * 100_000,
    "a.html: half a million headings": lambda: b"<!doctype html>" + b"<h1>a</h1>" * 500_000,
    "a.html: a page that asks for a file": lambda: b"<!doctype html><iframe src='file:///etc/passwd'></iframe>words",
    "a.md: half a million headings": lambda: b"# a\n\n" * 500_000,
    "a.md: a fence that never ends": lambda: b"```\n" + b"# a\n" * 500_000,
    "a.txt: UTF-16 without a mark": lambda: "Words of many.\n".encode("utf-16-le") * 1000,
    "a.txt: half a character of UTF-16": lambda: b"\xff\xfea\0b\0c",
    "a.txt: UTF-32 beyond Unicode": lambda: b"\xff\xfe\0\0" + b"\xff\xff\xff\x7f" * 1000,
    "a.txt: NUL alone": lambda: bytes(2**20),
    "a.txt: NUL here and there": lambda: (b"words " * 1000 + b"\0") * 100,
    "a.txt: lone surrogates": lambda: b"\xed\xa0\x80words\xed\xbf\xbf" * 1000,
    "a.txt: thirty megabytes": lambda: b"word " * 6_000_000,
    "a.txt: one line of ten megabytes": lambda: b"a" * 10_000_000,
    "a.json: brackets in brackets": lambda: b"[" * 1_000_000,
    "a.json: closed brackets in brackets": lambda: b"[" * 900 + b"1" + b"]" * 900,
    "a.json: six million objects": lambda: many_objects(6_000_000),
    "a.json: a number of a million digits": lambda: b'{"a": ' + b"9" * 1_000_000 + b"}",
    "a.json: a long name above many values": lambda: json.dumps(
        {"n" * 100_000: {str(n): n for n in range(200_000)}}
    ).encode(),
    "a.jsonl: half a million lines": lambda: b'{"a": 1}\n' * 500_000,
    "a.csv: a quote that never closes": lambda: b'a,b\n"' + b"x,y\n" * 500_000,
    "a.csv: a million columns": lambda: b",".join([b"name"] * 1_000_000) + b"\n" + b",".join([b"1"] * 1_000_000),
    "a.csv: long names above many rows": lambda: b"n" * 1000 + b"," + b"m" * 1000 + b"\n" + b"1,2\n" * 500_000,
    "a.csv: quotes alone": lambda: b'"' * 2_000_001,
    "a.tsv: tabs alone": lambda: b"x" + b"\t" * 5_000_000,
    "a.sql: one statement of two megabytes": lambda: b"CREATE " + b" AS" * 700_000,
    "a.py: a line of keywords": lambda: b"def " * 500_000,
    "a.eml: parts in parts": lambda: (
        _EML_HEAD
        + b"".join(b"--b%d\nContent-Type: multipart/mixed; boundary=b%d\n\n" % (n, n + 1) for n in range(3000))
    ),
    "a.eml: a header of many words": lambda: b"From: " + b"a@b, " * 10_000 + b"\nDate: x\nSubject: s\n\nwords",
    "a.eml: comments in comments": lambda: b"From: " + b"(" * 50_000 + b"\nDate: x\n\nwords",
    "a.eml: encoded words": lambda: b"From: a\nDate: x\nSubject: " + b"=?utf-8?q?=41?= " * 4_000 + b"\n\nwords",
    "a.eml: a body that is no base64": lambda: b"From: a\nDate: x\nContent-Transfer-Encoding: base64\n\n!!!!words",
    "a.xlsx: cells in the last column": lambda: wide_workbook(15_000),
    "a.epub: a chapter above the folder": lambda: _epub(href="../../../../etc/passwd"),
    "a.epub: a chapter at the root": lambda: _epub(href="/etc/passwd"),
    "a.epub: a chapter elsewhere": lambda: _epub(href="file:///etc/passwd"),
    "a.epub: a chapter with an entity": lambda: _epub(page=_DOCTYPES["/etc/passwd by an entity"]),
    "a.epub: a chapter of many levels": lambda: _epub(page="<b>" * 500_000),
    "a.zip: nothing": lambda: pack_zip({}),
    "a.zip: an archive in an archive": lambda: pack_zip({"a.docx": _docx()}),
}
_EML_HEAD: bytes = b"From: a\nDate: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b0\n\n"

FILES: dict[str, Made] = _TEXTS | {attack: make for name in _MAIN_PARTS for attack, make in _archives(name).items()}
"""By name of the file and what is wrong with it."""
