"""The records that travel between the stages: frozen, keyword-only, one per stage.

The way of a document: SourceDocument → ParsedDocument → Chunk. The way of a question: Candidate → Passage → Citation.
Offsets are always characters of `ParsedDocument.text`, half open: `text[start:end]`. Lines and pages count from 1.
"""

import uuid
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVERYONE = "everyone"
"""The principal that every reader of a tenant holds; documents without a narrower list are readable by it."""


DEFAULT_COLLECTION = "default"
"""The collection of documents for which none is named."""


def is_text(value: object) -> bool:
    """Whether a value is text that PostgreSQL can hold: no NUL, no lone surrogates."""
    return isinstance(value, str) and "\x00" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def are_names(value: object) -> bool:
    """Whether a value is a collection of texts: one text alone is one too, of its letters, and never meant."""
    return isinstance(value, Collection) and not isinstance(value, str) and all(is_text(name) for name in value)


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceDocument:
    """A document as it comes in: bytes and where they are from."""

    source: str
    """Identity within the tenant: an absolute path, a URL, or any stable name."""
    data: bytes
    title: str | None = None
    """Overrides the title that the parser finds."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    readers: tuple[str, ...] = (EVERYONE,)
    """Principals that may read it: a reader must hold at least one of them."""
    language: str | None = None
    """PostgreSQL text search configuration: `german`, `simple`. None: `simple` for code, else the configured one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heading:
    """A heading found by the parser."""

    level: int
    """1 for the outermost."""
    title: str
    start: int
    """Offset of the heading's own line (or paragraph)."""


@dataclass(frozen=True, kw_only=True)
class ParsedDocument:
    """A document as text, with the structure that citations need."""

    text: str
    """Never contains NUL or lone surrogates; line ends are `\\n`."""
    media_type: str
    title: str | None = None
    headings: tuple[Heading, ...] = ()
    """In order of `start`."""
    pages: tuple[int, ...] = ()
    """Offset at which each page starts; empty where the format has no pages."""

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        at = self.text.find("\n")
        while at != -1:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def line_at(self, offset: int) -> int:
        """The line that holds the character at `offset`."""
        return bisect_right(self._line_starts, offset)

    def page_at(self, offset: int) -> int | None:
        """The page that holds the character at `offset`, or None where there are no pages."""
        return max(1, bisect_right(self.pages, offset)) if self.pages else None

    def section_at(self, offset: int) -> tuple[str, ...]:
        """Titles of the headings that enclose `offset`, outermost first."""
        path: list[Heading] = []
        for heading in self.headings:
            if heading.start > offset:
                break
            while path and path[-1].level >= heading.level:
                path.pop()
            path.append(heading)
        return tuple(heading.title for heading in path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A piece of a document, with everything a citation of it needs. `parsed.text[start:end] == text`."""

    ordinal: int
    """Position among the document's chunks, from 0."""
    start: int
    end: int
    text: str
    section: tuple[str, ...]
    """Enclosing headings, outermost first, of the text after those that lead the chunk."""
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    tokens: int
    """Counted by the embedding model's own tokenizer, special tokens not included."""
    splitter: str
    """Which splitter made it: semantic, recursive, markdown or paragraph."""
    fallback_reason: str | None = None
    """Why the configured splitter did not make it; None when it did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentInfo:
    """A live document, as `documents` lists it."""

    id: uuid.UUID
    source: str
    collection: str
    title: str
    media_type: str
    language: str
    """Text search configuration that it was analysed with."""
    version: int
    """Counts from 1; raised by each publication of changed content."""
    content_hash: str
    """SHA-256 of the bytes as they came in, hexadecimal."""
    bytes: int
    chunks: int
    metadata: Mapping[str, Any]
    updated_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestFailure:
    """A document that was not ingested, and why. What was stored of it before is untouched."""

    source: str
    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestReport:
    """What one call of `ingest` did. seen = new + changed + unchanged + failed."""

    new: int
    changed: int
    unchanged: int
    removed: int
    """Documents under an ingested folder whose file is gone."""
    failed: tuple[IngestFailure, ...]
    chunks: int
    """Chunks written by this call."""
    fallbacks: Mapping[str, int]
    """Chunks that a fallback splitter made, by reason."""
    seconds: float

    @property
    def seen(self) -> int:
        """Documents that the call looked at."""
        return self.new + self.changed + self.unchanged + len(self.failed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Which documents may answer. Conditions are AND-ed; an empty filter lets all pass."""

    sources: tuple[str, ...] = ()
    """Sources, or folders of sources: `/docs` matches `/docs/a.md`."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Conditions on fields: `{"metadata.year": {"$gte": 2024}, "title": "Churn"}`; docs/filters.md lists them all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A chunk proposed by one leg: its id, the leg's raw score and its rank from 1."""

    chunk_id: uuid.UUID
    score: float
    rank: int


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
class Citation:
    """Where a passage stands: enough to open the source at the place, and to notice that it has changed."""

    index: int
    """The number that stands in the context's text."""
    marker: str
    """The number as the context shows it, `[1]` by default."""
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    title: str
    source: str
    section: tuple[str, ...]
    start: int
    end: int
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    quote_sha256: str
    """SHA-256 of the cited text, hexadecimal."""

    @property
    def place(self) -> str:
        """Section and lines (or pages) for a reader: `Churn Calculation | L12 to L38`."""
        return _place(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """A retrieved chunk with its account: where it is from and how it came to its rank."""

    rank: int
    score: float
    """The score that decided the rank: reranked where that stage ran, fused otherwise."""
    chunk_id: uuid.UUID
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    source: str
    title: str
    media_type: str
    metadata: Mapping[str, Any]
    ordinal: int
    section: tuple[str, ...]
    start: int
    end: int
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    text: str
    splitter: str
    collection: str
    dense_rank: int | None
    dense_score: float | None
    """Cosine similarity to the question, -1 to 1."""
    lexical_rank: int | None
    lexical_score: float | None
    """BM25."""
    fused_score: float
    rerank_score: float | None

    @property
    def place(self) -> str:
        """Section and lines (or pages) for a reader: `Churn Calculation | L12 to L38`."""
        return _place(self)


def _place(of: Citation | Passage) -> str:
    if of.page_start is None:
        where = f"L{of.line_start}" if of.line_start == of.line_end else f"L{of.line_start} to L{of.line_end}"
    elif of.page_start == of.page_end:
        where = f"p. {of.page_start}"
    else:
        where = f"p. {of.page_start} to {of.page_end}"
    return " | ".join([*of.section[-1:], where])


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
class LegAccount:
    """What one leg was asked for and gave."""

    asked: int
    returned: int
    plan: str
    """How the rows were found: `exact scan`, `ivfflat`, `hnsw`, `segments`."""
    read: Mapping[str, int]
    """How much was read to find them: `rows`, `postings`, `segments`, `lists`, `candidates`, as the plan has them."""
    reason: str | None
    """Why fewer came than were asked for; None when all came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrieval:
    """The answer to one question, with its account."""

    question: str
    requested: int
    hits: tuple[Passage, ...]
    stages: tuple[str, ...]
    """The stages that ran, in order."""
    timings_ms: Mapping[str, float]
    """Milliseconds of each stage, and `total`."""
    legs: Mapping[str, LegAccount]
    notes: tuple[str, ...]
    """What the caller should know: a stage that was skipped and why, a deadline that was met."""
    shortfall: str | None
    """Why fewer came than requested; None when all came."""

    @property
    def returned(self) -> int:
        """How many hits came."""
        return len(self.hits)


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextPassage:
    """A passage of the context: one chunk, or neighbouring chunks of a document joined into one text."""

    citation: Citation
    text: str
    score: float
    tokens: int
    """Of the passage as rendered, its header included."""
    chunk_ids: tuple[uuid.UUID, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Evidence for a prompt: numbered passages within a token budget."""

    question: str
    text: str
    """The passages rendered for a prompt, each under its marker."""
    passages: tuple[ContextPassage, ...]
    tokens: int
    max_tokens: int
    omitted: Mapping[str, int]
    """Hits that are not shown, by reason: `near_duplicate`, `budget`."""
    retrieval: Retrieval

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations in the order of their numbers."""
        return tuple(passage.citation for passage in self.passages)
