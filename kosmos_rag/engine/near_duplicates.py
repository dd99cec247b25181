"""Find documents of a tenant with nearly the same text."""

import uuid
import zlib
from dataclasses import dataclass

from datasketch import MinHash, MinHashLSH

from kosmos_rag.answering.select import resemblance, shingles
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

THRESHOLD = 0.8
"""Resemblance from which two documents are near-duplicates."""
MAX_DOCUMENTS = 2_000
MAX_CHARS = 10_000
_PERMUTATIONS = 64


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

    Documents that readers may not read are included. MinHash and locality-sensitive hashing propose the pairs, so the
    cost is linear in the documents; the exact resemblance decides. The newest 2,000 documents are compared, and the
    first 10,000 characters of each. Source: Broder, "On the resemblance and containment of documents" (1997).

    Args:
        worker: Pool of the role that writes, which reads all documents of a tenant.
        tenant_id: The tenant.
    """
    values = {"tenant_id": tenant_id, "characters": MAX_CHARS, "limit": MAX_DOCUMENTS}
    with worker.transaction(tenant_id, [EVERYONE]) as connection:
        rows = connection.execute(statement("newest_texts"), values).fetchall()
    index = MinHashLSH(threshold=THRESHOLD, num_perm=_PERMUTATIONS)
    texts: dict[str, str] = {}
    pairs = []
    for collection, source, text in rows:
        name, text_shingles = f"{collection}/{source}", shingles(text)
        hashed = MinHash(num_perm=_PERMUTATIONS, hashfunc=zlib.crc32)
        hashed.update_batch([" ".join(words).encode() for words in text_shingles])
        for other in index.query(hashed):
            similarity = resemblance(text_shingles, shingles(texts[other]))
            if similarity >= THRESHOLD:
                pairs.append(NearDuplicates(first=other, second=name, resemblance=similarity))
        index.insert(name, hashed)
        texts[name] = text
    return sorted(pairs, key=lambda pair: (-pair.resemblance, pair.first, pair.second))
