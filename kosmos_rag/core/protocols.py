"""Protocols of the stages and of models.

An adapter needs no base class, only these methods. The docstrings are the contract.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.telemetry.metrics import Metric

Vectors = NDArray[np.float32]
"""Shape (n, dimensions), one row a text, in the order of the texts."""


class Tokenizer(Protocol):
    """The embedding model's own tokenizer."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, special tokens not included."""
        ...

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the character span of each token, special tokens not included.

        In order; spans index `text` itself.
        """
        ...


class Embedder(Protocol):
    """A model that turns text into vectors of one fixed length. Thread-safe."""

    @property
    def name(self) -> str:
        """The model's name as configured."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of each vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """Maximum input length in tokens, special tokens not included.

        The model ignores the text beyond it.
        """
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed documents or sentences; rows have length one where `normalize` is set."""
        ...

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Embed one question; shape (dimensions,)."""
        ...


class Reranker(Protocol):
    """A model that scores (question, passage) pairs. Thread-safe."""

    @property
    def name(self) -> str:
        """The model's name as configured."""
        ...

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the relevance of each passage, 0 to 1, in order."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message to a language model.

    Instructions have the role `system`, earlier answers `assistant`, all else `user`.
    """

    role: Literal["system", "user", "assistant"]
    text: str


class TextStream(Protocol):
    """A generated text, piece by piece.

    A generator is one. `close` cancels it at once; after the end it does nothing. A thread that waits for a piece while
    another one calls `close` gets a ModelError.
    """

    def __iter__(self) -> Self:
        """Return itself."""
        ...

    def __next__(self) -> str:
        """Return the next piece, not empty. Raises ModelError."""
        ...

    def close(self) -> None:
        """Cancel the rest."""
        ...


@runtime_checkable
class BoundedStream(TextStream, Protocol):
    """A text stream that knows whether it was truncated."""

    @property
    def truncated(self) -> bool:
        """Whether the text has ended because of `max_tokens`."""
        ...


class LanguageModel(Protocol):
    """A model that writes text. Thread-safe."""

    @property
    def name(self) -> str:
        """The model's name as configured."""
        ...

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> TextStream:
        """Generate an answer. Failures are raised when iterating.

        Only a BoundedStream distinguishes a truncated answer from a complete one.
        """
        ...


def complete(model: LanguageModel, prompt: str, *, max_tokens: int) -> str:
    """Return a model's whole answer to one prompt. Raises ModelError.

    Args:
        prompt: The user message.
        max_tokens: Maximum length of the answer in tokens.
    """
    with closing(model.stream([Message(role="user", text=prompt)], max_tokens=max_tokens)) as stream:
        return "".join(stream)


class Observer(Protocol):
    """Receives the metrics of an engine, declared in `kosmos_rag.core.telemetry.metrics`.

    Called by the threads that answer questions: implementations are fast and thread-safe, and raise nothing.
    """

    def record(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        """Add to a counter, or observe a value of a histogram.

        Args:
            metric: the declared metric; implementations ignore those that they do not know.
            value: the amount, in the unit at the end of the metric's name.
            labels: label values, in the order of `metric.labels`.
        """
        ...

    def gauge(self, metric: Metric, read: Callable[[], float], *labels: str) -> None:
        """Register a function that returns the current value.

        Args:
            metric: the declared metric. Values registered with equal labels are added.
            read: called at each scrape; it is fast and raises nothing.
            labels: label values, in the order of `metric.labels`.
        """
        ...
