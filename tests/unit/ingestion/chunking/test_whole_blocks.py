"""Fenced blocks that are never cut."""

import pytest

from kosmos_rag.core.config import ChunkingSettings
from kosmos_rag.core.types import Chunk, Heading, ParsedDocument
from kosmos_rag.ingestion.chunking import build_chunker
from kosmos_rag.models.testing.hashing import HashingEmbedder

BLOCK = "```sql\n" + "\n".join(f"select column_{n} from some_table_{n};" for n in range(60)) + "\n```"
TEXT = f"## Query\n\nWhat it counts.\n\n{BLOCK}\n\nWhat to know about it."


def _split(*, whole_blocks: bool, max_tokens: int) -> list[Chunk]:
    settings = ChunkingSettings(
        strategy="markdown", min_size=80, max_size=900, recursive_size=500, overlap=100, whole_blocks=whole_blocks
    )
    document = ParsedDocument(
        text=TEXT, media_type="text/markdown", headings=(Heading(level=2, title="Query", start=0),)
    )
    return build_chunker(settings, embedder=HashingEmbedder(), max_tokens=max_tokens).split(document)


@pytest.mark.parametrize("max_tokens", [20, 100_000])
def test_whole_blocks__are_not_cut_whatever_their_size_and_tokens(max_tokens: int) -> None:
    chunks = _split(whole_blocks=True, max_tokens=max_tokens)
    [holding] = [chunk for chunk in chunks if "```" in chunk.text]
    assert holding.text.endswith(BLOCK)
    assert holding.fallback_reason is None
    assert all(TEXT[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert [chunk.text for chunk in chunks if chunk.text.endswith("about it.")]


def test_whole_blocks__off_cuts_them_at_the_limits() -> None:
    chunks = _split(whole_blocks=False, max_tokens=100)
    assert not any(BLOCK in chunk.text for chunk in chunks)
    assert all(chunk.tokens <= 100 for chunk in chunks)
