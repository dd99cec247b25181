"""Chunks of tables: whole rows, and the header where a chunk begins within a table."""

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse

from .conftest import BuildChunker

ROWS = [f"Plan {number}|{number}|{number * 100}" for number in range(40)]
MARKDOWN = "Intro\n\n| Plan | Seats | Price |\n|---|---|---|\n" + "".join(f"|{row}|\n" for row in ROWS) + "\nAfter."
CSV = "Prices of 2024\n\nPlan|Seats|Price\n" + "\n".join(ROWS)


def parsed(name: str, text: str) -> ParsedDocument:
    return parse(SourceDocument(source=name, data=text.encode()))


@pytest.mark.parametrize("strategy", ["paragraph", "hierarchical", "markdown", "semantic"])
@pytest.mark.parametrize(
    ("name", "text", "context"),
    [("a.md", MARKDOWN, ("Plan | Seats | Price",)), ("a.csv", CSV, ("Prices of 2024", "Plan | Seats | Price"))],
)
def test_split__a_chunk_of_a_table_has_whole_rows_and_its_header(
    build: BuildChunker, strategy: str, name: str, text: str, context: tuple[str, ...]
) -> None:
    document = parsed(name, text)
    first, *others = build(strategy, max_size=400, recursive_size=200, overlap=30).split(document)
    assert first.table_context == ()
    assert "Price" in first.text.split("\n")[-1] or "|" in first.text.split("\n")[-1]
    assert others
    for chunk in others:
        assert chunk.table_context == context
        assert document.text[chunk.start - 1] == "\n"
        assert document.text[chunk.end : chunk.end + 1] in ("\n", "")
        assert document.text[chunk.start : chunk.end] == chunk.text


def test_split__the_header_stays_with_the_first_row(build: BuildChunker) -> None:
    text = "Words before it. " * 20 + "\n\n" + MARKDOWN
    chunks = build("paragraph", max_size=400, recursive_size=200, min_size=380).split(parsed("a.md", text))
    assert not any(chunk.text.endswith("|---|---|---|") for chunk in chunks)


def test_split__a_row_longer_than_a_chunk_is_cut_with_the_header_as_context(build: BuildChunker) -> None:
    document = parsed("a.csv", "Plan,Terms,Note\nBasic," + "many words of terms " * 60 + ",x\nPro,none,y")
    chunks = build("paragraph", max_size=400, recursive_size=200).split(document)
    assert len(chunks) > 3
    assert all(chunk.table_context == ("Plan | Terms | Note",) for chunk in chunks[1:])
