"""HTML becomes what a reader of the page sees."""

import time
from contextlib import suppress

import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import OutputLimits, parse


def parse_html(body: str, head: str = "") -> ParsedDocument:
    data = f"<!doctype html><html><head>{head}</head><body>{body}</body></html>".encode()
    return parse(SourceDocument(source="a.html", data=data))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>One\n  two</p><p>three", "One two\n\nthree"),
        ("<div>a<b>b</b> <i>c</i>d</div>\n<div>e</div>", "ab cd\n\ne"),
        ("a<br>b<br><br>c", "a\nb\n\nc"),
        ("<ul><li>one<li><p>two</p></ul>after", "- one\n\n- two\n\nafter"),
        ("<ul><li>one<ul><li>inner</ul><li>two</ul>", "- one\n\n- inner\n\n- two"),
        ("<ul><li><li>one</ul>x", "- one\n\nx"),
        ("<pre>\n  a\n\tb\n</pre>after", "  a\n\tb\n\nafter"),
        ("a &lt;b&gt; &amp;&nbsp;c&#1;d", "a <b> &\xa0c d"),
        ("<dl><dt>term<dd>meaning</dl>", "term\nmeaning"),
        ("a<!-- no -->b", "ab"),
    ],
)
def test_parse_html__blocks(body: str, text: str) -> None:
    assert parse_html(body).text == text


@pytest.mark.parametrize(
    "hidden",
    [
        "<script>var no</script>",
        "<style>no{}</style>",
        "<template><p>no</p></template>",
        "<noscript>no</noscript>",
        "<p hidden>no <b>no</b></p>",
        "<div style='color:red; DISPLAY: none'>no</div>",
        "<svg><title>no</title><text>no</text></svg>",
    ],
)
def test_parse_html__hidden_parts_are_left_out(hidden: str) -> None:
    assert parse_html(f"<p>yes</p>{hidden}<table><tr><td>cell{hidden}</table>").text == "yes\n\ncell"


@pytest.mark.parametrize("hidden", ["hidden", "style='display:none'", "style='Display: none'"])
def test_parse_html__panels_of_tabs_are_read(hidden: str) -> None:
    body = (
        "<ul role=tablist><li role=tab>pip<li role=tab>conda</ul><div role=tabpanel>pip install a</div>"
        f"<div role=TabPanel {hidden}>conda install a<p hidden>no</p></div>"
    )
    assert parse_html(body).text == "- pip\n- conda\n\npip install a\n\nconda install a"


def test_parse_html__names_of_tabs_are_apart() -> None:
    body = "<div><input type=radio><label>pip</label><input type=radio><label>conda</label></div><p>a</p>"
    assert parse_html(body).text == "pip conda\n\na"


def test_parse_html__tables_in_a_cell_are_under_the_name_of_their_row() -> None:
    inner = "<table><tr><th>Year<th>Pay<tr><td>2025<td>12</table>"
    body = f"<table><tr><th>Name<th>Details<tr><td>Ann<td>{inner}<tr><td>Bob<td>none</table>"
    assert parse_html(body).text == (
        "Name | Details\nName: Ann\nName: Bob; Details: none\n\nAnn\nYear | Pay\nYear: 2025; Pay: 12"
    )


def test_parse_html__many_tables_in_one_row_take_no_longer_each() -> None:
    def measure(tables: int) -> float:
        cells = "<td><table><tr><th>a<th>b<tr><td>1<td>2</table>" * tables
        began = time.process_time()
        parse_html(f"<table><tr><th>x<th>y<tr>{cells}</table>")
        return time.process_time() - began

    assert measure(1_600) < 10 * measure(400) + 0.5


def test_parse_html__text_of_a_cell_is_not_repeated_for_its_tables() -> None:
    inner = "<table><tr><th>Year<th>Pay<tr><td>2025<td>12</table>"
    parsed = parse_html(f"<table><tr><th>A<th>B<tr><td>long text {inner * 3}<td>b</table>")
    assert parsed.text.count("long text") == 1


def test_parse_html__table_rows_are_lines() -> None:
    body = (
        "<p>Before<table><caption>Sales</caption><thead><tr><th>Region<th>Sum</thead>"
        "<tr><td>North<td><p>1</p><p>2</p><tr><td><td>only<br>this<tr><td> <td></table>After"
    )
    assert parse_html(body).text == ("Before\n\nSales\nRegion | Sum\nRegion: North; Sum: 1 2\nSum: only this\n\nAfter")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            "<tr><th rowspan=2>Region<th colspan=2>2024<tr><th>Q1<th>Q2<tr><td rowspan=2>North<td>1<td>2<tr><td>3<td>4",
            (
                "Region | 2024 / Q1 | 2024 / Q2\nRegion: North; 2024 / Q1: 1; 2024 / Q2: 2\n"
                "Region: North; 2024 / Q1: 3; 2024 / Q2: 4"
            ),
        ),
        ("<tr><th>Founded<td>1815<tr><th>Seat<td>Rome", "Founded: 1815\nSeat: Rome"),
        ("<tr><td><th>2022<th>2023<tr><th>North<td>2022<td>7", "2022 | 2023\nNorth; 2022: 2022; 2023: 7"),
        ("<tr><td>Plan<td>Price<tr><td>A<td>4500", "Plan | Price\nPlan: A; Price: 4500"),
        ("<tr><th colspan=2>Prices<tr><th>Plan<th>Price<tr><td>A<td>9", "Prices\nPlan | Price\nPlan: A; Price: 9"),
        ("<tfoot><tr><td>Sum<td>9</tfoot><tr><td>A<td>9", "A | 9\nSum | 9"),
        ("<tbody><tr><td rowspan=0>A<td>1<tr><td>2</tbody><tbody><tr><td>B<td>3", "A | 1\nA | 2\nB | 3"),
        ("<tr><th>A<th>B<tr><td>1<td><table><tr><td>x<td>y</table>", "A | B\nA: 1\n\n1\nx | y"),
        ("<tr><th>A<th>B<tr><td>1<td>2<tr hidden><td>3<td>4<tr><td colspan=999>all", "A | B\nA: 1; B: 2\nall"),
    ],
)
def test_parse_html__tables(table: str, text: str) -> None:
    parsed = parse_html(f"<p>Before<table>{table}</table>")
    assert parsed.text == f"Before\n\n{text}"
    assert [parsed.text[span.start : span.end] for span in parsed.tables] == text.split("\n\n")


@pytest.mark.parametrize(
    "page",
    [
        "<table role=presentation><tr><td>one<td>two</table>",
        "<table><tr><td>one<br>two</table>",
        "<table><tr><td><p>one</p><tr><td>two</table>",
        "<table><tr><td><table><tr><td>one</table><td>two</table>",
    ],
)
def test_parse_html__a_table_for_layout_is_no_table(page: str) -> None:
    parsed = parse_html(page)
    assert parsed.text.split() == ["one", "two"]
    assert parsed.tables == ()


@pytest.mark.parametrize(
    "table",
    [
        "<tr><td colspan=1000000000 rowspan=1000000000>a<td>b" + "<tr>" * 2000,
        "<tr>" + "<td rowspan=65534>long" * 200 + "<tr><td>" * 30_000,
        "<tr>" + "<th colspan=1000>" + "name " * 100 + "<tr>" + "<td>x" * 2000,
        "<tr><td><table><tr><td>" * 2000,
        "<tr><th><th><td><table><tr><th><th><td>" * 1000,
    ],
)
def test_parse_html__hostile_tables_are_bounded(table: str) -> None:
    document = SourceDocument(source="a.html", data=f"<html>text<table>{table}".encode())
    started = time.process_time()
    with suppress(ParseError):
        assert len(parse(document, OutputLimits(text_bytes=2**21)).text) < 2**21
    assert time.process_time() - started < 10


def test_parse_html__table_that_arranges_a_page() -> None:
    body = "<table><tr><td><h1>Title</h1><p>one<p>two<td><table><tr><td>a<td>b</table></table>"
    parsed = parse_html(body)
    assert parsed.text == "Title\n\none\n\ntwo\n\na | b"
    assert parsed.headings[0].title == "Title"


def test_parse_html__headings_and_their_offsets() -> None:
    body = (
        "<p>Intro<h1> The <em>big</em>\n one</h1><p>x<h2></h2><ul><li><h3>In a list</h3>y</ul>"
        "<h2>Two<br>lines</h2><section><h6>&#8203;Six</h6></section><h4 hidden>no</h4>"
    )
    parsed = parse_html(body)
    assert [(h.level, h.title) for h in parsed.headings] == [
        (1, "The big one"),
        (3, "In a list"),
        (2, "Two lines"),
        (6, "\u200bSix"),
    ]
    for heading in parsed.headings:
        assert parsed.text[heading.start :].replace("\n", " ").startswith(heading.title)
        assert parsed.text[heading.start - 1] == "\n"


@pytest.mark.parametrize(
    ("head", "title"),
    [("<title> The\n Page </title>", "The Page"), ("<title> </title>", "First"), ("", "First")],
)
def test_parse_html__title(head: str, title: str) -> None:
    assert parse_html("<h2>Second</h2><h1>First</h1>", head).title == title


def test_parse_html__title_is_not_text() -> None:
    assert parse_html("body", "<title>head</title>").text == "body"


@pytest.mark.parametrize(
    ("label", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "Zürich “à” été"),
        ("windows-1251", "cp1251", "Привет"),
        ("Shift_JIS", "cp932", "日本"),
        ("no-such-encoding", "cp1252", "café"),
        ("unicode_escape", "cp1252", "caf\\x41é"),
    ],
)
def test_parse_html__declared_encoding(label: str, encoding: str, text: str) -> None:
    data = f"<html><meta charset='{label}'><p>{text}".encode(encoding)
    assert parse(SourceDocument(source="a", data=data)).text == text


@pytest.mark.parametrize("body", ["", "<script>x</script>", "<p>&nbsp;<br></p>", "<img src=a.png>"])
def test_parse_html__page_without_text_is_empty(body: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_html(body)
    assert caught.value.code == "empty"


@pytest.mark.parametrize("tag", ["div", "ul><li", "table><tr><td", "b", "blockquote", "h1><span"])
def test_parse_html__five_thousand_levels(tag: str) -> None:
    assert parse_html(f"<{tag}>" * 5_000 + "deep").text.removeprefix("- ") == "deep"


@pytest.mark.parametrize(
    "body",
    [
        "<div>" * 200_000,
        "<i>" * 200_000 + "</b>" * 200_000,
        "<p " + " ".join(f"a{number}" for number in range(100_000)) + ">x",
        "<select>" + "<option>x" * 200_000,
    ],
    ids=["nesting", "wrong end tags", "attributes", "options"],
)
def test_parse_html__what_would_stall_the_parser_is_too_large(body: str) -> None:
    with pytest.raises(ParseError, match="simplify") as caught:
        parse_html(body)
    assert caught.value.code == "too_large"


def test_parse_html__deleted_text_is_not_read() -> None:
    data = b"<p>Price <del>90</del> <ins>80</ins> euros</p><p><s>old</s> <strike>older</strike> offer</p>"
    assert parse(SourceDocument(source="a.html", data=data)).text == "Price 80 euros\n\noffer"
