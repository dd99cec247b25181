"""The protocol of a view: one way to read what a search needs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from uuid import UUID

from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.types import Space
from kosmos_rag.retrieval.arrange import Vectors
from kosmos_rag.retrieval.fusion import CandidateList
from kosmos_rag.retrieval.hydrate import PassageRow
from kosmos_rag.retrieval.query import Query, RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot
from kosmos_rag.storage.pool import ConnectionPool

BackgroundTask: TypeAlias = Callable[[ConnectionPool], None]
"""Work that no search waits for, with connections of background work."""


class ViewUnavailable(Exception):
    """A view cannot answer this search; the next one is asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewRequest:
    """What a search asks of a view."""

    query: Query
    wordings: Sequence[RetrieverQuery]
    """The query, and other wordings of it."""
    compares_vectors: bool
    """Whether the vectors of candidates are compared with each other."""


class ViewSession(Protocol):
    """Reads what one search needs.

    All that it returns is of one state of the tenant.

    Every method may raise ViewUnavailable and DatabaseError. Sessions of two views return equal results at the same
    state, scores included; only the plans and what was read to find the candidates differ.
    """

    def snapshot(self, wording: RetrieverQuery) -> Snapshot:
        """Read the state of the tenant, with the terms of a wording."""
        ...

    def find_space(self) -> Space | None:
        """Return the live embedding space."""
        ...

    def candidates(self, wording: RetrieverQuery, snapshot: Snapshot) -> dict[str, CandidateList]:
        """Return the candidates of each retriever: `dense` and `lexical`, in this order."""
        ...

    def compare_with_best(self, snapshot: Snapshot, chunk_ids: Sequence[UUID]) -> CandidateList:
        """Rank candidates by similarity to the first five, for pseudo-relevance feedback."""
        ...

    def passages(self, snapshot: Snapshot, chunk_ids: Sequence[UUID]) -> Mapping[int, PassageRow]:
        """Return the passages of candidates by the number of their chunk id.

        The caller may change the rows.
        """
        ...

    def vectors(self, snapshot: Snapshot, chunk_ids: Sequence[UUID]) -> Vectors:
        """Return the vectors of chunks in the live space."""
        ...


class SearchView(Protocol):
    """One way to read what searches need. Thread-safe."""

    def can_answer(self, request: ViewRequest) -> bool:
        """Return whether the view can answer such a search, whatever the state of the tenant is.

        Where it returns False, the view is not asked for this search.
        """
        ...

    def open(
        self, request: ViewRequest, pool: ConnectionPool, timer: StageTimer
    ) -> AbstractContextManager[ViewSession]:
        """Open the session of a search.

        Raises ViewUnavailable, before anything is read, where the view lacks what the search needs.

        Args:
            pool: Connections of readers.
        """
        ...

    def observe(self, request: ViewRequest, wording: RetrieverQuery, snapshot: Snapshot) -> BackgroundTask | None:
        """Note a search that another view has answered; return work that is due.

        Args:
            wording: Its first wording, as it was searched for.
            snapshot: The state that answered.
        """
        ...
