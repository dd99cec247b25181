"""What a search reads, and what it returns."""

import uuid
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.types import Passage, RetrieverStats, SearchResult
from kosmos_rag.retrieval.arrange import Vectors
from kosmos_rag.retrieval.conditions.stated import NO_CONDITIONS, Conditions
from kosmos_rag.retrieval.query import Query, RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot
from kosmos_rag.retrieval.views.base import BackgroundTask


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedSearch:
    """The dense part of a search that only the vector index decided.

    It had no filter and no required term.
    """

    space_id: uuid.UUID
    vector: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOutcome:
    """A result with what its delivery depends on."""

    result: SearchResult
    """Not redacted: its plans are for readers with `may_explain` only."""
    may_explain: bool
    """Whether the reader may see plans: they depend on all documents, hidden ones too."""
    indexed_search: IndexedSearch | None
    """Of a search that the recall monitor may repeat; None for others."""
    task: BackgroundTask | None = None
    """Work that the search made due, for the background queue; None for most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedPassages:
    """What a view returned for a query."""

    retrievers: dict[str, RetrieverStats]
    passages: list[Passage]
    """What the later stages may reorder."""
    rest: list[Passage]
    """What follows them in the ranking; loaded only for the options of a result."""
    vectors: Vectors
    """Of all these passages, for diversity; else empty."""
    warnings: tuple[str, ...]
    conditions: Conditions = NO_CONDITIONS
    """What the question states of documents, of these passages."""


@dataclass(kw_only=True, slots=True)
class Reading:
    """State, and cached result or passages, of a search."""

    query: Query
    wordings: Sequence[RetrieverQuery]
    """The query, and other wordings of it."""
    snapshot: Snapshot
    may_explain: bool
    key: Hashable | None = None
    """Of the cache of results; None if it is disabled."""
    cached: SearchResult | None = None
    fetched: FetchedPassages | None = None
