"""Embedder without a model, for tests.

Texts with common words have similar vectors.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.protocols import Tokenizer, Vectors

_TOKEN = re.compile(r"\w{1,6}|[^\w\s]")
_WORD = re.compile(r"\w+")


class _PieceTokenizer:
    """Words in pieces of at most six characters, and single marks."""

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(_TOKEN.findall(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in _TOKEN.finditer(text)]


class HashingEmbedder:
    """Embeds a text as a normalised bag of hashed words.

    Deterministic on every machine. A text without words has the first unit vector. Words after the first `max_tokens`
    tokens are ignored.
    """

    def __init__(self, *, dimensions: int = 64, max_tokens: int = 256) -> None:
        self._dimensions = dimensions
        self._max_tokens = max_tokens
        self._tokenizer = _PieceTokenizer()

    @property
    def name(self) -> str:
        """`hashing-` and the number of dimensions."""
        return f"hashing-{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """Length of each vector."""
        return self._dimensions

    @property
    def max_tokens(self) -> int:
        """Maximum input length in tokens."""
        return self._max_tokens

    @property
    def tokenizer(self) -> Tokenizer:
        """Words in pieces of at most six characters, and single marks."""
        return self._tokenizer

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, one row each."""
        return np.array([self.embed_query(text) for text in texts], dtype=np.float32).reshape(
            len(texts), self._dimensions
        )

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Embed one text."""
        tokens = self._tokenizer.offsets(question)
        end = tokens[self._max_tokens][0] if len(tokens) > self._max_tokens else None
        vector = np.zeros(self._dimensions, dtype=np.float32)
        for word in _WORD.findall(question[:end].casefold()):
            index, sign = _hash_word(word)
            vector[index % self._dimensions] += sign
        norm = float(np.linalg.norm(vector))
        if norm == 0:
            # No words, or words that cancel each other.
            vector[0] = norm = 1.0
        return vector / np.float32(norm)


@lru_cache(maxsize=100_000)
def _hash_word(word: str) -> tuple[int, float]:
    digest = int.from_bytes(blake2b(word.encode(), digest_size=8).digest())
    return digest >> 1, 1.0 if digest & 1 else -1.0
