"""An embedding model with a cache of vectors, for this run and the next."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.protocols import Embedder, Tokenizer, Vectors


class Remembering:
    """An embedder that asks its model for new texts alone. With all texts known, what is measured is the store."""

    def __init__(self, model: Embedder, file: Path) -> None:
        """Remember what `file` holds, where there is one."""
        self.model = model
        self._file = file
        self._vectors: dict[str, NDArray[np.float32]] = pickle.loads(file.read_bytes()) if file.is_file() else {}

    def save(self) -> None:
        """Write all that is known, for the next run."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._file.with_suffix(".new")
        scratch.write_bytes(pickle.dumps(self._vectors))
        scratch.rename(self._file)

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    @property
    def dimensions(self) -> int:
        """The model's."""
        return self.model.dimensions

    @property
    def max_tokens(self) -> int:
        """The model's."""
        return self.model.max_tokens

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self.model.tokenizer

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, the new ones by the model."""
        if new := [text for text in dict.fromkeys(texts) if text not in self._vectors]:
            self._vectors.update(zip(new, self.model.embed(new), strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Return the vector of one question."""
        if question not in self._vectors:
            self._vectors[question] = self.model.embed_query(question)
        return self._vectors[question]
