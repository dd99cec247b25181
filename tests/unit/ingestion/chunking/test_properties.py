"""What holds for every splitter and every text."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.config import ChunkingSettings
from kosmos_rag.core.types import Chunk, Heading, ParsedDocument, TableSpan
from kosmos_rag.ingestion.chunking import Chunker, build_chunker
from kosmos_rag.models.testing.hashing import HashingEmbedder

STRATEGIES = ("semantic", "recursive", "markdown", "paragraph", "hierarchical")
MAX_TOKENS = 20
SIZES = {"min_size": 30, "max_size": 120, "overlap": 15, "recursive_size": 60}
EMBEDDER = HashingEmbedder()
CHUNKERS: dict[str, Chunker] = {
    strategy: build_chunker(
        ChunkingSettings(strategy=strategy, **SIZES),  # type: ignore[arg-type]
        embedder=EMBEDDER,
        max_tokens=MAX_TOKENS,
    )
    for strategy in STRATEGIES
}

words = st.one_of(
    st.sampled_from(["the", "ab", "Dr.", "e.g.", "3.14", "data", "Churn", "x" * 70, "日本語", "文。", "。」次"]),
    st.sampled_from(["e\u0301" * 30, "👩\u200d👩\u200d👧" * 8, "👍🏽" * 20, "\u0301", "\u200b", "A" * 400, "....."]),
    st.text(max_size=12).map(lambda text: text.replace("\0", "")),
)
rows = st.sampled_from(
    ["", "", "\na b\n" + "one 1\n" * 40, "\na b\ntwo words. More\n\n", "\na b\n" + "x" * 300 + "\nb\n"]
)
gaps = st.sampled_from(
    ["", " ", " ", ". ", "? ", "\n", "\n\n", "\n \n", "\n" * 130, " " * 130, "\u3000", "\n## ", "\n# A\n## B\n"]
)
fences = st.sampled_from(
    ["", "\n```\ncode = 1\n\nmore = 2\n```\n", "\n~~~~\n~~~\n", "\n```py\n" + "a b\n" * 40 + "```\n"]
)
arbitrary = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=600)
built = st.lists(st.tuples(words, gaps, fences, rows), max_size=60).map(
    lambda parts: "".join(part for group in parts for part in group)
)
repeated = st.tuples(st.sampled_from(["ab ", "a", "文", "\n", "so. ", "a\n\n"]), st.integers(1, 400)).map(
    lambda pair: pair[0] * pair[1]
)
texts = st.one_of(built, arbitrary, repeated)


def parse(text: str) -> ParsedDocument:
    matches = re.finditer(r"^(#{1,6}) ([^\n]*)", text, re.MULTILINE)
    headings = (Heading(level=len(line[1]), title=line[2], start=line.start()) for line in matches)
    pages = tuple(range(0, len(text), 100))
    matches = re.finditer(r"^a b\n(?:[^\n#]+\n)+", text, re.MULTILINE)
    tables = (TableSpan(start=t.start(), end=t.end() - 1, context=("A | B",), body=t.start() + 4) for t in matches)
    return ParsedDocument(
        text=text, media_type="text/markdown", headings=tuple(headings), pages=pages, tables=tuple(tables)
    )


def is_whole_fence(chunk: Chunk) -> bool:
    """A fenced block may be longer than max_size; headings may lead it."""
    return chunk.text.endswith(("```", "~~~")) and len(chunk.text) <= 1.5 * SIZES["max_size"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(text=texts)
def test_chunks__of_any_text_keep_the_rules(strategy: str, text: str) -> None:
    document = parse(text)
    chunks = CHUNKERS[strategy].split(document)

    covered = bytearray(len(text))
    for ordinal, chunk in enumerate(chunks):
        assert chunk.chunk_index == ordinal
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text == chunk.text.strip() != ""
        assert len(chunk.text) <= SIZES["max_size"] or is_whole_fence(chunk)
        assert [chunk.tokens] == EMBEDDER.tokenizer.count([chunk.text])
        assert chunk.tokens <= MAX_TOKENS
        led_by = [h.start for h in document.headings if chunk.start <= h.start < chunk.end]
        assert chunk.section in {document.find_section(at) for at in (chunk.start, *led_by)}
        assert chunk.line_start == text.count("\n", 0, chunk.start) + 1
        assert chunk.line_end == text.count("\n", 0, chunk.end - 1) + 1
        assert chunk.page_start == chunk.start // 100 + 1
        within = any(table.start < chunk.start < table.end for table in document.tables)
        assert chunk.table_context == (("A | B",) if within else ())
        assert chunk.page_end == (chunk.end - 1) // 100 + 1
        assert (chunk.chunker == strategy) == (chunk.fallback_reason is None)
        assert chunk.chunker in (strategy, "recursive")
        covered[chunk.start : chunk.end] = b"\1" * len(chunk.text)
    assert all(covered[at] or character.isspace() for at, character in enumerate(text))
    for previous, chunk in pairwise(chunks):
        assert previous.start < chunk.start
        assert previous.end < chunk.end
        assert previous.end - chunk.start <= SIZES["overlap"]
    assert CHUNKERS[strategy].split(document) == chunks


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("text", ["", " ", "\n\n\n", "\u3000\u2028\t" * 2000])
def test_chunks_of_blank_text__none(strategy: str, text: str) -> None:
    assert CHUNKERS[strategy].split(parse(text)) == []


@pytest.mark.parametrize("strategy", ["semantic", "paragraph", "hierarchical"])
@given(text=texts)
def test_chunks_without_overlap__are_disjoint(strategy: str, text: str) -> None:
    chunks = [chunk for chunk in CHUNKERS[strategy].split(parse(text)) if chunk.chunker == strategy]
    assert all(previous.end <= chunk.start for previous, chunk in pairwise(chunks))
