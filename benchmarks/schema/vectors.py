"""An embedder that stores its vectors in a file, for all runs."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kosmos_rag.core.protocols import Embedder, Tokenizer, Vectors


class CachedVectors:
    """The vectors of another embedder, kept. `save` writes them."""

    def __init__(self, embedder: Embedder, path: Path) -> None:
        self._embedder = embedder
        self._path = path
        self._cache: dict[str, np.ndarray] = {}
        if path.is_file():
            with np.load(path) as stored:
                self._cache = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))

    @property
    def name(self) -> str:
        """The model's name."""
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self._embedder.dimensions

    @property
    def max_tokens(self) -> int:
        """What the model reads at once."""
        return self._embedder.max_tokens

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._embedder.tokenizer

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return vectors, those of new texts from the model."""
        keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._cache}
        if missing:
            self._cache.update(zip(missing, self._embedder.embed(list(missing.values())), strict=True))
        return np.array([self._cache[key] for key in keys])

    def embed_query(self, question: str) -> np.ndarray:
        """Return the vector of a question; the model embeds questions as it does texts."""
        vector: np.ndarray = self.embed([question])[0]
        return vector

    def save(self) -> None:
        """Write all vectors."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(self._path, keys=np.array(list(self._cache)), vectors=np.array(list(self._cache.values())))
