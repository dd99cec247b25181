"""Chunks with vectors from a seed: natural text, or words of a Zipf distribution."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import platformdirs
from numpy.typing import NDArray

from benchmarks.beir import load
from benchmarks.command import DATASETS
from kosmos_rag.core.protocols import Embedder, Vectors

Block = tuple[list[str], Vectors]
"""Texts of chunks, and one vector each."""

QUESTIONS = 250
_SEED = 20_240_229


class Data(Protocol):
    """A source of chunks, and questions that fit them."""

    @property
    def name(self) -> str:
        """`natural`, or a key of `MADE`."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of each vector."""
        ...

    @property
    def questions(self) -> Mapping[str, NDArray[np.float32]]:
        """Questions of 8 to 12 words, each with its vector."""
        ...

    def blocks(self, count: int, *, size: int, seed: int) -> Iterator[Block]:
        """Make `count` chunks in blocks of `size`; the same seed gives the same chunks."""
        ...


class NaturalData:
    """Chunks of 3 to 6 sentences that are about one thing or two, as the sentences' vectors have it.

    A chunk's vector is the normalised mean of its sentences' vectors: near to what the model gives for the whole text,
    at the cost of a gather.
    """

    name = "natural"

    def __init__(
        self,
        sentences: Sequence[str],
        vectors: Vectors,
        questions: Mapping[str, NDArray[np.float32]],
        *,
        neighbours: int = 200,
    ) -> None:
        """Take sentences with their vectors of length one; a topic is a sentence with its nearest `neighbours`."""
        self._sentences = np.array(sentences, dtype=object)
        self._vectors = vectors
        self._near = nearest(vectors, min(neighbours, len(sentences)))
        self.questions = questions

    @property
    def dimensions(self) -> int:
        """Length of each vector."""
        return int(self._vectors.shape[1])

    def blocks(self, count: int, *, size: int, seed: int) -> Iterator[Block]:
        """Make `count` chunks in blocks of `size`."""
        dice = np.random.default_rng([_SEED, seed])
        for start in range(0, count, size):
            yield self._block(min(size, count - start), dice)

    def _block(self, size: int, dice: np.random.Generator) -> Block:
        topics = dice.integers(len(self._sentences), size=(size, 2))
        one_topic = dice.random(size) < 0.5
        topics[one_topic, 1] = topics[one_topic, 0]
        of_topic = topics[np.arange(size)[:, None], dice.integers(2, size=(size, 6))]
        # Each place draws from a sixth of its own of the topic: no sentence occurs twice in it.
        sixth = self._near.shape[1] // 6
        chosen = self._near[of_topic, np.arange(6) * sixth + dice.integers(sixth, size=(size, 6))]
        is_used = np.arange(6) < dice.integers(3, 7, size=size)[:, None]
        texts = [" ".join(row[mask]) for row, mask in zip(self._sentences[chosen], is_used, strict=True)]
        return texts, normalise(np.einsum("ijk,ij->ik", self._vectors[chosen], is_used.astype(np.float32)))


class ZipfData:
    """Made words whose frequency falls with their rank, and vectors around centres: a hard case for both retrievers.

    No stop word thins the postings, so that the most frequent terms of a question occur in almost every chunk.
    """

    name = "zipf"

    def __init__(self, *, words: int = 50_000, dimensions: int = 768, clusters: int = 1_000) -> None:
        dice = np.random.default_rng(_SEED)
        self._words = np.array(_make_words(words, dice), dtype=object)
        weights = 1 / (np.arange(words) + 2.7)
        self._cumulated = np.cumsum(weights / weights.sum())
        self._centres = normalise(dice.standard_normal((clusters, dimensions), dtype=np.float32))
        texts, vectors = self._block(QUESTIONS, (8, 12), dice)
        self.questions: Mapping[str, NDArray[np.float32]] = dict(zip(texts, vectors, strict=True))

    @property
    def dimensions(self) -> int:
        """Length of each vector."""
        return int(self._centres.shape[1])

    def blocks(self, count: int, *, size: int, seed: int) -> Iterator[Block]:
        """Make `count` chunks of 60 to 100 words in blocks of `size`."""
        dice = np.random.default_rng([_SEED, seed])
        for start in range(0, count, size):
            yield self._block(min(size, count - start), (60, 100), dice)

    def vector(self, text: str) -> NDArray[np.float32]:
        """Draw a vector from where all others are; the same text gets the same."""
        dice = np.random.default_rng(list(text.encode()))
        _, vectors = self._block(1, (1, 1), dice)
        vector: NDArray[np.float32] = vectors[0]
        return vector

    def _block(self, size: int, lengths: tuple[int, int], dice: np.random.Generator) -> Block:
        ends = np.cumsum(dice.integers(lengths[0], lengths[1] + 1, size=size))
        ranks = np.searchsorted(self._cumulated, dice.random(ends[-1]))
        words = self._words[np.minimum(ranks, len(self._words) - 1)]
        texts = [" ".join(text) for text in np.split(words, ends[:-1])]
        noise = dice.standard_normal((size, self.dimensions), dtype=np.float32) / np.sqrt(np.float32(self.dimensions))
        # 0.8 of noise: two members of a cluster have a cosine of about 0.6, as related passages have.
        return texts, normalise(self._centres[dice.integers(len(self._centres), size=size)] + 0.8 * noise)


class SmallZipfData(ZipfData):
    """The same of fewer words and dimensions: for a quick run."""

    name = "small"

    def __init__(self) -> None:
        super().__init__(words=2_000, dimensions=64, clusters=20)


MADE = {data.name: data for data in (ZipfData, SmallZipfData)}
"""Made words, by name."""


def natural(folders: Sequence[Path], embedder: Embedder, cache: Path) -> NaturalData:
    """Make data of the sentences of evaluation sets, each embedded once and kept in `cache`.

    One sentence of twenty is held out of the chunks: the questions are cut from these.
    """
    texts, held_out = split_sentences(list_sentences(folders))
    questions = windows(held_out, QUESTIONS)
    vectors = embedder.embed(questions)
    return NaturalData(texts, embed_cached(texts, embedder, cache), dict(zip(questions, vectors, strict=True)))


def load_data(name: str, model: Embedder, say: Callable[[str], None]) -> Data:
    """Return the data; natural text is embedded with the model."""
    if name in MADE:
        return MADE[name]()
    folders = [folder for name in ("cranfield", "cacm") if (folder := DATASETS / name).is_dir()]
    if not folders:
        raise SystemExit(
            "no evaluation sets are available to take sentences from; measure made words: make bench-scale DATA=zipf"
        )
    say("embedding the sentences, once for all runs")
    return natural(folders, model, platformdirs.user_cache_path("kosmos-rag", appauthor=False) / "bench")


def list_sentences(folders: Sequence[Path]) -> list[str]:
    """List the different sentences of 5 to 60 words of evaluation sets, in order."""
    unique: dict[str, None] = {}
    for folder in folders:
        for _, text in load(folder).documents.values():
            for sentence in re.split(r"(?<=[.!?])\s+|\n\n", text):
                words = sentence.split()
                if 5 <= len(words) <= 60:
                    unique[" ".join(words)] = None
    return list(unique)


def split_sentences(sentences: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split into those that chunks are made of, and one of twenty that are held out."""
    held_out = set(np.random.default_rng(_SEED).permutation(len(sentences))[: max(1, len(sentences) // 20)].tolist())
    return (
        [sentence for index, sentence in enumerate(sentences) if index not in held_out],
        [sentence for index, sentence in enumerate(sentences) if index in held_out],
    )


def windows(sentences: Sequence[str], count: int) -> list[str]:
    """Cut up to `count` different questions of 8 to 12 neighbouring words, one a sentence."""
    dice = np.random.default_rng(_SEED)
    questions: dict[str, None] = {}
    for index in dice.permutation(len(sentences)):
        # Words only: a quote or a leading minus would be an operator in a question.
        words = re.findall(r"\w+(?:[-']\w+)*", sentences[index])
        if len(words) >= 8 and len(questions) < count:
            length = int(dice.integers(8, min(12, len(words)) + 1))
            start = int(dice.integers(len(words) - length + 1))
            questions[" ".join(words[start : start + length])] = None
    return list(questions)


def embed_cached(texts: Sequence[str], embedder: Embedder, cache: Path) -> Vectors:
    """Embed texts, or read their vectors where this model has embedded these texts before."""
    key = hashlib.sha256("\0".join([embedder.name, *texts]).encode()).hexdigest()[:16]
    file = cache / f"sentences-{key}.npz"
    if file.is_file():
        with np.load(file) as archive:
            vectors: Vectors = archive["vectors"]
            return vectors
    embeddings = embedder.embed(texts)
    cache.mkdir(parents=True, exist_ok=True)
    np.savez(file, vectors=embeddings)
    return embeddings


def nearest(vectors: Vectors, count: int) -> NDArray[np.int32]:
    """Return the indices of the `count` nearest of each vector, itself among them, in no order."""
    neighbours = np.empty((len(vectors), count), dtype=np.int32)
    for start in range(0, len(vectors), 1000):
        closeness = vectors[start : start + 1000] @ vectors.T
        neighbours[start : start + 1000] = np.argpartition(closeness, -count, axis=1)[:, -count:]
    return neighbours


def normalise(vectors: Vectors) -> Vectors:
    """Scale each row to length one."""
    scaled: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


def _make_words(count: int, dice: np.random.Generator) -> list[str]:
    """Make different words of 4 to 10 letters."""
    words: dict[str, None] = {}
    while len(words) < count:
        letters = "".join(map(chr, dice.integers(ord("a"), ord("z") + 1, size=10)))
        words[letters[: int(dice.integers(4, 11))]] = None
    return list(words)
