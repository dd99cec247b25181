"""Web pages of known content in frames of menus, login boxes and banners."""

from itertools import product

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse

SENTENCE = "The {0} was measured at the {0} of the valley, and the {0} stayed there until the rain came back."


def prose(*words: str) -> str:
    return "".join(f"<p>{SENTENCE.format(word)}</p>" for word in words)


CONTENTS = {
    "article": (
        (
            "<h1>Rivers of the north</h1><p class='lead'>A short lead.</p>"
            f"{prose('bridge', 'tower')}<h2>Later years</h2>{prose('garden')}<blockquote>So it was.</blockquote>"
        ),
        ["Rivers of the north", "A short lead", "bridge", "Later years", "garden", "So it was"],
    ),
    "documentation": (
        (
            f"<h1>Install</h1>{prose('server')}<h2>Steps</h2><ol><li>Download<li>Run <code>make</code></ol>"
            "<pre>make install\n  --all</pre><table><tr><th>Key<th>Value<tr><td>port<td>8080</table>"
            "<dl><dt>host<dd>the name</dl><ul><li><a href='/a'>Guide of the port</a> and more</ul>"
        ),
        ["Install", "server", "1. Download", "2. Run make", "make install\n  --all", "8080", "the name", "Guide of"],
    ),
    "forum": (
        "<h1>It does not start</h1>"
        + "".join(
            f"<div class='comment'><b>user{n}</b><div>{SENTENCE.format(f'reply{n}')}</div></div>" for n in range(9)
        ),
        ["It does not start", *(f"reply{n}" for n in range(9)), "user3"],
    ),
    "product": (
        (
            "<h1>Kettle K5</h1><div>Price: 49 EUR, delivery within two days</div><section><h2>What it does</h2>"
            f"{prose('kettle')}</section><section><h2>Data</h2><table><tr><td>Weight<td>900 g</table></section>"
            "<section><h2>In the box</h2><ul><li>kettle<li>manual</ul></section>"
            f"<section><h2>Care</h2>{prose('filter')}</section>"
        ),
        ["Kettle K5", "49 EUR", "What it does", "900 g", "manual", "filter"],
    ),
    "index": (
        "<h1>All guides</h1><ul>" + "".join(f"<li><a href='/{n}'>Guide number {n}</a>" for n in range(40)) + "</ul>",
        ["All guides", "Guide number 0", "Guide number 39"],
    ),
    "table": (
        "<h1>Prices</h1><table><tr><th>Plan<th>Seats"
        + "".join(f"<tr><td>Plan{n}<td>{n}" for n in range(50))
        + "</table>",
        ["Prices", "Plan: Plan7", "Plan: Plan49"],
    ),
    "notice": ("<h1>Closed</h1><p>We are closed on Monday.</p>", ["Closed", "closed on Monday"]),
    "divisions": (
        "<h1>Report</h1>" + "".join(f"<div>{SENTENCE.format(word)}</div>" for word in ("snow", "wind", "frost")),
        ["Report", "snow", "wind", "frost"],
    ),
}
MENU = "".join(f"<li><a href='/m{n}'>Menu entry {n}</a>" for n in range(8))
TEASERS = "".join(f"<div><h3><a href='/t{n}'>Teaser {n}</a></h3><p>Teaser text.</p></div>" for n in range(4))
COOKIES = "We use cookies to improve your stay. Accept all cookies?"
LOGIN = "<form><label>Login name</label><input><button>Sign in now</button></form>"
FRAMES = {
    "bare": "{0}",
    "elements": "<header><nav><ul>{menu}</ul></nav></header><main>{0}</main><aside>{teasers}</aside>"
    "<footer><p>Imprint of the firm</p></footer>",
    "classes": "<div id='header'>{login}<ul>{menu}</ul></div><div class='cookie-banner'><p>{cookies}</p></div>"
    "<div id='wrap'><div class='sidebar'>{teasers}</div><div class='content'>{0}</div></div>"
    "<div class='site-footer'>Imprint of the firm</div>",
    "article": "<div class='nav-bar'><ul>{menu}</ul></div><div><article>{0}</article></div>"
    "<div class='related-posts'><h2>Teasers</h2>{teasers}</div><div role='dialog'>{cookies}</div>",
    "form": "<form id='page'><table><tr><td><ul>{menu}</ul></td><td><div>{0}</div></td></tr></table>"
    "<div class='footer'>Imprint of the firm</div></form>",
}
FRAME_WORDS = ["Menu entry", "Teaser", "cookies", "Login name", "Sign in", "Imprint"]


def page(frame: str, content: str) -> ParsedDocument:
    body = FRAMES[frame].format(content, menu=MENU, teasers=TEASERS, cookies=COOKIES, login=LOGIN)
    data = f"<!doctype html><html><head><title>T</title></head><body>{body}</body></html>"
    return parse(SourceDocument(source="a.html", data=data.encode()))


PAGES = [pair for pair in product(FRAMES, CONTENTS) if pair != ("form", "index")]
"""Without the one where nothing tells a menu from a list of links."""


@pytest.mark.parametrize(("frame", "kind"), PAGES)
def test_parse_html__content_of_a_page_without_its_frame(frame: str, kind: str) -> None:
    content, expected = CONTENTS[kind]
    parsed = page(frame, content)
    assert [words for words in expected if words not in parsed.text] == []
    assert [words for words in FRAME_WORDS if words in parsed.text] == []
    assert parsed.headings[0].title == expected[0]


def test_parse_html__title_outside_of_the_content_is_kept() -> None:
    body = "<div class='page-header'><ul><li><a href='/'>Home page</a></ul><h1>The title</h1><p>Share</p></div>"
    parsed = page("bare", f"{body}<div class='x'>{prose('one', 'two', 'three')}</div>")
    assert parsed.text.startswith("The title\n\nThe one was")


def test_parse_html__comments_below_an_article_are_left_out() -> None:
    comments = "".join(f"<li class='comment'>{prose(f'remark{n}')}</li>" for n in range(4))
    text = page("elements", f"<h1>A</h1>{prose('bridge', 'tower')}<ol class='comments'>{comments}</ol>").text
    assert "tower" in text
    assert "remark" not in text


def test_parse_html__short_article_above_many_comments_is_kept() -> None:
    comments = "".join(f"<div class='comment'>{prose(f'remark{n}')}</div>" for n in range(40))
    text = page("bare", f"<div><h1>A</h1><div>{prose('bridge')}</div><div class='comments'>{comments}</div></div>").text
    assert "bridge" in text
    assert "remark39" in text


@pytest.mark.parametrize(
    "body",
    [
        "<nav>Only a menu here</nav>",
        "<footer><p>Only a footer here</p></footer>",
        "<form><p>Only a form here</p></form>",
        "<div class='cookie'><a href='/'>Only here</a></div>",
    ],
)
def test_parse_html__page_of_frame_alone_is_kept(body: str) -> None:
    assert "here" in page("bare", body).text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<ol><li>one<li>two</ol>", "1. one\n2. two"),
        ("<ol start=3><li>one<li value=7>two<li>three</ol>", "3. one\n7. two\n8. three"),
        ("<ol type=a><li>one<ol type=I><li>inner<li>more</ol><li>two</ol>", "a. one\n\nI. inner\nII. more\n\nb. two"),
        ("<ol start=x><li>one<ul><li>inner</ul></ol><li>alone", "1. one\n\n- inner\n\n- alone"),
        ("<p>10<sup>6</sup> a<sup>-2</sup> H<sub>2</sub>O x<sub>max</sub>", "10^6 a^-2 H_2O x_max"),
        (
            (
                "<p>Let <math><semantics><mrow>x=<mfrac><mrow>a<mo>+</mo>1</mrow><msqrt>b</msqrt></mfrac></mrow>"
                r"<annotation>x=\frac{a}{b}</annotation></semantics></math> be"
            ),
            "Let x=(a+1)/(√(b)) be",
        ),
        ("<p><math><msubsup><mi>x</mi>i<mn>2</mn></msubsup><mroot>y<mn>3</mn></mroot>", "x_i^2root3(y)"),
        ("<p><span class=katex-mathml><math>a</math></span><span class=katex-html>drawn</span>", "a"),
        ("<p><span class=katex-html>drawn alone</span>", "drawn alone"),
        ("<p><math><msup><mi>a</mi>", "a"),
        ("<p>x<sup>n+1</sup> y<sup><i>n</i></sup> z<sub><var>i</var>,j</sub>", "x^(n+1) y^n z_(i,j)"),
        ("<p>Ca<sup>2+</sup> 2<sup>1.5</sup> a<sup>see below</sup>", "Ca^(2+) 2^(1.5) asee below"),
        ("<table><tr><th><math><mfrac><mi>a</mi><mi>b</mi></mfrac></math><td>1<tr><th>c<td>2</table>", "a/b: 1\nc: 2"),
        ("<table><tr><th>m<sup>n+1</sup><td>1<tr><th>b<td>2</table>", "m^(n+1): 1\nb: 2"),
        ("<p>1<sup>st</sup> word<sup><a href='#1'>1</a></sup> x<sup>a b</sup>", "1st word[1] xa b"),
        ("<p>See <img src=a.png alt='a red fish'> here<img alt='b.png'><img>", "See a red fish here"),
        ("<table><tr><th>Area<th>Sign<tr><td>7 m<sup>2</sup><td><img alt=yes></table>", "Area: 7 m^2; Sign: yes"),
    ],
)
def test_parse_html__numbers_scripts_and_pictures(body: str, text: str) -> None:
    assert text in page("bare", body).text


STORAGE = """<h1>Runbook</h1><ac:structured-macro ac:name="code"><ac:parameter ac:name="language">sql</ac:parameter>
<ac:parameter ac:name="title">Query &amp; more</ac:parameter><ac:plain-text-body><![CDATA[SELECT 1 < 2;
  -- &amp;]]></ac:plain-text-body></ac:structured-macro><p>See
<ac:link><ri:page ri:content-title="Other page" /></ac:link>
and <ac:link><ri:page ri:content-title="Hidden" />
<ac:plain-text-link-body><![CDATA[the words]]></ac:plain-text-link-body>
</ac:link>.</p><ac:image><ri:attachment ri:filename="a.png" /></ac:image>
<ac:task-list><ac:task><ac:task-id>7</ac:task-id>
<ac:task-status>incomplete</ac:task-status>
<ac:task-body>Restart</ac:task-body></ac:task></ac:task-list>"""


@pytest.mark.parametrize("source", ["a.xml", "a.html", "page"])
def test_parse_html__storage_format_of_confluence(source: str) -> None:
    parsed = parse(SourceDocument(source=source, data=STORAGE.encode()))
    assert parsed.text == (
        "Runbook\n\nQuery & more\n\nSELECT 1 < 2;\n  -- &amp;\n\nSee Other page and the words .\n\n- Restart"
    )
    assert parsed.media_type == "text/html"


ARTICLE = f"<h1>Rivers</h1>{prose(*(f'river{n}' for n in range(16)))}"
HOME = "<nav><a href='/'>Home</a></nav>"


@pytest.mark.parametrize(
    "rest",
    [
        "<div class='comments'>" + "".join(f"<div>{SENTENCE.format(f'extra{n}')}</div>" for n in range(24)) + "</div>",
        "<div class='x'><ul>"
        + "".join(f"<li><div><h3><a href='/{n}'>Page extra{n}</a></h3>{prose(f'extra{n}')}</div>" for n in range(24))
        + "</ul></div>",
    ],
    ids=["comments", "teasers"],
)
def test_article__what_is_longer_than_it_is_left_out(rest: str) -> None:
    text = extract_content(f"{HOME}<div><div>{ARTICLE}</div>{rest}</div>")
    assert "river0" in text
    assert "river15" in text
    assert "extra" not in text


def test_section__named_by_its_heading_is_content() -> None:
    sections = "".join(
        f"<div class='section' id='{name.lower().replace(' ', '-')}'><h2>{name}</h2>{prose(f'part{n}')}</div>"
        for n, name in enumerate(["Share a file", "Comment on a page", "Login", "Headers of a table", "Menu"])
    )
    text = extract_content(
        f"{HOME}<div class='share'><a href='/s'>Tweet this</a></div><div><h1>Guide</h1>{sections}</div>"
    )
    assert all(f"part{n}" in text for n in range(5))
    assert "Tweet" not in text


@pytest.mark.parametrize(
    ("attribute", "is_content"),
    [
        ("class='box'", True),
        ("class='box MENU'", False),
        ("class='m&#101;nu'", False),
        ("id=menu", False),
        ("role=navigation", False),
        ("role=main", True),
    ],
)
def test_block__is_content_unless_its_attributes_say_else(attribute: str, *, is_content: bool) -> None:
    text = extract_content(f"<div {attribute}>{prose('block')}</div>{prose('bridge', 'tower', 'garden')}")
    assert "bridge" in text
    assert ("block" in text) is is_content


def extract_content(body: str) -> str:
    return parse(SourceDocument(source="a.html", data=f"<html><body>{body}</body></html>".encode())).text
