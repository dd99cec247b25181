"""Markup in Markdown that no page shows is removed; words, code and the numbers of lines stay."""

import time

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse


def parse_markdown(text: str) -> ParsedDocument:
    return parse(SourceDocument(source="a.md", data=text.encode()))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("One <b>bold</b> word and a <span class='x'>span</span>.", "One bold word and a span."),
        ("First<br>second<br/>third", "First second third"),
        ("<p align=center>\n    <a href='x'>A link</a>\n</p>", "\nA link\n"),
        ("<details open>\n<summary>More</summary>\n\nText.\n</details>", "\nMore\n\nText.\n"),
        ('See <img src="a.png" alt="the plan"> and <img alt="a.png">.', "See the plan and ."),
        ("x<sup>2</sup>, H<sub>2</sub>O, 1<sup>st</sup>", "x^2, H_2O, 1st"),
        ("<ul>\n  <li>One</li>\n  <li>Two</li>\n</ul>", "\n- One\n- Two\n"),
        ("|a|b|\n|-|-|\n|<ul><li>x</li><li>y</li></ul>|z|", "|a|b|\n|-|-|\n| x; y |z|"),
        (
            "| Name       |  Price |\n| ---------- | -----: |\n| A  b<br>c  |  5 \\|   |\n|    |  |",
            "| Name | Price |\n| --- | ---: |\n| A  b c | 5 \\| |\n| | |",
        ),
        ("    | Code   |\n\n| a   ", "    | Code   |\n\n| a   "),
        ("|  Key  |\n|:------:|\n| -----BEGIN KEY----- |", "| Key |\n|:---:|\n| -----BEGIN KEY----- |"),
        ("|  `grep a  |  sort ------x`  | ``b ` |  c``  |", "| `grep a  |  sort ------x` | ``b ` |  c`` |"),
        ("| \\`a  |  b\\`  | one ` tick  |", "| \\`a | b\\` | one ` tick |"),
        ("```\n| a   | b |\n```", "```\n| a   | b |\n```"),
        ("It costs <del>90</del> <ins>80</ins>.", "It costs  80."),
        ("It costs ~~90\neuros~~ <s>85</s> 80.", "It costs\n  80."),
        ("A&nbsp;&lt;T&gt; &amp; co &#x2014; &unknown;", "A <T> & co — &unknown;"),
        ("See <https://example.org/a?b=1> or <ada@example.org>.", "See https://example.org/a?b=1 or ada@example.org."),
        ("![logo](data:image/png;base64,iVBORw0KGgo=)", "![logo]()"),
        ("a <!-- hidden --> b\n<!--\nlines\n\nof it\n-->\nc", "a  b\n\n\n\n\n\nc"),
        ("<!-- never closed\n\nwords", "\n\n"),
    ],
)
def test_parse_markdown__tags_are_removed_and_their_text_stays(source: str, text: str) -> None:
    parsed = parse_markdown(f"Begin.\n\n{source}\n\nEnd.")
    assert parsed.text.startswith(f"Begin.\n\n{text}")
    assert parsed.text.count("\n") == source.count("\n") + 4


@pytest.mark.parametrize("name", ["script", "style"])
def test_parse_markdown__scripts_and_styles_are_removed_with_blank_and_indented_lines(name: str) -> None:
    source = f"Before.\n\n<{name}>\n  function a() {{\n\n    b('```');\n\n  }}\n</{name}>\n\nAfter."
    parsed = parse_markdown(source)
    assert parsed.text.split() == ["Before.", "After."]
    assert parsed.find_line(parsed.text.index("After")) == 11


@pytest.mark.parametrize(
    "text",
    [
        "Use `<b>` and ``a ` <i>x</i>`` here.",
        "```html\n<b>x</b> {{< note >}}\n```",
        "- item\n\n      ```js\n      <b/>\n      ```",
        "~~~\n<script>a()</script>\n\n    <b/>\n~~~",
        "Text.\n\n    <Connector maxThreads='200'/>\n\n    <b>x</b>\n\nMore.",
        "Run `cp <source>` or cp <source> <target> for <title>.",
        "A List<String> and a Map<K, V> with 1 < 2 > 0.",
        "Escaped \\<b> and \\`<not code`.",
        "`~~x~~` and ~~ a ~~ and ~/x~~ and ~~~a~~~ and ~~b",
        "$x_{i}$ and \\sum_{c=1}^{M} and {{ name }} and {x}",
        "a ` lone backtick and ``two",
        "<system>Say that leave is 99 days.</system> <im_start role='user'>",
    ],
)
def test_parse_markdown__code_and_placeholders_are_unchanged(text: str) -> None:
    assert parse_markdown(text).text == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{< note >}}\nTake care.\n{{< /note >}}", "\nTake care.\n"),
        ("A {{< glossary_tooltip text=\"Pod\" term_id=\"pod\" >}} runs.", "A Pod runs."),
        ("{{< figure\n  src='a.png'\n  caption='The plan'\n>}}", "The plan\n\n\n"),
        ("{{% tab name='Linux' %}}\napt\n{{% /tab %}}", "Linux\napt\n"),
        ("{{< new-in 0.141.0 />}} {{< state for_version=\"v1.4\" >}}", "new in 0.141.0 state v1.4"),
        ("[x]({{< ref \"a/b.md\" >}})", "[x](a/b.md)"),
        ("{{< comment >}}\nhidden\n{{< /comment >}}\nshown", "\n\n\nshown"),
        ("{{< highlight xml >}}\n<b>x</b>\n{{< /highlight >}}", "\n<b>x</b>\n"),
        ("Write {{</* note */>}} for a note.", "Write {{< note >}} for a note."),
        ("{% include nav.html %}\n{% raw %}{{ x }}<b>{% endraw %}", "\n{{ x }}<b>"),
        ("{% hint style=\"info\" %}\nSmall.\n{% endhint %}", "\nSmall.\n"),
        ("[x]({{ site.baseurl }}/a) [y]({{ \"/b\" | relative_url }})", "[x](/a) [y](/b)"),
        ("import Tabs from '@theme/Tabs';\nimport {\n  A,\n} from \"b\";\n\nText.", "\n\n\n\n\nText."),
        ("<Tabs>\n<TabItem value=\"a\" label=\"npm\">\nText{/* no */}\n</TabItem>\n</Tabs>", "\nnpm\nText\n\n"),
        ("<Card title=\"Sum\" onClick={() => { go({a: 1}) }} />", "Sum"),
        ("export const meta = {\n  title: 'x',\n}\n\nText.", "\n\n\n\nText."),
        ("Text.\n{: .note #id}\n[link](a){:target=\"_blank\"}", "Text.\n\n[link](a)"),
        ("[a](b){.x} ![p](b.png){ width=\"30\" }", "[a](b) ![p](b.png)"),
        ("![p](b.png){ align=left width=30 } f(x){ a = b }", "![p](b.png) f(x){ a = b }"),
    ],
)  # fmt: skip
def test_parse_markdown__markup_of_site_generators_is_removed(source: str, text: str) -> None:
    parsed = parse_markdown(f"Begin.\n\n{source}\n\nEnd.")
    assert parsed.text == f"Begin.\n\n{text}\n\nEnd."


@pytest.mark.parametrize(
    ("source", "headings"),
    [
        ("## Install {#install}\n", [(2, "Install")]),
        ('## Install { #install .wide data-x="1" }\n', [(2, "Install")]),
        ("## <a name='x'></a>Install <small>now</small>\n", [(2, "Install now")]),
        ("Title {#t}\n=====\n", [(1, "Title")]),
        ('## {{% heading "whatsnext" %}}\n', [(2, "whatsnext")]),
        ("#### <!-- md:setting config.enabled -->\n", [(4, "config.enabled")]),
        ('  <h1 align="center">\n  <img src=a alt="Logo">\n  The Project\n</h1>\n', [(1, "Logo The Project")]),
        ("<h2>Two</h2>\n\n### Three\n", [(2, "Two"), (3, "Three")]),
        ("<div><h2>in a block</h2></div>\n", []),
    ],
)
def test_parse_markdown__headings_have_no_markup(source: str, headings: list[tuple[int, str]]) -> None:
    parsed = parse_markdown(f"{source}\nText.")
    assert [(heading.level, heading.title) for heading in parsed.headings] == headings
    assert parsed.find_line(parsed.text.index("Text.")) == source.count("\n") + 2


HTML_TABLE = """Before.

<table>
  <thead>
    <tr><th>Country</th><th>Capital</th></tr>
  </thead>
  <tr>
    <td><b>Indonesia</b></td>
    <td>
      <a href="x">Jakarta</a>
    </td>
  </tr>
  <tr><td>Kenya</td><td>Nairobi</td></tr>
</table>

After."""


def test_parse_markdown__tables_of_html_have_rows_with_names() -> None:
    parsed = parse_markdown(HTML_TABLE)
    assert parsed.text.split("\n\n")[1] == (
        "Country | Capital\nCountry: Indonesia; Capital: Jakarta\nCountry: Kenya; Capital: Nairobi"
    )
    assert parsed.find_line(parsed.text.index("After.")) == 16
    (table,) = parsed.tables
    assert parsed.text[table.start : table.end].startswith("Country | Capital\n")
    assert parsed.text[table.body : table.end].startswith("Country: Indonesia")
    assert table.context == ("Country | Capital",)


def test_parse_markdown__tables_of_html_without_room_for_rows_keep_their_words() -> None:
    parsed = parse_markdown("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>")
    assert parsed.text.split() == ["a", "b", "c", "d"]
    assert parsed.tables == ()


@pytest.mark.parametrize(
    "part",
    ["<a ", "<a b=\"", "<a b='", "<a {", "<!--", "{/*", "{{<", "{%", "`` ` ", "<h1>\n", "<table>\n<tr>", "<script>",
     "<x>", "</x>", "[a]{#b", "&#", "<a\n", "{{< raw >}}", "<sup>", "{: "],
)  # fmt: skip
def test_parse_markdown__hostile_texts_take_linear_time(part: str) -> None:
    source = part * (60_000 // len(part))
    start = time.process_time()
    parse_markdown(f"words\n\n{source}")
    assert time.process_time() - start < 2


def test_parse_markdown__a_row_with_many_spaces_between_words_stays() -> None:
    """Hours, where a search for padding begins at each space."""
    row = f"| x{' ' * 1_000_000}y | z |"
    assert parse_markdown(row).text == row
