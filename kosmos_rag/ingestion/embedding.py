"""Embed the texts of a batch, each distinct one once."""

import uuid
from collections.abc import Callable, Sequence

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.types import Space
from kosmos_rag.storage.publish import load_vectors, text_hash

TEXTS_PER_CALL = 128
"""Texts of one call of a model: four of its batches, some seconds on a slow processor."""


def _discard(_: int) -> None:
    pass


class TextVectors:
    """Vectors of a batch's texts in each embedding space, by text hash."""

    def __init__(self, texts: Sequence[str], spaces: Sequence[tuple[Space, Embedder]]) -> None:
        self._hashes = [text_hash(text) for text in texts]
        self._texts = dict(zip(self._hashes, texts, strict=True))
        self._spaces = spaces
        self._vectors: dict[uuid.UUID, dict[uuid.UUID, NDArray[np.float32]]] = {space.id: {} for space, _ in spaces}
        self._embedded: set[uuid.UUID] = set()

    def load_stored(self, connection: psycopg.Connection, tenant_id: uuid.UUID) -> None:
        """Load the tenant's stored vectors of these texts.

        In the caller's transaction.
        """
        for space, _ in self._spaces:
            self._vectors[space.id] |= load_vectors(connection, tenant_id, space.id, self._texts.keys())

    @property
    def missing(self) -> int:
        """Number of embeddings to compute; a text counts for each space."""
        return sum(len(self._texts) - len(vectors) for vectors in self._vectors.values())

    def embed_missing(
        self, on_embedded: Callable[[int], None] = _discard, *, span: tuple[int, int] | None = None
    ) -> None:
        """Embed the texts without a vector. Raises ModelError.

        Args:
            on_embedded: called with a number of texts as soon as they are embedded, in each space.
            span: range of the texts to embed; None for all.
        """
        keys_to_embed = self._texts if span is None else dict.fromkeys(self._hashes[slice(*span)])
        for space, embedder in self._spaces:
            vectors = self._vectors[space.id]
            # Texts of one length together: a model pads the others of its batch to the longest.
            missing = sorted(
                (key for key in keys_to_embed if key not in vectors), key=lambda key: len(self._texts[key])
            )
            for start in range(0, len(missing), TEXTS_PER_CALL):
                keys = missing[start : start + TEXTS_PER_CALL]
                vectors |= zip(keys, embedder.embed([self._texts[key] for key in keys]), strict=True)
                self._embedded.update(keys)
                on_embedded(len(keys))

    def select(self, start: int, end: int) -> dict[uuid.UUID, Vectors]:
        """Return the vectors of a range of texts by space.

        Shape (end - start, dimensions).
        """
        keys = self._hashes[start:end]
        return {
            space.id: np.array([self._vectors[space.id][key] for key in keys]).reshape(len(keys), space.dimensions)
            for space, _ in self._spaces
        }

    def count_reused(self, start: int, end: int) -> int:
        """Count the texts of a range with stored vectors in each space."""
        return sum(key not in self._embedded for key in self._hashes[start:end])
