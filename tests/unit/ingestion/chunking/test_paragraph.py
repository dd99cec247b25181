"""The paragraph splitter."""

from collections.abc import Callable

from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.ingestion.chunking import Chunker

Build = Callable[..., Chunker]


def split(chunker: Chunker, *paragraphs: str) -> list[Chunk]:
    text = "\n \n".join(paragraphs)
    return chunker.split(ParsedDocument(text=text, media_type="text/plain"))


def test_split__joins_paragraphs_until_min_size(build: Build) -> None:
    chunks = split(build("paragraph"), "a" * 60, "b" * 60, "c" * 120, "d" * 90, "e" * 90)
    assert [chunk.text.replace("\n \n", "") for chunk in chunks] == [
        "a" * 60 + "b" * 60,
        "c" * 120,
        "d" * 90 + "e" * 90,
    ]


def test_split__joins_a_short_tail_to_the_chunk_before(build: Build) -> None:
    chunks = split(build("paragraph"), "a" * 120, "b" * 120, "tail")
    assert [len(chunk.text) for chunk in chunks] == [120, 127]


def test_split__leaves_a_short_tail_that_does_not_fit(build: Build) -> None:
    chunks = split(build("paragraph"), "a" * 990, "tail of text")
    assert [len(chunk.text) for chunk in chunks] == [990, 12]


def test_split__leaves_a_short_chunk_before_one_that_does_not_fit(build: Build) -> None:
    chunks = split(build("paragraph"), "short", "a" * 999, "b" * 120)
    assert [len(chunk.text) for chunk in chunks] == [5, 999, 120]


def test_split__gives_a_long_paragraph_to_the_fallback(build: Build) -> None:
    first, *cut, last = split(build("paragraph"), "a" * 120, "word " * 300, "b" * 120)
    assert (first.chunker, last.chunker) == ("paragraph", "paragraph")
    reason = "paragraph longer than max_size (1000 characters)"
    assert [(chunk.chunker, chunk.fallback_reason) for chunk in cut] == [("recursive", reason)] * len(cut)
    assert len(cut) >= 3
