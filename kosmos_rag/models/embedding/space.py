"""The embedding space of a tenant: which model its vectors were made by.

Two models of one size give vectors that compare without an error and mean nothing. The name of a model says little
(a folder can hold anything), so a space keeps the vector of a fixed sentence, and a model must reproduce it.
"""

import uuid

import numpy as np

from kosmos_rag.core.errors import EmbeddingSpaceMismatch
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Space

PROBE = "The quarterly report explains how revenue is recognised when a customer cancels a yearly contract."
MIN_COSINE = 0.95
"""Half precision, another backend and 8-bit weights stay above .98; another model is near 0."""


def space_of(tenant_id: uuid.UUID, embedder: Embedder, *, normalized: bool) -> Space:
    """Describe the space that this embedder makes for a tenant. The same model gives the same id."""
    name = f"space:{embedder.name}:{embedder.dimensions}:{normalized}"
    return Space(
        id=uuid.uuid5(tenant_id, name),
        model=embedder.name,
        dimensions=embedder.dimensions,
        normalized=normalized,
        probe=embedder.embed_query(PROBE),
    )


def difference(stored: Space, ours: Space) -> str | None:
    """Return why vectors of `ours` cannot be compared with the stored ones; None where they can."""
    if stored.dimensions != ours.dimensions:
        return f"its vectors have {stored.dimensions} dimensions, the configured ones {ours.dimensions}"
    if stored.normalized != ours.normalized:
        return f"its vectors were made with rag.embedding.normalize = {str(stored.normalized).lower()}"
    cosine = float(stored.probe @ ours.probe / (np.linalg.norm(stored.probe) * np.linalg.norm(ours.probe)))
    return None if cosine >= MIN_COSINE else f"the two embed one sentence differently (cosine {cosine:.2f})"


def require_same(stored: Space, ours: Space, tenant: str) -> None:
    """Raise EmbeddingSpaceMismatch unless `ours` makes vectors that can be compared with the stored ones."""
    if (found := difference(stored, ours)) is not None:
        raise EmbeddingSpaceMismatch(
            f"tenant {tenant!r} was embedded with {stored.model!r}, and the configuration names {ours.model!r}: "
            f"{found}; set rag.embedding.model to {stored.model!r}; to move the tenant to another model, name that one "
            "in rag.next_embedding and run kosmos-rag embed start"
        )
