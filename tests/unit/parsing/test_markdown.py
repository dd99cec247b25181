"""Headings of Markdown, and text that matches the file."""

import pytest

from kosmos_rag.core.types import METADATA_FIELDS, ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse


def parse_markdown(text: str) -> ParsedDocument:
    return parse(SourceDocument(source="a.md", data=text.encode()))


def outline(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in parse_markdown(text).headings]


DOCUMENT = """---
# no heading: a comment
title: "The Guide"
---

# First #

Words.

Setext One
==========

   ## Indented ##

```python
# no heading
```

Setext Two
---

~~~~
## no heading
~~~
# still code
~~~~
###### Six
"""


def test_parse_markdown__text_is_the_file_without_front_matter() -> None:
    expected = "\n\n\n" + DOCUMENT[DOCUMENT.index("\n\n# First") :]
    assert parse_markdown(DOCUMENT).text == expected
    assert parse_markdown(DOCUMENT.replace("\n", "\r\n")).text == expected
    body = expected.lstrip("\n")
    assert parse_markdown(body).text == body


def test_parse_markdown__headings_and_their_offsets() -> None:
    parsed = parse_markdown(DOCUMENT)
    assert [(h.level, h.title, parsed.text[h.start :].split("\n")[0]) for h in parsed.headings] == [
        (1, "First", "# First #"),
        (1, "Setext One", "Setext One"),
        (2, "Indented", "   ## Indented ##"),
        (2, "Setext Two", "Setext Two"),
        (6, "Six", "###### Six"),
    ]
    assert [parsed.find_line(h.start) for h in parsed.headings] == [6, 10, 13, 19, 27]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (DOCUMENT, "The Guide"),
        ("---\ntitle: It's plain\n...\n# Other\n", "It's plain"),
        ("---\nauthor: me\n---\n## Two\n# One\n", "One"),
        ("---\ntitle: >-\n  folded\n---\n# One\n", "folded"),
        ("---\ntitle: A: guide\ntags: x\n---\n# One\n", "A: guide"),
        ("+++\ntitle = 'From TOML'\n+++\n# One\n", "From TOML"),
        ("---\ntitle:\n---\n# One\n", "One"),
        ("---\ntitle: never closed\n# One\n", "One"),
        ("## Two\n", None),
        ("words", None),
    ],
)
def test_parse_markdown__title(text: str, title: str | None) -> None:
    assert parse_markdown(text).title == title


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("#hashtag\n####### seven\n    # code\n\\# escaped\n", []),
        ("#\n# \n## ##\nwords", []),
        ("# C#\n# foo#bar ##\n#\ttab\n", [(1, "C#"), (1, "foo#bar"), (1, "tab")]),
        ("words\n# Interrupts\n", [(1, "Interrupts")]),
        ("First line\nsecond line\n---\n", []),
        ("- item\n---\n\n> quote\n---\n\n| a |\n---\n\n    code\n---\n", []),
        ("\n---\n\nwords\n\n---\n", []),
        ("Title\n=\n\nNext\n-\n", [(1, "Title"), (2, "Next")]),
        ("# One\nUnder\n---\n", [(1, "One"), (2, "Under")]),
        ("```\ncode\n```\n---\nwords\n", []),
        ("``` not `a fence\n# Yes\n", [(1, "Yes")]),
        ("```\n# unclosed\n", []),
        ("```\n``` js\n# code\n```\n# Yes\n", [(1, "Yes")]),
        ("# " + "long " * 1000, [(1, ("long " * 60).rstrip())]),
    ],
)
def test_parse_markdown__grammar_of_headings(text: str, headings: list[tuple[int, str]]) -> None:
    assert outline(text) == headings


def test_parse_markdown__section_of_a_place() -> None:
    parsed = parse_markdown("# A\n\n## B\n\nwords\n\n# C\n")
    assert parsed.find_section(parsed.text.index("words")) == ("A", "B")


@pytest.mark.parametrize(
    ("front_matter", "metadata"),
    [
        ("---\ndate: 2026-01-31\ntags: [kpi, 7]\n---", {"date": "2026-01-31", "tags": ["kpi", "7"]}),
        ("---\ntags:\n  - a b\n  - c\n---", {"tags": ["a b", "c"]}),
        ("---\ntags: a, b\nauthor: Ada\n...", {"tags": ["a", "b"], "authors": ["Ada"]}),
        ("---\ndate: 2026-01-31 12:00:00+01:00\n---", {"date": "2026-01-31T12:00:00+01:00"}),
        (
            "---\nlastmod: May 2026\ndescription: >\n  Two\n  lines.\n---",
            {"updated": "May 2026", "description": "Two lines."},
        ),
        ("---\ndate: 2026-01-31\ntitle: a: b\ntags: [x, y]\n---", {"date": "2026-01-31", "tags": ["x", "y"]}),
        ("+++\ndate = 2026-01-31\ncategories = ['a']\n+++", {"date": "2026-01-31", "categories": ["a"]}),
        ("---\ndepartment: board\nkind: table\ncurated: true\n---", {}),
        ("---\ndate: {a: b}\ntags: [[a], true, null]\n---", {}),
        ("---\ntitle: a\u0001b\ndescription: c\u0002d\n---", {"description": "c d"}),
    ],
)
def test_parse_markdown__fields_of_front_matter_are_metadata(front_matter: str, metadata: dict[str, object]) -> None:
    parsed = parse_markdown(f"{front_matter}\nBody.\n")
    assert parsed.metadata == metadata
    assert parsed.metadata.keys() <= METADATA_FIELDS
    assert parsed.text.strip() == "Body."
    assert parsed.find_line(parsed.text.index("Body")) == front_matter.count("\n") + 2


@pytest.mark.parametrize(
    "text",
    [
        "---\nJust words between two rules.\n---\nMore.\n",
        "---\n- a\n- b\n---\nMore.\n",
        "---\ntitle: never closed\n",
        "+++\nno = = toml\n+++\nMore.\n",
        "\n---\ntitle: x\n---\nMore.\n",
        "---\ntitle: x\n" + "# long\n" * 5_000 + "---\nMore.\n",
    ],
)
def test_parse_markdown__what_is_no_front_matter_is_text(text: str) -> None:
    parsed = parse_markdown(text)
    assert parsed.text == text
    assert parsed.metadata == {}


def test_parse_markdown__aliases_of_front_matter_do_not_multiply() -> None:
    levels = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
    merged = ["m0: &m0 {k: v}", *(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 12))]
    for lines in (levels, merged):
        parsed = parse_markdown("---\ntitle: kept\n" + "\n".join(lines) + "\n---\nBody.\n")
        assert (parsed.title, parsed.text.strip()) == ("kept", "Body.")


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("| a | b |\n|---|--:|\n| 1 | 2 |\n\nafter", ["| a | b |\n|---|--:|\n| 1 | 2 |"]),
        ("words\na|b\n-|-\n1|2\n> quote", ["a|b\n-|-\n1|2"]),
        ("a|b\n-|-|-\n", []),
        ("words\n---\nmore", []),
        ("```\na|b\n-|-\n```\n", []),
        ("a\\|b|c\n-|-\n1|2", ["a\\|b|c\n-|-\n1|2"]),
        ("|a|\n|-|\n|1|\n\n|b|\n|-|\n|2|", ["|a|\n|-|\n|1|", "|b|\n|-|\n|2|"]),
    ],
)
def test_parse_markdown__tables_are_marked_in_a_text_that_stays(text: str, tables: list[str]) -> None:
    parsed = parse_markdown(text)
    assert parsed.text == text
    assert [text[table.start : table.end] for table in parsed.tables] == tables
