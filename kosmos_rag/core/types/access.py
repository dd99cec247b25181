"""The rights of an access review."""

import uuid
from dataclasses import dataclass
from typing import Literal

from kosmos_rag.core.types.serialize import Serializable


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessGrant(Serializable):
    """The right of a principal to read a document."""

    document_id: uuid.UUID
    source: str
    collection: str
    title: str
    principal: str
    origin: Literal["list", "department", "feed"]
    """`list`: the document came with its readers, or for everyone. `department`: `rag.access` of its collection gives
    these readers to its department. `feed`: a permission feed names them."""
    feed: str | None
    """Name of the permission feed; None for other origins."""
    keys: tuple[str, ...]
    """Names of the valid API keys with this principal."""
    searchable: bool
    """Whether searches find it: not where `rag.retrieval.require_approved` leaves it out."""
