"""The recursive splitter."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.ingestion.chunking import Chunker, recursive

Build = Callable[..., Chunker]


def plain(text: str) -> ParsedDocument:
    return ParsedDocument(text=text, media_type="text/plain")


def test_split__overlaps_exactly_in_repeated_text(build: Build) -> None:
    text = "ab " * 500
    chunks = build("recursive", recursive_size=100, overlap=20).split(plain(text))
    assert [(chunk.start, chunk.end) for chunk in chunks[:3]] == [(0, 77), (60, 155), (138, 233)]
    assert all(previous.end - chunk.start == 17 for previous, chunk in pairwise(chunks))


def test_split__cuts_at_the_coarsest_separator_that_fits(build: Build) -> None:
    first, second = "One line here.\nAnother line.", "Second paragraph. It has two sentences."
    chunks = build("recursive", recursive_size=45, overlap=0).split(plain(f"{first}\n\n{second}"))
    assert [chunk.text for chunk in chunks] == [first, second]


def test_split__when_it_fits_in_one(build: Build) -> None:
    text = "word " * 102
    (chunk,) = build("recursive").split(plain(text))
    assert (chunk.start, chunk.end) == (0, 509), "512 characters need no room for an overlap"


def test_split__cuts_a_word_of_ten_thousand_characters(build: Build) -> None:
    text = f"before {'x' * 10_000} after"
    chunks = build("recursive").split(plain(text))
    assert max(len(chunk.text) for chunk in chunks) <= 512
    assert "".join(chunk.text for chunk in chunks[1:-1]).strip("x") == ""
    assert (chunks[0].text, chunks[-1].text[-5:]) == ("before", "after")


@pytest.mark.parametrize("cluster", ["e\u0301", "👍🏽", "👩\u200d💻"])
def test_split__keeps_what_a_reader_sees_as_one_character(build: Build, cluster: str) -> None:
    chunks = build("recursive", recursive_size=64, overlap=10, max_tokens=30).split(plain(cluster * 300))
    assert {chunk.text.replace(cluster, "") for chunk in chunks} == {""}


def test_split__gives_the_pages_and_lines_of_each_chunk(build: Build) -> None:
    pages = ["Page one, line one.\nLine two.\n", "Page two, line three.\n", "Page three, line four.\n"]
    starts = (0, len(pages[0]), len(pages[0] + pages[1]))
    document = ParsedDocument(text="".join(pages), media_type="application/pdf", pages=starts)
    chunks = build("recursive", recursive_size=55, overlap=0, min_size=10).split(document)
    places = [(chunk.line_start, chunk.line_end, chunk.page_start, chunk.page_end) for chunk in chunks]
    assert places == [(1, 3, 1, 2), (4, 4, 3, 3)]


def test_split__of_a_text_longer_than_a_window(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"Sentence number {number} stands here. " for number in range(400))
    whole = build("recursive", overlap=0).split(plain(text))
    monkeypatch.setattr(recursive, "_WINDOW", 3_000)
    windowed = build("recursive", overlap=0).split(plain(text))
    assert " ".join(chunk.text for chunk in windowed) == " ".join(chunk.text for chunk in whole)
    assert len(whole) < len(windowed) <= len(whole) + len(text) // 1_500 + 1
    assert all(chunk.text.endswith("here.") for chunk in windowed)
