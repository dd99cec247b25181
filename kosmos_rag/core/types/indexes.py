"""Records of indexes and embedding spaces."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kosmos_rag.core.types.serialize import Serializable

if TYPE_CHECKING:  # the client has these records, and no NumPy
    import numpy as np
    from numpy.typing import NDArray


class Prefixes(NamedTuple):
    """Texts that are put before questions and passages."""

    query: str = ""
    passage: str = ""


NO_PREFIXES = Prefixes()


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """An embedding space: the model of a tenant's vectors."""

    id: uuid.UUID
    model: str
    dimensions: int
    normalized: bool
    probe: "NDArray[np.float32]"
    """The vector of a fixed sentence, of shape (dimensions,): distinguishes two models of one size."""
    prefixes: Prefixes = NO_PREFIXES


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexInfo(Serializable):
    """Status of an index, or of rows that no index covers."""

    kind: str
    """`segment`, `ivfflat`, `hnsw`; `unsegmented`: chunks in no segment; `none`: vectors without an index."""
    state: str
    """`ready`, `building`, `retired`, or `exact` if the rows are scanned."""
    collection: str | None
    """None for vectors: their index covers all collections."""
    rows: int
    """Rows at the time of the build."""
    rows_now: int
    bytes: int
    settings: Mapping[str, Any]
    """Build and search settings: lists, probes, m, ef_construction, ef_search, precision."""
    health: Mapping[str, Any]
    """Measurements of the last tuning: recall_at_10, recall_at_100, p50_ms, rows, recall_target."""
    checked_at: datetime | None
    due: str | None
    """The reason why `index build` would change it; None if it would not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownItems(Serializable):
    """How well the retrievers find questions made of the texts of collections."""

    questions: int
    dense: float
    """Mean reciprocal rank of the dense retriever, 0 to 1."""
    lexical: float
    """Mean reciprocal rank of the lexical retriever, 0 to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceInfo(Serializable):
    """Status of an embedding space of a tenant."""

    id: uuid.UUID
    model: str
    dimensions: int
    state: str
    """`building`: has never been live; `ready`: has been live; `dropping`: its vectors are being deleted."""
    live: bool
    """Whether queries are answered from it."""
    live_until: datetime | None
    """When another space replaced it; a rollback returns to the latest."""
    embedded: int
    """Number of the tenant's chunks with a vector in it."""
    chunks: int
    """Number of the tenant's chunks."""
    truncated_tokens: int
    """Tokens that exceeded the model's maximum and were not embedded, during the backfill."""
    index: str | None
    """Kind of its vector index; None if its vectors are scanned."""
    recall_at_10: float | None
    """Of the index, when it was last measured."""
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceQuality(Serializable):
    """Measurements of a space before a cutover to it."""

    model: str
    live_model: str
    """Model of the live space before the cutover."""
    recall_at_10: float | None
    """Of its vector index against an exact scan; None if it is scanned."""
    recall_target: float
    questions: int
    """Number of evaluation questions with judged sources."""
    ndcg_at_10: float | None
    """Of its vectors by exact scan; None without questions."""
    live_ndcg_at_10: float | None
    """The same of the live space."""
    forced: str | None
    """Reason given to cut over in spite of the measurements; None if they were good enough."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexEvent(Serializable):
    """A change to a vector index, with its reason."""

    at: datetime
    index_id: uuid.UUID
    action: str
    """`rebuilt`, `tuned`, `search_widened`, `dropped`, or `skipped`: a repair was due and could not be done."""
    reason: str
    before: Mapping[str, Any]
    """Settings and recall before the change; of a rebuild, those of the replaced index."""
    after: Mapping[str, Any]
