"""An embedder for benchmarks whose questions share their passages."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.protocols import Embedder, Tokenizer, Vectors


class Remembering:
    """An embedder that embeds each text once: questions share their passages."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self.name, self.dimensions, self.max_tokens = embedder.name, embedder.dimensions, embedder.max_tokens

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""
        return self._embedder.tokenizer

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed what is new."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Embed a question, each time."""
        return self._embedder.embed_query(question)
