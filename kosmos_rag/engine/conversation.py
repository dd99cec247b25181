"""Read the passages of earlier turns again, as far as the reader may read them now.

The caller sends numbers and chunks, no texts. A passage whose document was changed, erased, excluded by the filter or
taken from the reader since is no longer part of the conversation.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from psycopg.rows import dict_row

from kosmos_rag.answering.citation_check import find_markers
from kosmos_rag.answering.context import number_passage
from kosmos_rag.answering.history import EarlierTurn, passage_span
from kosmos_rag.answering.select import SpanReader, select
from kosmos_rag.core.config import ContextSettings
from kosmos_rag.core.protocols import Tokenizer
from kosmos_rag.core.types import ContextPassage, Passage, Turn
from kosmos_rag.retrieval.filters import require_approved
from kosmos_rag.retrieval.hydrate import parse_passage_rows
from kosmos_rag.retrieval.query import Query
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

_MAX_PASSAGES = 200
"""Passages of a conversation that are read again, the latest ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnReader:
    """Reads earlier turns for one question."""

    pool: ConnectionPool
    query: Query
    """The search of the question: its reader, collection and filter hold for the passages too."""
    requires_approved: Callable[[str], bool]
    """Returns whether searches of a collection find approved documents alone."""
    read_spans: SpanReader
    tokenizer: Tokenizer
    settings: ContextSettings

    def read(self, turns: Sequence[Turn]) -> list[EarlierTurn]:
        """Return the turns with their passages."""
        numbered: dict[int, Sequence[uuid.UUID]] = {}
        for turn in reversed(turns):  # numbers of the latest turns first; the earliest turn decides what a number names
            numbered |= turn.passages
        references = dict(islice(numbered.items(), _MAX_PASSAGES))
        hits = self._read_hits({chunk_id for chunk_ids in references.values() for chunk_id in chunk_ids})
        passages: dict[int, ContextPassage] = {}
        for number, chunk_ids in sorted(references.items()):
            passage = self._number(number, chunk_ids, hits)
            if passage is not None and passage_span(passage) not in map(passage_span, passages.values()):
                passages[number] = passage
        return [
            EarlierTurn(
                question=turn.search_query or turn.question,
                answer=turn.answer,
                passages=tuple(passages[number] for number in turn.passages if number in passages),
                cited=find_markers(turn.answer, self.settings.citation_format),
                tokens=sum(self.tokenizer.count([turn.search_query or turn.question, turn.answer])),
            )
            for turn in turns
        ]

    def _number(
        self, number: int, chunk_ids: Sequence[uuid.UUID], hits: Mapping[uuid.UUID, Passage]
    ) -> ContextPassage | None:
        """Return the passage of some chunks with its number; None if one is unreadable."""
        members = [hits[chunk_id] for chunk_id in chunk_ids if chunk_id in hits]
        if not members or len(members) < len(chunk_ids):
            return None
        selections = select(members, self.read_spans)
        if len(selections) > 1:
            return None
        return number_passage(selections[0], number, tokenizer=self.tokenizer, settings=self.settings)

    def _read_hits(self, chunk_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Passage]:
        """Return the chunks that a search of the question could return."""
        ids = "{" + ",".join(chunk_id.hex for chunk_id in chunk_ids) + "}"
        tenant_id, collection = self.query.tenant.id, self.query.collection
        with (
            self.pool.transaction(tenant_id, self.query.principals) as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            values = {"tenant_id": tenant_id, "chunk_ids": ids}
            read = parse_passage_rows(cursor.execute(statement("passages"), values).fetchall()).values()
        rows = [row for row in read if collection in (None, row["collection"])]
        requiring = [name for name in sorted({row["collection"] for row in rows}) if self.requires_approved(name)]
        scope = require_approved(self.query.scope, requiring) if requiring else self.query.scope
        if scope["filtered"]:
            matching = self._match({**scope, "ids": list({row["document_id"] for row in rows})})
            rows = [row for row in rows if row["document_id"] in matching]
        return {hit.chunk_id: hit for hit in _to_hits(rows)}

    def _match(self, values: Mapping[str, object]) -> frozenset[uuid.UUID]:
        """Return the documents that the filter of the question matches."""
        with self.pool.transaction(self.query.tenant.id, self.query.principals) as connection:
            return frozenset(key for (key,) in connection.execute(statement("matching_documents"), values))


def _to_hits(rows: Iterable[Mapping[str, object]]) -> Iterator[Passage]:
    """Yield chunks as hits without scores."""
    for rank, row in enumerate(rows, start=1):
        fields = {name: value for name, value in row.items() if name != "principals"}
        yield Passage(
            **fields,  # type: ignore[arg-type]
            rank=rank,
            score=0.0,
            dense_rank=None,
            dense_score=None,
            lexical_rank=None,
            lexical_score=None,
            fused_rank=rank,
            fused_score=0.0,
            score_contributions={},
            rerank_score=None,
        )
