"""The semantic splitter."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import Chunker, Vectors
from kosmos_rag.core.types import Heading, ParsedDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder

Build = Callable[..., Chunker]

CATS = "Cats sleep all day. A cat purrs when it is warm. Most cats hunt at night."
TAX = "Tax is due in April. The tax office sends a letter. Late tax costs interest."


class TopicEmbedder(HashingEmbedder):
    """One direction for each topic word; the last for a text without any."""

    topics = ("cat", "tax")

    def __init__(self) -> None:
        super().__init__(dimensions=len(self.topics) + 1)
        self.calls: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        rows = [[float(topic in text.casefold()) for topic in self.topics] for text in texts]
        # Not of length one: the splitter must not rely on it.
        return np.array([[3 * value for value in row] + [float(not any(row))] for row in rows], dtype=np.float32)


class BrokenEmbedder(HashingEmbedder):
    def embed(self, texts: Sequence[str]) -> Vectors:
        raise ModelError("the model is out of memory")


class NanEmbedder(HashingEmbedder):
    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.full((len(texts), 64), np.nan, dtype=np.float32)


def plain(text: str, *headings: Heading) -> ParsedDocument:
    return ParsedDocument(text=text, media_type="text/plain", headings=headings)


def test_split__cuts_between_two_topics(build: Build) -> None:
    chunks = build("semantic", embedder=TopicEmbedder(), min_size=30).split(plain(f"{CATS} {TAX}"))
    assert [chunk.text for chunk in chunks] == [CATS, TAX]
    assert {(chunk.chunker, chunk.fallback_reason) for chunk in chunks} == {("semantic", None)}


def test_split__cuts_nowhere_within_one_topic(build: Build) -> None:
    (chunk,) = build("semantic", embedder=TopicEmbedder(), min_size=10).split(plain(CATS))
    assert chunk.text == CATS


def test_split__keeps_topics_together_until_min_size(build: Build) -> None:
    (chunk,) = build("semantic", embedder=TopicEmbedder(), min_size=100).split(plain(f"{CATS} {TAX}"))
    assert chunk.text == f"{CATS} {TAX}", "the second topic is a tail shorter than min_size"


@pytest.mark.parametrize(("threshold", "chunks"), [(0.6, 1), (0.8, 2)])
def test_split__cuts_below_the_threshold(build: Build, threshold: float, chunks: int) -> None:
    text = "A cat is a small animal. A cat that is taxed pays tax."
    splitter = build("semantic", embedder=TopicEmbedder(), min_size=10, breakpoint_threshold=threshold)
    assert len(splitter.split(plain(text))) == chunks, "their cosine similarity is 0.707"


def test_split__embeds_a_document_in_one_call(build: Build) -> None:
    embedder = TopicEmbedder()
    build("semantic", embedder=embedder).split(plain(f"{CATS} {TAX}"))
    assert embedder.calls == [[*CATS.replace(". ", ".|").split("|"), *TAX.replace(". ", ".|").split("|")]]


def test_split__starts_a_chunk_at_a_heading(build: Build) -> None:
    text = f"{CATS}\n\nMore on cats\n\nCats again. Cats for ever, and then some more cats."
    at = text.index("More")
    document = plain(text, Heading(level=1, title="More on cats", start=at))
    first, second = build("semantic", embedder=TopicEmbedder(), min_size=40).split(document)
    assert first.text == CATS
    assert (second.start, second.section) == (at, ("More on cats",))


def test_split__keeps_a_heading_with_text_that_is_unlike_it(build: Build) -> None:
    heading = "A heading that is about neither and longer than the minimum"
    document = plain(f"{heading}\n{CATS}", Heading(level=1, title=heading, start=0))
    (chunk,) = build("semantic", embedder=TopicEmbedder(), min_size=20).split(document)
    assert chunk.text == document.text


def test_split__divides_a_full_chunk_at_a_paragraph(build: Build) -> None:
    one, two = "Cats sleep. Cats eat. Cats play.", "Cats run. Cats hide. Cats jump. Cats purr."
    chunks = build("semantic", embedder=TopicEmbedder(), min_size=20, max_size=70, recursive_size=60).split(
        plain(f"{one}\n\n{two}")
    )
    assert [chunk.text for chunk in chunks] == [one, two]


def test_split__never_passes_max_size_or_max_tokens(build: Build) -> None:
    text = " ".join(["The cat sat."] * 200)
    by_size = build("semantic", embedder=TopicEmbedder(), max_size=600).split(plain(text))
    by_tokens = build("semantic", embedder=TopicEmbedder(), max_tokens=41).split(plain(text))
    assert max(len(chunk.text) for chunk in by_size) == 597
    assert max(chunk.tokens for chunk in by_tokens) == 40, "ten sentences of four tokens"


def test_split__gives_a_long_sentence_alone_to_the_fallback(build: Build) -> None:
    long = "The cat " + "and the cat " * 195 + "sat."
    chunks = build("semantic", embedder=TopicEmbedder()).split(plain(f"{CATS}\n\n{long}\n\n{TAX}"))
    reason = "sentence longer than max_size (1000 characters)"
    assert [chunk.fallback_reason for chunk in chunks] == [None, *[reason] * (len(chunks) - 2), None]
    assert {chunk.chunker for chunk in chunks[1:-1]} == {"recursive"}
    assert (chunks[0].text, chunks[-1].text) == (CATS, TAX)


def test_split__gives_a_sentence_of_too_many_tokens_to_the_fallback(build: Build) -> None:
    text = f"{CATS}\n\n{'; ' * 100}\n\n{TAX}"
    chunks = build("semantic", embedder=TopicEmbedder(), max_tokens=50).split(plain(text))
    assert "sentence over the budget of 50 tokens" in {chunk.fallback_reason for chunk in chunks}


@pytest.mark.parametrize(
    ("text", "embedder", "reason"),
    [
        ("word " * 300, HashingEmbedder(), "text of 1,500 characters has no sentence boundary"),
        ("No.\n" * 20_001, HashingEmbedder(), "text has more than 20,000 sentences to embed"),
        (CATS, BrokenEmbedder(), "sentences could not be embedded: the model is out of memory"),
        (CATS, NanEmbedder(), "model hashing-64 gave vectors that are not finite"),
    ],
)
def test_split__falls_back_for_the_whole_document(
    build: Build, text: str, embedder: HashingEmbedder, reason: str
) -> None:
    chunks = build("semantic", embedder=embedder).split(plain(text))
    assert {(chunk.chunker, chunk.fallback_reason) for chunk in chunks} == {("recursive", reason)}


def test_split__does_not_join_sections_however_short(build: Build) -> None:
    text = "# A\n\nCat.\n\n## B\n\nCat too.\n\n## C\n\n### D\n\nTax."
    headings = [Heading(level=n.count("#"), title=n[-1], start=text.index(n)) for n in ("# A", "## B", "## C", "### D")]
    chunks = build("semantic", embedder=TopicEmbedder()).split(plain(text, *headings))
    assert [(chunk.text, chunk.section) for chunk in chunks] == [
        ("# A\n\nCat.", ("A",)),
        ("## B\n\nCat too.", ("A", "B")),
        ("## C\n\n### D\n\nTax.", ("A", "C", "D")),
    ]
