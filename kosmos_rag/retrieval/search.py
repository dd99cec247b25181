"""Both legs of one question, in the reader's transaction: look at the corpus, plan, send, receive.

Three round trips where no plan falls short: what there is, both legs' statements, which candidates are to be seen. One
more where a filter, or a reader of little, makes it worth to look at the documents in reach first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.retrieval.candidates import DENSE, LEXICAL, Leg
from kosmos_rag.retrieval.dense import DenseLeg, Reach, few_in_reach
from kosmos_rag.retrieval.filters import filter_values
from kosmos_rag.retrieval.lexical import LexicalLeg
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.query import Request
from kosmos_rag.retrieval.snapshot import Snapshot, look
from kosmos_rag.retrieval.timer import Watch
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What is asked of the legs. A leg without which the answer would be the same is not asked."""

    tenant: TenantRef
    principals: Sequence[str]
    collection: str | None
    """None for all of the tenant's."""
    request: Request
    texts: Mapping[str, float]
    """What the lexical leg looks for, and what each text counts for: the question 1, its synonyms less."""
    vector: NDArray[np.float32] | None
    """None where the dense leg is not asked."""
    lexical: bool
    depth: int
    similarity_threshold: float
    use_vector_index: bool

    @property
    def scope(self) -> dict[str, Any]:
        """Values that every statement binds."""
        chosen = {"tenant_id": self.tenant.id, "collection": self.collection}
        return chosen | filter_values(self.request.filter)

    @property
    def words(self) -> dict[str, Any]:
        """What the lexical leg looks for, and what the question requires and excludes."""
        parsed = self.request.parsed
        wanted = (*parsed.phrases, *parsed.required)
        return {
            "texts": list(self.texts),
            "weights": list(self.texts.values()),
            "phrases": [*wanted, *parsed.excluded],
            "excluded": [False] * len(wanted) + [True] * len(parsed.excluded),
        }

    def without_phrases(self) -> "Search":
        """Return the same search, its quoted phrases taken for words like others."""
        parsed = replace(self.request.parsed, phrases=())
        return replace(self, request=replace(self.request, parsed=parsed))

    def look(self, connection: psycopg.Connection) -> Snapshot:
        """Read what there is to plan with."""
        return look(connection, self.scope, self.words, use_vector_index=self.use_vector_index)

    def run(
        self, connection: psycopg.Connection, snapshot: Snapshot, cache: PostingsCache, watch: Watch
    ) -> dict[str, Leg]:
        """Ask the legs, and return their candidates with their accounts."""
        scope = {**self.scope, "required": snapshot.required}
        reach = few_in_reach(connection, scope, snapshot, self.principals)
        watch.lap("plan")
        clocks: list[psycopg.Cursor[tuple[datetime]]] = []
        dense = self._dense(connection, scope, snapshot, reach, clocks)
        lexical = None
        if self.lexical:
            lexical = LexicalLeg(connection, scope, snapshot, self.depth, reach, cache)
        legs: dict[str, Leg] = {}
        if lexical is not None:
            if clocks:
                watch.server_lap(DENSE, *(clock.fetchall()[0][0] for clock in clocks))
            legs[LEXICAL] = lexical.receive()
            watch.lap(LEXICAL)
        if dense is not None:
            legs[DENSE] = dense.receive(self.similarity_threshold)
            watch.lap(DENSE)
        return {name: legs[name] for name in (DENSE, LEXICAL) if name in legs}

    def _dense(
        self,
        connection: psycopg.Connection,
        scope: Mapping[str, Any],
        snapshot: Snapshot,
        reach: Reach | None,
        clocks: list[psycopg.Cursor[tuple[datetime]]],
    ) -> DenseLeg | None:
        """Send the dense leg; where the other one travels with it, between two readings of the server's clock."""
        if self.vector is None:
            return None
        dense = DenseLeg(connection, scope, snapshot, self.vector, self.depth)
        if self.lexical:
            clocks.append(connection.execute(statement("server_clock")))
        dense.send(reach, self.principals)
        if self.lexical:
            clocks.append(connection.execute(statement("server_clock")))
        return dense
