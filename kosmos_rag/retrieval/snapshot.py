"""The state of a tenant that a search plans with.

Statistics, terms, indexes and routing are read in one snapshot.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kosmos_rag.core.text import bm25
from kosmos_rag.core.text.accents import accented_words, fold_accents
from kosmos_rag.core.text.analysis import query_text, separate_words
from kosmos_rag.core.types import EVERYONE, ExperimentMode, KnownItems, RunningExperiment
from kosmos_rag.retrieval.close_terms import CloseTermCache, TermRow, WordMatches, replace_absent_words
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.storage.binary import array_literal
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_NO_TENANT: Mapping[str, Any] = {
    "space_id": None, "enforced": False, "preset": None, "audit": (), "experiment": None, "collections": None
}  # fmt: skip
_MAX_ENDING = 2
"""Letters by which the stems of a word with and without accents may differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Packed postings of a range of sequence numbers.

    The range is from the end of the previous segment to before `last`.
    """

    id: uuid.UUID
    last: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PresetOverlay:
    """Settings of a collection's preset that apply to queries to all collections."""

    access: Mapping[str, Any] | None
    """`rag.access`."""
    department_match: Mapping[str, Any] | None
    """`rag.signals.department_match`."""
    require_approved: bool | None
    """`rag.retrieval.require_approved`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionStats:
    """Statistics of one collection for one query of one reader.

    Counted over the chunks that this reader may read: chunks of others change no score and no count.
    """

    collection: str
    chunks: int
    """Chunks that this reader may read."""
    average: float
    """Mean length of those chunks, in lexemes."""
    next_sequence: int
    state: str
    """Identity of what this reader may read: each transaction that changes it gives another one.

    Readers with the same access control lists have the same state. It is random: no other history of the database
    repeats it."""
    weights: Mapping[int, float]
    """Query term weights `{lexeme_id: idf * term_weight}`, sorted by id."""
    total_weight: float
    """Sum of the weights of all query terms.

    Those that no chunk contains are included, but for parts of codes. Where chunks have the code, no part is included.
    """
    segments: tuple[Segment, ...]
    preset: str | None = None
    """Name of the preset of the collection; None without one."""
    overlay: PresetOverlay | None = None
    """What the preset sets for its hits; None without one, and where the query names the collection."""
    known_items: Mapping[str, KnownItems] = field(default_factory=dict)
    """How well the retrievers find questions made of its texts, by language; empty where that was not measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorIndex:
    """The vector index of the tenant over its live embedding space."""

    id: uuid.UUID
    kind: str
    oversampling: int | None
    """Candidates to rescore for each requested hit, of an index with one bit a dimension; else None."""
    probes: int
    lists: int
    ef_search: int
    rows: int
    """Rows when the index was built."""
    acl: Mapping[str, int]
    """Rows by access control list; its principals are joined by a unit separator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing:
    """Stored settings that select the pipeline and the audit of a query.

    Equal records route alike: a caller may keep one and compare it with that of the snapshot.
    """

    preset: tuple[str, str] | None
    """Name and content (JSON) of the preset of the collection; None without a collection or a preset."""
    audit: tuple[Mapping[str, Any], ...]
    """`rag.audit` of the presets of all collections that may answer."""
    experiment: RunningExperiment | None
    """The experiment that runs for queries to this collection, or to all collections."""

    @classmethod
    def from_row(cls, preset: Sequence[str] | None, audit: Sequence[Mapping[str, Any]], experiment: Any) -> "Routing":
        """Build the record from the columns of `query_routing`.

        Args:
            preset: name and content of the preset of the collection, if any.
            audit: `rag.audit` of the presets of all collections that may answer.
            experiment: fields of the running experiment as JSON, if any.
        """
        return cls(
            preset=None if preset is None else (preset[0], preset[1]),
            audit=tuple(audit),
            experiment=None
            if experiment is None
            else RunningExperiment(
                **{**experiment, "id": uuid.UUID(experiment["id"]), "mode": ExperimentMode(experiment["mode"])}
            ),
        )


NO_ROUTING = Routing(preset=None, audit=(), experiment=None)


def read_routing(role: ConnectionPool, tenant: TenantRef, collection: str | None) -> Routing:
    """Read the routing of queries to a collection, or to all.

    It runs in a transaction of its own. Raises DatabaseError.
    """
    values = {"tenant_id": tenant.id, "collection": collection}
    with role.transaction(tenant.id, [EVERYONE]) as connection:
        row = connection.execute(statement("query_routing"), values).fetchone()
    return NO_ROUTING if row is None else Routing.from_row(*row)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The state of a tenant when a query is answered."""

    space_id: uuid.UUID | None
    collections: tuple[CollectionStats, ...]
    """Collections that may answer and that this reader may read."""
    chunks: int
    """Chunks that this reader may read."""
    terms: frozenset[str]
    """Lexemes of the query without accents, in the languages of all collections that may answer."""
    warnings: tuple[str, ...]
    """One for each word of the query that close terms replaced."""
    required: str | None
    """Condition on chunks as a tsquery; None if the query requires nothing."""
    vector_index: VectorIndex | None
    total_chunks_unfiltered: int
    """Chunk count ignoring ACLs. Planner input only: exposing it would leak hidden documents."""
    enforced: bool
    """Whether a preset of one of the collections derives access from departments."""
    routing: Routing

    @property
    def states(self) -> dict[str, str]:
        """State by collection."""
        return {stats.collection: stats.state for stats in self.collections}


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundTexts:
    """What a statement that reads the state binds of a wording."""

    values: Mapping[str, Any]
    code_parts: Mapping[str, str]
    """Code by each of its parts."""
    has_accents: bool


def bind_texts(query: RetrieverQuery) -> BoundTexts:
    """Return the values to read the state with the terms of a wording."""
    operators = query.parsed.operators
    required, excluded = (*operators.phrases, *operators.required), operators.excluded
    texts = [query_text(text) for text in query.texts]
    folded = [(accented_words(text), weight / 2) for text, weight in query.texts.items() if not text.isascii()]
    weights = [*query.texts.values(), *(weight for _, weight in folded)]
    values = {
        **query.scope,
        "principals": array_literal(query.principals),
        "texts": array_literal([*(text.text for text in texts), *(words for words, _ in folded)]),
        "weights": array_literal(map(str, weights)),
        "phrases": [separate_words(words) for words in (*required, *excluded)],
        "excluded": [False] * len(required) + [True] * len(excluded),
    }
    code_parts = {part: code for text in texts for part, code in text.code_parts.items()}
    return BoundTexts(values=values, code_parts=code_parts, has_accents=bool(folded))


def build_snapshot(
    query: RetrieverQuery,
    bound: BoundTexts,
    state: Mapping[str, Any],
    close_terms: CloseTermCache | None,
    match: Callable[[Sequence[str]], Mapping[str, WordMatches]],
    *,
    required: str | None = None,
) -> Snapshot:
    """Build the snapshot of a wording.

    Args:
        bound: Its texts, as they were bound.
        state: What kosmos.search_state returned.
        close_terms: Those of earlier queries; None to look up none.
        match: Looks up words that are not cached.
        required: Condition on chunks as a tsquery.
    """
    overview = state["overview"] or _NO_TENANT
    terms, warnings = [tuple(row) for row in state["terms"]], tuple[str, ...]()
    if bound.has_accents:
        terms = _merge_accents(terms)
    collections = overview["collections"] or []
    readable = [row for row in collections if row["chunks"] is not None]
    absent = any(lexeme_id is None for _, _, lexeme_id, *_ in terms)
    if absent and close_terms is not None and query.lexical and query.fuzzy:
        states = tuple([(row["collection"], row["state"]) for row in readable])
        key = (query.scope["tenant_id"], query.scope["collection"], states)
        terms, warnings = replace_absent_words(query, terms, close_terms, key, match)
    space_id = overview["space_id"] if readable else None
    vector_indexes = [index for index in state["indexes"] if index["space_id"] == space_id and space_id is not None]
    return Snapshot(
        space_id=None if space_id is None else uuid.UUID(space_id),
        collections=tuple(_collection_stats(row, terms, state["indexes"], bound.code_parts) for row in readable),
        chunks=sum(row["chunks"] for row in readable),
        terms=frozenset(fold_accents(lexeme) if bound.has_accents else lexeme for _, lexeme, *_ in terms),
        warnings=warnings,
        required=required,
        vector_index=_vector_index(vector_indexes[0]) if vector_indexes and query.use_vector_index else None,
        total_chunks_unfiltered=sum(row["chunks_unfiltered"] for row in collections),
        enforced=overview["enforced"],
        routing=Routing.from_row(overview["preset"], overview["audit"], overview["experiment"]),
    )


def _merge_accents(terms: Sequence[TermRow]) -> list[TermRow]:
    """Share the weight of a word with its form without accents.

    Where chunks have one of both, the other is left out.
    """
    weights = {row[:2]: row[4] for row in terms}
    indexed = {row[:2] for row in terms if row[2] is not None}
    for collection, lexeme, _, _, weight in terms:
        word, folded = (collection, lexeme), fold_accents(lexeme)
        forms = [key for key in weights if key[0] == collection and key != word and _is_form(key[1], folded)]
        if folded == lexeme or not forms or word not in weights:
            continue
        form = forms[0]
        if form not in indexed:
            del weights[form]
        elif word in indexed:
            weights[word] = weight / 2
        else:
            del weights[word]
            weights[form] = max(weight, weights[form])
    return [(*row[:4], weights[row[:2]]) for row in terms if row[:2] in weights]


def _is_form(lexeme: str, folded: str) -> bool:
    """Return whether a lexeme is a word without accents.

    The stemmer may have cut another ending.
    """
    shorter, longer = sorted((lexeme, folded), key=len)
    return lexeme == folded or (longer.startswith(shorter) and len(longer) - len(shorter) <= _MAX_ENDING < len(shorter))


def _collection_stats(
    row: Mapping[str, Any],
    terms: Sequence[Sequence[Any]],
    indexes: Sequence[Mapping[str, Any]],
    code_parts: Mapping[str, str],
) -> CollectionStats:
    collection, chunks, overlay = row["collection"], row["chunks"], row["overlay"]
    weighted = [
        (lexeme, lexeme_id, bm25.inverse_document_frequency(chunks, frequency or 0) * weight)
        for where, lexeme, lexeme_id, frequency, weight in terms
        if where == collection
    ]
    indexed = {lexeme for lexeme, lexeme_id, _ in weighted if lexeme_id is not None}
    # Parts of a code are not in texts that have the code itself: without them it is covered none the less.
    uncounted = {part for part, code in code_parts.items() if part not in indexed or code in indexed}
    return CollectionStats(
        collection=collection,
        chunks=chunks,
        average=max(row["length"], 1) / max(chunks, 1),
        next_sequence=row["next_sequence"],
        state=row["state"],
        weights={lexeme_id: weight for _, lexeme_id, weight in weighted if lexeme_id is not None},
        total_weight=sum(weight for lexeme, _, weight in weighted if lexeme not in uncounted),
        segments=tuple(
            Segment(id=uuid.UUID(index["id"]), last=index["last_sequence"])
            for index in indexes
            if index["kind"] == "segment" and index["collection"] == collection
        ),
        preset=row["preset"],
        overlay=None if overlay is None else PresetOverlay(**overlay),
        known_items={language: KnownItems(**figures) for language, figures in (row["known_items"] or {}).items()},
    )


def _vector_index(index: Mapping[str, Any]) -> VectorIndex | None:
    settings, health = index["settings"], index["health"]
    missed = health.get("recall_at_10", 1.0) < health.get("recall_target", 0.0)
    if missed and health["p50_ms"] > health["exact_p50_ms"]:
        return None  # below the recall target, and slower than the exact scan
    return VectorIndex(
        id=uuid.UUID(index["id"]),
        kind=index["kind"],
        oversampling=settings.get("oversampling"),
        probes=settings.get("probes", 1),
        lists=settings.get("lists", 1),
        ef_search=settings.get("ef_search", 40),
        rows=index["rows"],
        acl=health.get("readers", {}),
    )
