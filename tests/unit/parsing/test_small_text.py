"""Small texts that are parsed without a process of their own."""

import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing import OutputLimits, parse
from kosmos_rag.parsing.small_text import parse_small_text

LIMITS = OutputLimits(text_bytes=1000, pages=10)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("note.txt", "A note.\n"),
        ("page.md", "---\ntitle: Page\n---\n# Heading\n\nText.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"),
        ("page.rst", "Heading\n=======\n\nText.\n"),
        ("query.sql", "SELECT 1;\n"),
    ],
)
def test_parse_small_text__has_the_result_of_parse(source: str, text: str) -> None:
    document = SourceDocument(source=source, data=text.encode(), title="Its title")
    assert parse_small_text(document, LIMITS) == parse(document, LIMITS)


@pytest.mark.parametrize("text", ["{\\rtf1 Text.}", "<html><p>Text.</p></html>", "From: a@b.c\nDate: today\n\nText."])
def test_parse_small_text__leaves_other_formats_to_their_parsers(text: str) -> None:
    assert parse_small_text(SourceDocument(source="note", data=text.encode()), LIMITS) is None


def test_parse_small_text__refuses_what_parse_refuses() -> None:
    with pytest.raises(ParseError, match="no text in the Markdown file"):
        parse_small_text(SourceDocument(source="page.md", data=b"---\ntitle: Page\n---\n"), LIMITS)
    with pytest.raises(ParseError, match="1001 bytes of text"):
        parse_small_text(SourceDocument(source="note.txt", data=b"x" * 1001), LIMITS)
