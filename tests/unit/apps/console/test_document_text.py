"""Documents as formatted text: each mark covers the cited characters and no others."""

import re
from html import unescape

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos_rag.apps.http.console.document_text import Marks, render_document
from kosmos_rag.core.types import DocumentSection
from kosmos_rag.parsing import media_types

PIECES = (
    "# Per diem",
    "Travel **abroad** costs *much*, `x < y` and `` a`b ``.  \nNext line with \\*stars\\* &amp; `c` more.",
    "Setext\n======",
    "- first **item**\n- second\n  continued\n  1. nested `one`\n  2. two",
    "| City | Rate \\| net |\n|---|--:|\n| **Bern** | 55 |\n| Rome | |",
    "City | City\n---|---\na | a",
    "```sql\nSELECT a < b\n\n  FROM t;\n```",
    "    indented code\n      more",
    "> A quote, _twice_\n> over ***two*** lines\n>\n> - with item",
    "See [the *guide*](https://elsewhere.example/a_(b) 'T') or ![a picture](x.png).",
    "<script>alert(1)</script> <b>x</b> [a](javascript:alert(1))",
    "## Twice ##",
    "* a\n\n  | x | y |\n  |---|---|\n  | 1 | 2 |",
    "a __b__ **c *d* e** f_g_h \\\nend  ",
)
SHOWN = re.compile(r"[^\W_]")
TAG = re.compile(r"<[^>]*>")


def _marked(html: str) -> str:
    return unescape(TAG.sub("", "".join(re.findall(r"<mark[^>]*>(.*?)</mark>", html, re.DOTALL))))


def _words(text: str) -> str:
    return "".join(SHOWN.findall(text))


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.data())
def test_marks__cover_exactly_the_cited_characters_of_markdown(pieces: list[str], data: st.DataObject) -> None:
    text = "\n\n".join(pieces)
    start = data.draw(st.integers(0, 10**6))
    plain = render_document(text, media_types.MARKDOWN, Marks(), start=start)
    # Addresses of links and the language of code are not shown.
    hidden = re.compile(r"(?<=\])\(https?://[^)]*\)[^)]*\)|(?<=picture\])\(x.png\)|(?<=```)sql|(?<=&)amp(?=;)")
    visible = hidden.sub(lambda match: "\0" * len(match[0]), text)
    assert _words(unescape(TAG.sub("", re.sub(r"<ol[^>]*>|<span[^>]*>", "", plain)))) == _words(
        re.sub(r"(?m)^( *)\d+\.", r"\1", visible)
    )
    first = data.draw(st.integers(0, len(text)))
    last = data.draw(st.integers(first, len(text)))
    html = render_document(text, media_types.MARKDOWN, Marks(exact=[(start + first, start + last)]), start=start)
    expected = re.sub(r"(?m)^( *)\d+\.", lambda match: " " * len(match[0]), visible)[first:last]
    assert _words(_marked(html)) == _words(expected)
    assert re.sub(r"</?mark[^>]*>", "", html) == plain


@pytest.mark.parametrize(
    ("text", "cited", "html"),
    [
        ("## Per diem\n\nIt is 55.", "diem", '<h2>Per <mark id="cited">diem</mark></h2>'),
        ("a **bold** word", "old", '<strong>b<mark id="cited">old</mark></strong>'),
        ("- x\n- the 20 days", "20", '<li>the <mark id="cited">20</mark> days</li>'),
        ("| a | b |\n|---|---|\n| 1 | 22 |", "22", '<td><mark id="cited">22</mark></td>'),
        ("```\nx < 1\ny\n```", "< 1", '<code>x <mark id="cited">&lt; 1</mark>\ny</code>'),
        ("[a guide](https://elsewhere)", "guide", '<span class="link">a <mark id="cited">guide</mark></span>'),
        ("`a b`", "b", '<code>a <mark id="cited">b</mark></code>'),
    ],
)
def test_marks__are_within_their_elements(text: str, cited: str, html: str) -> None:
    at = text.index(cited)
    assert html in render_document(text, media_types.MARKDOWN, Marks(exact=[(at, at + len(cited))]))


def test_markup__stays_text_and_links_lead_nowhere() -> None:
    html = render_document("\n\n".join(PIECES), media_types.MARKDOWN, Marks())
    assert not re.search(r"<(?:script|img|b|a)\b|href|src=|style", html)


@pytest.mark.parametrize("media_type", [media_types.MARKDOWN, media_types.DOCX])
def test_uncertain_span__marks_its_paragraph(media_type: str) -> None:
    text = "Before it.\n\nThe rate is 55 euros.\n\nAfter it."
    at = text.index("55")
    html = render_document(text, media_type, Marks(near=[(at, at + 2)]))
    assert _marked(html) == "The rate is 55 euros."


def test_text_of_other_formats__has_headings_tables_lists_and_code() -> None:
    text = (
        "Per diem\n\nIntro\nline <b>.\n\nRates\nCity | Rate; net\nCity: Bern; Rate; net: 55\nCity: Rome\n\n"
        "a | b\nc | d\n\n- One\n\n- Two\n\n3. Three\n4. Four\n\ndef f():\n    return 1"
    )
    sections = [DocumentSection(section=("Per diem",), line_start=11, line_end=30)]
    at = text.index("55")
    html = render_document(
        text, media_types.DOCX, Marks(exact=[(at + 7, at + 9)]), start=7, line_start=11, sections=sections
    )
    for part in (
        "<h2>Per diem</h2>",
        "<p>Intro\nline &lt;b&gt;.</p>",
        "<p>Rates</p>",
        "<thead><tr><th>City</th><th>Rate; net</th></tr>",
        '<tr><td>Bern</td><td><mark id="cited">55</mark></td></tr>',
        "<tr><td>Rome</td><td></td></tr>",
        "<tr><td>c</td><td>d</td></tr>",
        "<ul>\n<li>One</li>\n<li>Two</li>\n</ul>",
        '<ol>\n<li value="3">Three</li>',
        "<code>def f():\n    return 1</code>",
    ):
        assert part in html
    assert "City: " not in html


@given(st.text(alphabet="ab|:; -1.\n\t<&", max_size=80), st.integers(0, 80), st.integers(0, 80))
@example("1\n- 1", 0, 5)
def test_any_text__is_written_without_an_error(text: str, first: int, last: int) -> None:
    for media_type in (media_types.MARKDOWN, media_types.TEXT, "text/x-python"):
        html = render_document(text, media_type, Marks(exact=[(first, last)], chunks=[(first, 1)]))
        output = unescape(TAG.sub("", re.sub(r'<span class="chunk-start">.*?</span>', "", html)))
        # White space between two blocks is in neither mark.
        assert "".join(_marked(html).split()) in "".join(output.split())


def test_chunks__are_numbered_where_they_begin() -> None:
    html = render_document("# A\n\nOne two.", media_types.MARKDOWN, Marks(chunks=[(0, 1), (9, 2)]))
    assert '<h2><span class="chunk-start"><b>chunk 1</b></span>A</h2>' in html
    assert '<p>One <span class="chunk-start"><b>chunk 2</b></span>two.</p>' in html
