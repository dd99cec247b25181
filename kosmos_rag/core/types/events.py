"""Events of documents and sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kosmos_rag.core.types.serialize import Serializable


@dataclass(frozen=True, kw_only=True, slots=True)
class Event(Serializable):
    """A change of a tenant's documents or sources."""

    sequence: int
    """Position in the tenant's events, without gaps, in the order of commits."""
    type: str
    """`document.published`, `document.removed`, `document.failed`, `document.permissions_changed`, `source.failed`."""
    at: datetime
    collection: str
    data: Mapping[str, Any]
    """Of a document `document_id`; of a publication also `source` and `version`, of a failure `source` and `code`."""
