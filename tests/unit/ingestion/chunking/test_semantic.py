"""The semantic chunker."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import Heading, ParsedDocument, SourceDocument
from kosmos_rag.ingestion.chunking import Chunker
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.parsing import parse

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


def markdown(text: str) -> ParsedDocument:
    return parse(SourceDocument(source="page.md", data=text.encode()))


def test_split__makes_one_chunk_of_each_section_that_fits_and_embeds_nothing(build: Build) -> None:
    embedder = TopicEmbedder()
    sections = [f"# Both\n\n{CATS} {TAX}", f"## Tax\n\n{TAX}\n\n{CATS}"]
    chunks = build("semantic", embedder=embedder, min_size=10, max_size=160, recursive_size=80).split(
        markdown("\n\n".join(sections))
    )
    assert [chunk.text for chunk in chunks] == sections
    assert {(chunk.chunker, chunk.fallback_reason) for chunk in chunks} == {("semantic", None)}
    assert embedder.calls == []


def test_split__cuts_a_long_paragraph_between_two_topics(build: Build) -> None:
    chunks = build("semantic", embedder=TopicEmbedder(), min_size=30, max_size=140, recursive_size=80).split(
        plain(f"{CATS} {TAX}")
    )
    assert [chunk.text for chunk in chunks] == [CATS, TAX]
    assert {(chunk.chunker, chunk.fallback_reason) for chunk in chunks} == {("semantic", None)}


@pytest.mark.parametrize(("threshold", "chunks"), [(0.6, 1), (0.8, 2)])
def test_split__cuts_below_the_threshold(build: Build, threshold: float, chunks: int) -> None:
    first, second = "A cat is a small animal.", "A cat that is taxed pays tax, and so on."
    text = f"{first} {second} Cats sleep, and no tax is due."
    sizes = {"min_size": 20, "max_size": 90, "recursive_size": 80}
    splitter = build("semantic", embedder=TopicEmbedder(), breakpoint_threshold=threshold, **sizes)
    split = splitter.split(plain(text))
    assert (split[0].text == first) == (chunks == 2), "their cosine similarity is 0.707"


def test_split__embeds_once_only_sentences_where_a_chunk_may_end(build: Build) -> None:
    embedder = TopicEmbedder()
    sentences = [f"Cat number {number} is small." for number in range(10, 20)]
    text = f"# One\n\n{' '.join(sentences)}\n\n# Two\n\n{' '.join(sentences)}\n\nTax."
    build("semantic", embedder=embedder, min_size=100, max_size=200, recursive_size=80).split(markdown(text))
    # Those less than 100 characters from an end of the section begin no chunk.
    assert embedder.calls == [[*sentences[3:6], *sentences[3:7]]]


FENCE = "```py\ncat = Cat()\n\ncat.sleep()\ncat.sleep()\n```"
LIST = "- Cats sleep.\n- Cats purr.\n- Cats hunt.\n\n- Cats eat."
TABLE = "| cat | age |\n|---|---|\n| Tom | 9 |\n| Kim | 4 |"


@pytest.mark.parametrize("block", [FENCE, LIST, TABLE], ids=["fence", "list", "table"])
def test_split__cuts_where_a_block_ends_and_not_within_or_before_it(build: Build, block: str) -> None:
    embedder = TopicEmbedder()
    text = f"{CATS} Their day:\n\n{block}\n\nTax is due. {CATS}"
    first, second = build("semantic", embedder=embedder, min_size=30, max_size=170, recursive_size=80).split(
        markdown(text)
    )
    assert first.text == f"{CATS} Their day:\n\n{block}"
    assert second.text == f"Tax is due. {CATS}"
    assert embedder.calls == []


@pytest.mark.parametrize("term", ["``naps``", ".. rubric:: Naps", "naps"])
def test_split__keeps_a_term_with_its_indented_description(build: Build, term: str) -> None:
    text = f"{TAX}\n\n{term}\n\n  Cats sleep all day.\n\n  Most cats hunt at night."
    first, _ = build("semantic", min_size=80, max_size=120, recursive_size=80).split(markdown(text))
    assert first.text == f"{TAX}\n\n{term}\n\n  Cats sleep all day."


def test_split__divides_a_long_list_between_its_items(build: Build) -> None:
    embedder = TopicEmbedder()
    items = [f"- Cat {number} sleeps. It purrs. It hunts at night." for number in range(9)]
    chunks = build("semantic", embedder=embedder, min_size=60, max_size=160, recursive_size=80).split(
        markdown("\n".join(items))
    )
    assert [line for chunk in chunks for line in chunk.text.split("\n")] == items
    assert len(chunks) == 3, "each is full"
    assert embedder.calls == []


def test_split__starts_a_chunk_at_a_heading(build: Build) -> None:
    text = f"{CATS}\n\nMore on cats\n\nCats again. Cats for ever, and then some more cats."
    at = text.index("More")
    document = plain(text, Heading(level=1, title="More on cats", start=at))
    first, second = build("semantic", embedder=TopicEmbedder(), min_size=40).split(document)
    assert first.text == CATS
    assert (second.start, second.section) == (at, ("More on cats",))


def test_split__keeps_a_heading_with_text_that_is_unlike_it(build: Build) -> None:
    text = f"# A heading that is about neither\n\n{CATS} {TAX}"
    chunks = build("semantic", embedder=TopicEmbedder(), min_size=20, max_size=145, recursive_size=80).split(
        markdown(text)
    )
    assert [chunk.text for chunk in chunks] == [f"# A heading that is about neither\n\n{CATS}", TAX]


def test_split__divides_a_full_chunk_at_a_paragraph(build: Build) -> None:
    item, two = "Cats sleep. Cats eat. Cats play.", "Cats run. Cats hide. Cats jump. Cats purr."
    chunks = build("semantic", embedder=TopicEmbedder(), min_size=20, max_size=70, recursive_size=60).split(
        plain(f"{item}\n\n{two}")
    )
    assert [chunk.text for chunk in chunks] == [item, two]


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
        ("No.\n" * 20_100, HashingEmbedder(), "text has more than 20,000 sentences to embed"),
        (CATS * 20, BrokenEmbedder(), "sentences could not be embedded: the model is out of memory"),
        (CATS * 20, NanEmbedder(), "model hashing-64 gave vectors that are not finite"),
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
