"""Find documents of a tenant with nearly the same text."""

import uuid
import zlib
from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.answering.select import resemblance, shingles
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

THRESHOLD = 0.8
"""Resemblance from which two documents are near-duplicates."""
MAX_DOCUMENTS = 2_000
MAX_CHARS = 10_000
_PERMUTATIONS = 64
_MIN_ESTIMATE = THRESHOLD - 0.2
"""Estimated resemblance of pairs that are compared exactly: four standard deviations of 64 permutations below."""
_SHIFT = np.uint64(32)
# Fixed, so that the same documents give the same pairs.
_FACTORS, _SUMMANDS = np.random.default_rng(1).integers(2**64, size=(2, _PERMUTATIONS), dtype=np.uint64)


@dataclass(frozen=True, kw_only=True, slots=True)
class NearDuplicates:
    """Two documents with nearly the same text."""

    first: str
    """Collection and source, `default/handbook/leave.md`."""
    second: str
    resemblance: float
    """Jaccard similarity of their 3-word shingles, 0 to 1."""


def find_near_duplicates(worker: ConnectionPool, tenant_id: uuid.UUID) -> list[NearDuplicates]:
    """Return pairs of near-duplicates, the most similar first.

    Documents that readers may not read are included. MinHash proposes the pairs and the exact resemblance decides. The
    newest 2,000 documents are compared, and the first 10,000 characters of each. Source: Broder, "On the resemblance
    and containment of documents" (1997).

    Args:
        worker: Pool of the role that writes, which reads all documents of a tenant.
    """
    values = {"tenant_id": tenant_id, "characters": MAX_CHARS, "limit": MAX_DOCUMENTS}
    with worker.transaction(tenant_id, [EVERYONE]) as connection:
        rows = connection.execute(statement("newest_texts"), values).fetchall()
    names = [f"{collection}/{source}" for collection, source, _ in rows]
    texts = [text for _, _, text in rows]
    signatures = np.array([compute_signature(shingles(text)) for text in texts]).reshape(-1, _PERMUTATIONS)
    pairs = []
    for second in range(1, len(rows)):
        estimates = (signatures[:second] == signatures[second]).mean(axis=1)
        for first in np.flatnonzero(estimates >= _MIN_ESTIMATE).tolist():
            similarity = resemblance(shingles(texts[first]), shingles(texts[second]))
            if similarity >= THRESHOLD:
                pairs.append(NearDuplicates(first=names[first], second=names[second], resemblance=similarity))
    return sorted(pairs, key=lambda pair: (-pair.resemblance, pair.first, pair.second))


def compute_signature(text_shingles: Set[tuple[str, ...]]) -> NDArray[np.uint64]:
    """Return the MinHash signature of a set of shingles.

    The share of equal values of two signatures estimates the Jaccard similarity of the sets. The hash functions are
    multiply-shift: Dietzfelbinger, "Universal hashing and k-wise independent random variables" (1996).
    """
    hashes = np.array([zlib.crc32(" ".join(words).encode()) for words in text_shingles], dtype=np.uint64)
    minima: NDArray[np.uint64] = ((hashes[:, None] * _FACTORS + _SUMMANDS) >> _SHIFT).min(axis=0)
    return minima
