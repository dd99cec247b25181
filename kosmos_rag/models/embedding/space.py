"""Embedding spaces: the model of a tenant's vectors, and compatibility with others.

Vectors of two models of one size can be compared without an error, but without meaning. The name of a model is
no proof (a folder can hold any model), so a space stores the vector of a probe sentence, and a model must reproduce it.
"""

import uuid

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.errors import EmbeddingSpaceMismatch
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import NO_PREFIXES, Prefixes, Space

PROBE = "The quarterly report explains how revenue is recognised when a customer cancels a yearly contract."
MIN_COSINE = 0.95
"""Smallest cosine of the probe vectors. Half precision, another backend and 8-bit weights stay above .98."""


def space_id(
    tenant_id: uuid.UUID, embedder: Embedder, *, normalized: bool, prefixes: Prefixes = NO_PREFIXES
) -> uuid.UUID:
    """Return the id of the space of an embedder for a tenant.

    The same model gives the same id.

    Args:
        normalized: Whether its vectors are scaled to length one.
        prefixes: What it puts before texts.
    """
    suffix = f":{prefixes.query!r}:{prefixes.passage!r}" if any(prefixes) else ""
    return uuid.uuid5(tenant_id, f"space:{embedder.name}:{embedder.dimensions}:{normalized}{suffix}")


def describe_space(
    tenant_id: uuid.UUID, embedder: Embedder, *, normalized: bool, prefixes: Prefixes = NO_PREFIXES
) -> Space:
    """Describe the space of an embedder for a tenant.

    Embeds the probe sentence.

    Args:
        normalized: Whether its vectors are scaled to length one.
        prefixes: What it puts before texts.
    """
    return Space(
        id=space_id(tenant_id, embedder, normalized=normalized, prefixes=prefixes),
        model=embedder.name,
        dimensions=embedder.dimensions,
        normalized=normalized,
        probe=embedder.embed_query(PROBE),
        prefixes=prefixes,
    )


def find_difference(stored: Space, configured: Space) -> str | None:
    """Return why vectors of two spaces cannot be compared, in words.

    The result is None where they can.
    """
    if stored.dimensions != configured.dimensions:
        return f"its vectors have {stored.dimensions} dimensions, the configured ones {configured.dimensions}"
    if stored.normalized != configured.normalized:
        return f"its vectors were made with rag.embedding.normalize = {str(stored.normalized).lower()}"
    for key, before, now in zip(("query_prefix", "passage_prefix"), stored.prefixes, configured.prefixes, strict=True):
        if before != now:
            return f"its vectors were made with rag.embedding.{key} = {before!r}, and {now!r} is configured"
    similarity = cosine(stored.probe, configured.probe)
    return None if similarity >= MIN_COSINE else f"the two embed one sentence differently (cosine {similarity:.2f})"


def cosine(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Return the cosine of the angle between two vectors."""
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


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
