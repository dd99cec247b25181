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


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceInfo:
    """An embedding space of a tenant: what it is, and how far it has come."""

    id: uuid.UUID
    model: str
    dimensions: int
    state: str
    """`building`: has never been live; `ready`: has; `dropping`: its vectors are being deleted."""
    live: bool
    """Whether questions are answered from it."""
    live_until: datetime | None
    """When another became live in its place: the latest is what a rollback goes back to."""
    embedded: int
    """How many of the tenant's chunks have a vector in it."""
    chunks: int
    """How many the tenant has."""
    truncated_tokens: int
    """Tokens that its model did not read of chunks that were too long for it, while the space was filled."""
    index: str | None
    """Kind of its vector index; None where its vectors are scanned."""
    recall_at_10: float | None
    """Of the index, when it was last measured."""
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceQuality:
    """What was measured of a space before questions were switched to it."""

    model: str
    live_model: str
    """Of the space that was live before."""
    recall_at_10: float | None
    """Of its vector index against an exact scan; None where it is scanned."""
    recall_target: float
    questions: int
    """Of the evaluation set that the sources of answers were known of."""
    ndcg_at_10: float | None
    """Of the vectors alone, by exact scan; None without an evaluation set."""
    live_ndcg_at_10: float | None
    """The same of the space that was live."""
    forced: str | None
    """Why it was switched to in spite of what was measured; None where that was good enough."""
