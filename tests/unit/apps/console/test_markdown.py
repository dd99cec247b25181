"""Markdown of answers and documents as HTML."""

import pytest

from kosmos_rag.apps.http.console.markdown import (
    UNSUPPORTED,
    MarkerLink,
    complete_markdown,
    extract_words,
    find_words,
    render_markdown,
)

LINKS = {"[1]": MarkerLink(href='/documents/1?a=1&b="2"', title="Leave <b>")}
MARKER = '<a class="marker" href="/documents/1?a=1&amp;b=&quot;2&quot;" title="Leave &lt;b&gt;" data-source>[1]</a>'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**Paid** leave [1].", f"<p><strong>Paid</strong> leave {MARKER}.</p>"),
        ("# Leave", "<h3>Leave</h3>"),
        ("- a\n- b [1]", f"<ul><li>a</li>\n<li>b {MARKER}</li>\n</ul>"),
        ("`[1]`", "<p><code>[1]</code></p>"),
        ("```sql\na < b\n```", '<pre tabindex="0"><code>a &lt; b\n</code></pre>'),
        ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
        ("[text](javascript:alert(1))", "<p>[text](javascript:alert(1))</p>"),
        ("![x](https://elsewhere/x.png)", "<p>![x](https://elsewhere/x.png)</p>"),
        ("<https://elsewhere>", "<p>&lt;https://elsewhere&gt;</p>"),
        ("[1]: https://elsewhere", f"<p>{MARKER}: https://elsewhere</p>"),
        ("a \ue000 b", "<p>a \ufffd b</p>"),
    ],
)
def test_render__escapes_texts_and_links_markers_only(text: str, html: str) -> None:
    assert render_markdown(text, LINKS).strip() == html


def test_render__writes_tables() -> None:
    html = render_markdown("| a | b |\n|---|--:|\n| 1 | <i> |", {})
    assert "<table>" in html
    assert "style" not in html
    assert "<td>&lt;i&gt;</td>" in html


@pytest.mark.parametrize(
    ("text", "marked", "html"),
    [
        ("One. Two three. Four.", "Two three", "<p>One. <mark class=\"cited\">Two three</mark>. Four.</p>"),
        ("a **b** c", "b** c", '<strong><mark class="cited">b</mark></strong><mark class="cited"> c</mark>'),
        ("## Per diem", "## Per diem", '<h3><mark class="cited">Per diem</mark></h3>'),
        ("1. One", "1. One", '<ol><li><mark class="cited">One</mark></li>\n</ol>'),
        ("a\n```\nx = 1\n```", "a\n```\nx = 1", '<mark class="cited">x = 1</mark>'),
    ],
)  # fmt: skip
def test_render__marks_spans_within_their_elements(text: str, marked: str, html: str) -> None:
    start = text.index(marked)
    assert html in render_markdown(text, {}, spans=[(start, start + len(marked))])


def test_render__keeps_markers_within_a_span_as_links() -> None:
    text = "One two\n[1] three four"
    assert f'{MARKER} <mark class="cited">three four</mark>' in render_markdown(text, LINKS, spans=[(0, len(text))])


def test_render__says_to_screen_readers_what_is_unsupported() -> None:
    html = render_markdown("Right [1]. Wrong.", LINKS, spans=[(11, 16)], highlight=UNSUPPORTED)
    assert '<mark class="unsupported">Wrong</mark><span class="hidden"> (not supported by the sources)</span>' in html


def test_find_words__ignores_markdown_and_markers() -> None:
    text = "First. The **per diem** is 28 [1] EUR [2]. Last."
    span = find_words(text, extract_words("The per diem is 28 EUR."), without=["[1]", "[2]"])
    assert span is not None
    assert text[slice(*span)] == "The **per diem** is 28 [1] EUR"
    assert find_words(text, ["absent"]) is None
    assert find_words(text, []) is None


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("a **bol", "a **bol**"),
        ("a *it", "a *it*"),
        ("a `co", "a `co`"),
        ("a **", "a "),
        ("a [1", "a "),
        ("- a\n* b", "- a\n* b"),
        ("a\n\n| a | b |\n|--", "a\n"),
        ("```\na **b", "```\na **b"),
        ("", ""),
    ],
)
def test_complete__closes_what_is_open(text: str, completed: str) -> None:
    assert complete_markdown(text) == completed
