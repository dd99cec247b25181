"""Records of the way out: Candidate → Passage → Citation, and the accounts of how they were found."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kosmos_rag.core.types.documents import DocumentLines
from kosmos_rag.core.types.experiments import ExperimentAssignment
from kosmos_rag.core.types.explain import explanation


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
    def location(self) -> str:
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
    chunk_index: int
    section: tuple[str, ...]
    start: int
    end: int
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    text: str
    chunker: str
    collection: str
    dense_rank: int | None
    dense_score: float | None
    """Cosine similarity to the question, -1 to 1."""
    lexical_rank: int | None
    lexical_score: float | None
    """BM25."""
    fused_rank: int
    """Among all candidates, before reranking."""
    fused_score: float
    score_contributions: Mapping[str, float]
    """What each list of candidates adds to the fused score: `dense`, `lexical`, and of other wordings `dense 2`."""
    rerank_score: float | None
    """Relevance by the reranker, 0 to 1; None where it did not run."""
    signals: Mapping[str, float] = field(default_factory=dict)
    """What each signal added to the score; what it was before is the score as a share of the best one's."""
    parent_span: tuple[int, int] | None = None
    """Span of its document that the context shows in its place; None where it is shown itself."""

    @property
    def location(self) -> str:
        """Section and lines (or pages) for a reader: `Churn Calculation | L12 to L38`."""
        return _place(self)


def page_range(of: "Citation | Passage | ContextPassage | DocumentLines") -> tuple[int, int] | None:
    """Return the first and the last page of a text; None where its format has no pages."""
    return None if of.page_start is None else (of.page_start, of.page_end or of.page_start)


def _place(of: Citation | Passage) -> str:
    if of.page_start is None:
        where = f"L{of.line_start}" if of.line_start == of.line_end else f"L{of.line_start} to L{of.line_end}"
    elif of.page_start == of.page_end:
        where = f"p. {of.page_start}"
    else:
        where = f"p. {of.page_start} to {of.page_end}"
    return " | ".join([*of.section[-1:], where])


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrieverStats:
    """What one leg was asked for and gave."""

    asked: int
    returned: int
    plan: str
    """How the rows were found: `exact scan`, `ivfflat`, `hnsw`, `segments`; `not told` to who may not read them all."""
    read: Mapping[str, int]
    """How much was read to find them: `rows`, `postings`, `segments`, `lists`, `candidates`, as the plan has them."""
    reason: str | None
    """Why fewer came than were asked for; None when all came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expansion:
    """What was looked for beside the question's own words."""

    synonyms: tuple[str, ...] = ()
    """By the keyword leg."""
    wordings: tuple[str, ...] = ()
    """The question in other words, each asked as well: the second list of candidates on."""
    passage: str | None = None
    """An answer that a language model made up; the vector leg looked for passages like it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    """The answer to one question, with its account."""

    question: str
    expansion: Expansion
    requested: int
    hits: tuple[Passage, ...]
    stages: tuple[str, ...]
    """The stages that ran, in order."""
    timings_ms: Mapping[str, float]
    """Milliseconds of each stage, and `total`."""
    retrievers: Mapping[str, RetrieverStats]
    """By list of candidates: `dense`, `lexical`, and of other wordings `dense 2`."""
    warnings: tuple[str, ...]
    """What the caller should know: a stage that was skipped and why, hits that were dropped."""
    degraded_stages: tuple[str, ...]
    """Stages that the settings ask for and that could not run in time, or at all: `expand`, `rerank`."""
    cached: bool
    """Whether it is a result kept from before, of the same documents."""
    incomplete_reason: str | None
    """Why fewer came than requested; None when all came."""
    intent: str | None = None
    """What kind of question it is by the rules of `rag.intents`; None where none of them fits."""
    id: uuid.UUID | None = field(default=None, compare=False)
    """Of its record in the log, for feedback on it; None where no log is kept."""
    experiment: ExperimentAssignment | None = field(default=None, compare=False)
    """Which configuration of an experiment answered; None where none runs that may change that."""

    @property
    def returned(self) -> int:
        """How many hits came."""
        return len(self.hits)

    def explain(self) -> str:
        """Return a table, for reading: how each hit came to its rank, and what each stage did and took."""
        return explanation(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Excerpt:
    """A stretch of a stored document's text."""

    text: str
    page_start: int | None
    page_end: int | None
    page_breaks: tuple[int, ...] = ()
    """Where in the document another page begins within it, as far as that was read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextPassage:
    """A passage of the context: one chunk, neighbouring chunks joined into one text, or the section around chunks."""

    citation: Citation
    """Of the text; of a section, of the best chunk in it."""
    text: str
    start: int
    """Where the text begins in its document; before the citation's own start where the text is a section."""
    page_start: int | None
    page_end: int | None
    page_breaks: tuple[int, ...] = ()
    """Where in the document another page begins within the text; none of a single chunk, whose pages are all known."""
    score: float
    tokens: int
    """Of the passage as rendered, its header included."""
    chunk_ids: tuple[uuid.UUID, ...]
    """The hits that it shows, in the order of the document."""

    @property
    def end(self) -> int:
        """Where the text ends in its document."""
        return self.start + len(self.text)

    @property
    def quote(self) -> str:
        """The text that the citation points at, of which `quote_sha256` is the hash."""
        return self.text[self.citation.start - self.start : self.citation.end - self.start]


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
    retrieval: SearchResult

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations in the order of their numbers."""
        return tuple(passage.citation for passage in self.passages)
