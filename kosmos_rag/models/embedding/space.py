"""Embedding spaces: the model of a tenant's vectors, and compatibility with others.

Vectors of two models of one size can be compared without an error, and the result means nothing. The name of a model is
no proof (a folder can hold any model), so a space stores the vector of a probe sentence, and a model must reproduce it.
"""

import uuid

import numpy as np

from kosmos_rag.core.errors import EmbeddingSpaceMismatch
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Space

PROBE = "The quarterly report explains how revenue is recognised when a customer cancels a yearly contract."
MIN_COSINE = 0.95
"""Smallest cosine of the probe vectors. Half precision, another backend and 8-bit weights stay above .98."""


def space_id(tenant_id: uuid.UUID, embedder: Embedder, *, normalized: bool) -> uuid.UUID:
    """Return the id of the space of an embedder for a tenant.

    The same model gives the same id.

    Args:
        tenant_id: The tenant's id.
        embedder: The embedding model.
        normalized: Whether its vectors are scaled to length one.
    """
    return uuid.uuid5(tenant_id, f"space:{embedder.name}:{embedder.dimensions}:{normalized}")


def describe_space(tenant_id: uuid.UUID, embedder: Embedder, *, normalized: bool) -> Space:
    """Describe the space of an embedder for a tenant.

    Embeds the probe sentence.

    Args:
        tenant_id: The tenant's id.
        embedder: The embedding model.
        normalized: Whether its vectors are scaled to length one.
    """
    return Space(
        id=space_id(tenant_id, embedder, normalized=normalized),
        model=embedder.name,
        dimensions=embedder.dimensions,
        normalized=normalized,
        probe=embedder.embed_query(PROBE),
    )


def find_difference(stored: Space, configured: Space) -> str | None:
    """Return why vectors of two spaces cannot be compared, in words.

    None where they can.
    """
    if stored.dimensions != configured.dimensions:
        return f"its vectors have {stored.dimensions} dimensions, the configured ones {configured.dimensions}"
    if stored.normalized != configured.normalized:
        return f"its vectors were made with rag.embedding.normalize = {str(stored.normalized).lower()}"
    cosine = float(stored.probe @ configured.probe / (np.linalg.norm(stored.probe) * np.linalg.norm(configured.probe)))
    return None if cosine >= MIN_COSINE else f"the two embed one sentence differently (cosine {cosine:.2f})"


def check_compatible(stored: Space, configured: Space, tenant: str) -> None:
    """Raise EmbeddingSpaceMismatch unless vectors of the two spaces can be compared.

    Args:
        stored: the space of the tenant's vectors.
               configured: the space of the configured model.
        tenant: the tenant's name, for the message.
    """
    if (difference := find_difference(stored, configured)) is not None:
        raise EmbeddingSpaceMismatch(
            f"tenant {tenant!r} was embedded with {stored.model!r}, and the configuration names {configured.model!r}: "
            f"{difference}; set rag.embedding.model to {stored.model!r}; to move the tenant to another model, name "
            "that one in rag.next_embedding and run kosmos-rag reembed start"
        )
