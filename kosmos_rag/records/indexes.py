"""Records of what answers are found with: embedding spaces and indexes."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """An embedding space: the model that a tenant's vectors were made by."""

    id: uuid.UUID
    model: str
    dimensions: int
    normalized: bool
    probe: NDArray[np.float32]
    """The vector of a fixed sentence: tells two models of one size apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexInfo:
    """An index of a tenant, or one that it should have: of a collection's terms, or of its vectors."""

    kind: str
    """`segment`, `ivfflat`, `hnsw`; `tail`: chunks that no segment holds; `none`: vectors without an index."""
    state: str
    """`ready`, `building`, `retired`, or `exact` where rows are scanned."""
    collection: str | None
    """None for vectors: their index is over all collections."""
    rows: int
    """When it was built."""
    rows_now: int
    bytes: int
    settings: Mapping[str, Any]
    """How it was built and how far it is searched: lists, probes, m, ef_construction, ef_search, precision."""
    health: Mapping[str, Any]
    """What was measured when it was tuned: recall_at_10, recall_at_100, p50_ms, rows, recall_target."""
    checked_at: datetime | None
    due: str | None
    """Why `index build` would work on it; None where it would not."""
