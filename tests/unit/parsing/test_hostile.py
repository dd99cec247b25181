"""Whatever the bytes are: a document with text, or a ParseError, and soon."""

import random
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse

CODES = {"empty", "binary", "corrupt", "encrypted", "no_text", "unsupported", "too_large"}
NAMES = ["a.txt", "a.md", "a.html"]
MEGABYTE = 10**6
LONG = 50_000
"""Characters that take a regular expression twenty seconds and more where its time grows with their square."""
TAGS = "h1 /h1 h2 li ul /ul table tr td /table pre /pre br p p/hidden /p svg math"
HTML_PIECES = [*(f"<{tag}>" for tag in TAGS.split()), "word", "&#13;", " ", "\n", "\xa0"]


def check(data: bytes, source: str) -> None:
    try:
        parsed = parse(SourceDocument(source=source, data=data))
    except ParseError as error:
        failure = error
    else:
        check_parsed(parsed)
        return
    assert failure.code in CODES
    assert "\n" not in str(failure)


def check_parsed(parsed: ParsedDocument) -> None:
    assert parsed.text.strip()
    assert "\0" not in parsed.text
    assert "\r" not in parsed.text
    parsed.text.encode()
    starts = [heading.start for heading in parsed.headings]
    assert starts == sorted(starts)
    assert all(0 <= start < len(parsed.text) for start in starts)
    assert all(heading.title.strip() for heading in parsed.headings)
    assert list(parsed.pages) == sorted(set(parsed.pages))


def seconds_for(data: bytes, source: str) -> float:
    # Of computing: other processes of the run may hold the cores.
    begin = time.process_time()
    check(data, source)
    return time.process_time() - begin


@given(data=st.binary(max_size=200), source=st.sampled_from(NAMES))
@example(data=b"\xed\xa0\x80", source="a.md")
@example(data=b"<html><h1>&#13;&#10;x", source="a.html")
def test_parse__arbitrary_bytes(data: bytes, source: str) -> None:
    check(data, source)


@given(
    text=st.text(max_size=200),
    encoding=st.sampled_from(["utf-8", "utf-16", "utf-16-le", "utf-32", "cp1252", "shift_jis"]),
    source=st.sampled_from(NAMES),
)
def test_parse__arbitrary_text(text: str, encoding: str, source: str) -> None:
    check(text.encode(encoding, "replace"), source)


@given(
    pieces=st.lists(
        st.sampled_from(HTML_PIECES),
        max_size=60,
    )
)
def test_parse__arbitrary_html(pieces: list[str]) -> None:
    check(("<!doctype html>" + "".join(pieces)).encode(), "a")


@given(
    lines=st.lists(
        st.sampled_from(["# a", "#", "##  ", "---", "===", "```", "~~~~", "words", "", "- item", "   ", "title: x"]),
        max_size=30,
    )
)
def test_parse__arbitrary_markdown(lines: list[str]) -> None:
    check("\n".join(lines).encode(), "a.md")


@pytest.mark.parametrize("kind", ["report_pdf", "report_docx"])
def test_parse__mutated_bytes(kind: str, request: pytest.FixtureRequest) -> None:
    original: bytes = request.getfixturevalue(kind)
    dice = random.Random(20_260_101)
    for _ in range(200):
        data = bytearray(original)
        for _ in range(dice.randint(1, 20)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        check(bytes(data), "a")


def test_parse__fifty_megabytes_in_one_line() -> None:
    parsed = parse(SourceDocument(source="a.txt", data=b"word " * 10 * MEGABYTE))
    assert len(parsed.text) == 50 * MEGABYTE


def test_parse__fifty_megabytes_of_legacy_text_in_one_line() -> None:
    parsed = parse(
        SourceDocument(source="a.txt", data="Le café est très agréable. ".encode("latin-1") * (2 * MEGABYTE))
    )
    assert parsed.text.endswith("Le café est très agréable. ")


@pytest.mark.parametrize("source", NAMES)
def test_parse__one_character_many_times(source: str) -> None:
    for character in "#<`~>-=*_[&| \n\t":
        assert seconds_for(f"x\n{character * LONG}y".encode(), source) < 3


@pytest.mark.parametrize(
    "text",
    [
        "<!--" * LONG,
        "<!---->" * 50_000,
        "<?" * LONG,
        "# " + "a " * LONG + "#",
        "# a" + " " * LONG + "#" * LONG + "b",
        "x\n" + "=" * LONG + " " * LONG + "x",
        "```" + " " * LONG + "`",
        "---\ntitle: " + "a  " * LONG,
        " \n" * LONG,
        "<!doctype html>" + "<a" * 50_000,
        "<!doctype html>" + "</b " * 50_000,
    ],
    ids=lambda text: repr(text[:16]),
)
@pytest.mark.parametrize("source", NAMES)
def test_parse__hostile_repetition_takes_linear_time(text: str, source: str) -> None:
    assert seconds_for(text.encode(), source) < 5


DEEP = 10_000
HOSTILE_KINDS: dict[str, tuple[str, str | bytes]] = {
    "front matter nested deep": ("a.md", "---\na: " + "[" * 16_000 + "\n---\nx"),
    "front matter nested mappings": ("a.md", "---\n" + "".join(f"{' ' * n}a:\n" for n in range(170)) + "---\nx"),
    "front matter of one long key": ("a.md", "---\n" + "a" * 16_000 + ": 1\n---\nx"),
    "front matter of many keys": ("a.md", "---\n" + "".join(f"a{n}: 1\n" for n in range(1_500)) + "---\nx"),
    "front matter of quotes": ("a.md", '---\na: "' + "'" * 16_000 + "\n---\nx"),
    "front matter of braces": ("a.md", "---\n" + "{a: " * 4_000 + "\n---\nx"),
    "front matter of anchors": ("a.md", "---\n" + "".join(f"a{n}: &x [1]\n" for n in range(1_000)) + "---\nx"),
    "front matter of a huge number": ("a.md", "---\ndate: " + "9" * 16_000 + "\n---\nx"),
    "front matter of a huge float": ("a.md", "---\ndate: 1e999999\ntags: [.inf, .nan]\n---\nx"),
    "front matter of no date": ("a.md", "---\ndate: 2026-13-45\n---\nx"),
    "front matter with a tag": ("a.md", "---\na: !!python/object/apply:os.system ['false']\n---\nx"),
    "front matter of binary": ("a.md", "---\ndate: !!binary aGk=\ntags: !!set {a, b}\n---\nx"),
    "front matter of documents": ("a.md", "---\na: 1\n--- b\n--- c\n---\nx"),
    "front matter of tabs": ("a.md", "---\n\ta: 1\n\t\tb: 2\n---\nx"),
    "front matter never closed": ("a.md", "---\n" * 50_000 + "x"),
    "toml nested deep": ("a.md", "+++\na = " + "[" * 16_000 + "\n+++\nx"),
    "toml dotted key": ("a.md", "+++\n" + "a." * 8_000 + "a = 1\n+++\nx"),
    "toml of a huge number": ("a.md", "+++\ndate = " + "9" * 16_000 + "\n+++\nx"),
    "toml of surrogates": ("a.md", '+++\ntitle = "\\ud800"\n+++\nx'),
    "rst of adornments": ("a.rst", "=" * LONG + "\na\n" + "=" * LONG),
    "rst of many levels": ("a.rst", "".join(f"t\n{c}\n\n" for c in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") * 50),
    "rst of one title": ("a.rst", "a\n=\n" * 10_000),
    "rst of borders": ("a.rst", "".join(f"{'=' * (n % 90 + 1)} ==\nx\n" for n in range(30_000))),
    "rst of one border": ("a.rst", "== ==\n" * 50_000),
    "rst of grids": ("a.rst", "+--+--+\n" * 50_000),
    "rst of columns": ("a.rst", "+" + "-+" * 50_000 + "\n" + "|" * 50_000 + "\n+" + "=+" * 50_000),
    "adoc of tables": ("a.adoc", "|===\n|a\n\n" * 50_000),
    "org of rules": ("a.org", "|-+" + "-+" * 50_000),
    "rst of spaces": ("a.rst", "=" + " " * LONG + "x\n"),
    "adoc of delimiters": ("a.adoc", "----\n....\n" * 50_000),
    "adoc of a long title": ("a.adoc", "= " + "a =" * 50_000),
    "adoc of spaces": ("a.adoc", "= a" + " " * LONG + "=" * 1_000 + "b"),
    "adoc of a long delimiter": ("a.adoc", "-" * LONG + " " * LONG + "x"),
    "org of stars": ("a.org", "*" * LONG + " a\n"),
    "org of tags": ("a.org", "* a" + " :a" * 50_000 + "\n"),
    "org of keywords": ("a.org", "#+TITLE:" + " " * LONG + "\nx"),
    "org of spaces": ("a.org", "* a" + " " * LONG + "x\n"),
    "org of priorities": ("a.org", "* [#A] " * 50_000),
    "tex of braces": ("a.tex", "\\section{" * 10_000),
    "tex of brackets": ("a.tex", "\\section[" * 10_000),
    "tex of nested braces": ("a.tex", "\\section{" + "{" * LONG + "}" * LONG + "}"),
    "tex of comments": ("a.tex", "%" * LONG + "\n\\section{a}"),
    "tex of verbatims": ("a.tex", "\\begin{verbatim}" * 50_000),
    "tex of labels": ("a.tex", "\\section{" + "\\label{" * 100 + "}" * 100 + "a}"),
    "tex of spaces": ("a.tex", "\\section" + " " * LONG + "{a}"),
    "srt of one time": ("a.srt", "1\n99:99:99,999 --> 99:99:99,999\na\n"),
    "srt of huge hours": ("a.srt", "1\n" + "9" * LONG + ":00:00,000 --> 1:00:00,000\na\n"),
    "srt that goes back": (
        "a.srt",
        "".join(f"{n}\n{n % 3:02}:00:00,000 --> 00:00:01,000\nw{n}\n\n" for n in range(30_000)),
    ),
    "srt without words": ("a.srt", "1\n00:00:00,000 --> 00:00:01,000\n\n" * 30_000),
    "srt of tags": ("a.srt", "1\n00:00:00,000 --> 00:00:01,000\n" + "<i" * 50_000),
    "srt of arrows": ("a.srt", "-->" * 50_000),
    "srt of colons": ("a.srt", "1:" * 50_000),
    "srt of blank lines": ("a.srt", "00:00:00,000 --> 00:00:01,000\n" + " \n" * 50_000 + "x"),
    "vtt of voices": ("a.vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\n" + "<v " * 50_000),
    "vtt of times": ("a.vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\n" + "<00:" * 50_000),
    "vtt of entities": ("a.vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\n" + "&#0;&#xd800;&amp" * 50_000),
    "vtt of notes": ("a.vtt", "WEBVTT\n\n" + "NOTE\n\n" * 50_000),
    "notebook nested deep": ("a.ipynb", '{"cells":' + "[" * LONG),
    "notebook of wrong types": (
        "a.ipynb",
        '{"cells":[1,null,[],{},{"cell_type":[]},{"cell_type":"code","source":{}}]}',
    ),
    "notebook of wrong outputs": (
        "a.ipynb",
        '{"cells":[{"cell_type":"code","source":"x","outputs":[1,{"data":[]},{"text":7},{"ename":{}}]}]}',
    ),
    "notebook of wrong sheets": ("a.ipynb", '{"worksheets":[1,{"cells":[1]},{"cells":7}]}'),
    "notebook of wrong metadata": ("a.ipynb", '{"metadata":{"language_info":[]},"cells":[{"source":"x"}]}'),
    "notebook of many cells": ("a.ipynb", '{"cells":[' + '{"cell_type":"markdown","source":"# a"},' * DEEP + "{}]}"),
    "notebook of fences": ("a.ipynb", '{"cells":[{"cell_type":"code","source":"```\\n~~~~\\n"}]}'),
    "notebook of data": ("a.ipynb", '{"cells":[{"source":"' + "data:a/b;base64," * 30_000 + '"}]}'),
    "notebook of no data": ("a.ipynb", '{"cells":[{"source":"' + "data:" + "a/" * 50_000 + '"}]}'),
    "notebook of surrogates": ("a.ipynb", '{"cells":[{"source":"\\ud800\\u0000x"}]}'),
    "svg of entities": ("a", "<!DOCTYPE svg [<!ENTITY a 'b'>]><svg><text>&a;</text></svg>"),
    "svg that expands": (
        "a",
        "<!DOCTYPE svg [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;'>]><svg><text>&b;</text></svg>",
    ),
    "svg that reads a file": (
        "a",
        "<!DOCTYPE svg [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><svg><text>&a;</text></svg>",
    ),
    "svg with a remote DTD": ("a", "<!DOCTYPE svg SYSTEM 'http://127.0.0.1:1/a.dtd'><svg><text>a</text></svg>"),
    "svg nested deep": ("a", "<svg>" + "<g>" * 50_000 + "<text>a"),
    "svg nested deep and closed": ("a", "<svg>" + "<g>" * DEEP + "<text>a</text>" + "</g>" * DEEP + "</svg>"),
    "svg of texts in texts": ("a", "<svg>" + "<text>a" * DEEP + "</text>" * DEEP + "</svg>"),
    "svg of attributes": ("a", "<svg " + " ".join(f"a{n}=''" for n in range(50_000)) + "/>"),
    "svg of nothing": ("a", "<svg/>"),
    "svg of another namespace": ("a", "<svg xmlns='x'><text>a</text></svg>"),
    "svg cut off": ("a", "<svg><text>a</te"),
    "page of nested menus": ("a.html", "<nav>" * 5_000 + "<ul><li><a>x"),
    "page of nested articles": ("a.html", "<article><h1>a</h1>" * 5_000),
    "page of articles": ("a.html", "<body><article>" + "<article><p>word</p></article>" * DEEP),
    "page of titles": ("a.html", "<body><div class=header><h1>a</h1></div>" * DEEP + "<p>word</p>"),
    "page of names": ("a.html", "<body>" + "<div class='menu comment share'>x</div>" * DEEP),
    "page of one long name": ("a.html", "<body><div class='" + "menu" * 50_000 + "'>x</div>"),
    "page of deep prose": ("a.html", "<body>" + "<div>A text of more than thirty characters." * 5_000),
    "page of lists": ("a.html", "<body>" + "<ol start=-999999 type=i><li>" * 5_000),
    "page of huge numbers": ("a.html", "<body><ol start=" + "9" * LONG + "><li value=1e9>x"),
    "page of superscripts": ("a.html", "<body>" + "<sup>" * 5_000 + "2"),
    "page of fractions": ("a.html", "<body><math>" + "<mfrac><mi>a</mi>" * 5_000),
    "page of equations": ("a.html", "<body>" + "<math><msup><mi>a</mi><mn>2</mn></msup></math>" * 10_000),
    "page of pictures": ("a.html", "<body>" + f"<img alt='{'a ' * 5_000}'>" * 100),
    "storage of bodies": ("a.xml", "<p>" + "<ac:plain-text-body><![CDATA[" * 30_000),
    "storage of pages": ("a.xml", "<p><ri:page " + 'ri:content-title="a" ' * 5_000),
    "storage of parameters": ("a.xml", "<p>" + '<ac:parameter ac:name="title">' * 30_000),
    "storage of sections": ("a.xml", "<p><ac:x/>" + "<![CDATA[" * 50_000),
    "xml of a wide declaration": ("a.xml", "<?xml version='1.0'" + " " * 60_000 + "?><a><b>word</b></a>"),
    "calendar of components": ("a.ics", "BEGIN:VCALENDAR\n" + "BEGIN:X\n" * 60_000 + "END:Y\n" * 60_000),
    "address book of soft line ends": (
        "a.vcf",
        "BEGIN:VCARD\nNOTE;QUOTED-PRINTABLE:" + f"{'a' * 74}=\n" * 100_000 + "\nEND:VCARD\n",
    ),
    "parquet of nothing": ("a", b"PAR1PAR1"),
    "parquet of no footer": ("a", b"PAR1" + bytes(100) + b"PAR1"),
    "parquet of a huge footer": ("a", b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1"),
    "parquet of noise": ("a", b"PAR1" + random.Random(7).randbytes(4_000) + b"\xff\x0e\0\0PAR1"),
}


@pytest.mark.parametrize("variant", HOSTILE_KINDS)
def test_parse__hostile_kinds_end_soon(variant: str) -> None:
    source, data = HOSTILE_KINDS[variant]
    assert seconds_for(data.encode() if isinstance(data, str) else data, source) < 5
