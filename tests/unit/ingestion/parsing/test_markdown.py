"""Headings of Markdown, and text that matches the file."""

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.ingestion.parsing import parse


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


def test_parse_markdown__text_is_the_file() -> None:
    assert parse_markdown(DOCUMENT).text == DOCUMENT
    assert parse_markdown(DOCUMENT.replace("\n", "\r\n")).text == DOCUMENT


def test_parse_markdown__headings_and_their_offsets() -> None:
    parsed = parse_markdown(DOCUMENT)
    assert [(h.level, h.title, parsed.text[h.start :].split("\n")[0]) for h in parsed.headings] == [
        (1, "First", "# First #"),
        (1, "Setext One", "Setext One"),
        (2, "Indented", "   ## Indented ##"),
        (2, "Setext Two", "Setext Two"),
        (6, "Six", "###### Six"),
    ]
    assert [parsed.line_at(h.start) for h in parsed.headings] == [6, 10, 13, 19, 27]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (DOCUMENT, "The Guide"),
        ("---\ntitle: It's plain\n...\n# Other\n", "It's plain"),
        ("---\nauthor: me\n---\n## Two\n# One\n", "One"),
        ("---\ntitle: >-\n  folded\n---\n# One\n", "One"),
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
    assert parsed.section_at(parsed.text.index("words")) == ("A", "B")
