"""Events of documents and sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kosmos_rag.core.types.serialize import Serializable


class EventType(StrEnum):
    """What has happened."""

    PUBLISHED = "document.published"
    REMOVED = "document.removed"
    FAILED = "document.failed"
    PERMISSIONS_CHANGED = "document.permissions_changed"
    METADATA_CHANGED = "document.metadata_changed"
    SOURCE_FAILED = "source.failed"
    SOURCE_EXPIRED = "source.expired"
    MONITOR_ALARM = "monitor.alarm"
    MONITOR_DRIFT = "monitor.drift"


@dataclass(frozen=True, kw_only=True, slots=True)
class Event(Serializable):
    """A change of a tenant's documents or sources."""

    sequence: int
    """Position in the tenant's events, without gaps, in the order of commits."""
    type: str
    """One of `EventType`, or a type of a newer version."""
    at: datetime
    collection: str
    data: Mapping[str, Any]
    """Of a document `document_id`; of a publication also `source` and `version`, of a failure `source` and `code`."""
