"""Records of a search: candidates, passages, result, citations and prompt context.

Fields in `Annotated[…, explain_only(…)]` are shown only where `explain` is asked for (see serialize.py).
"""

import datetime
import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, GetJsonSchemaHandler, computed_field, model_validator
from pydantic_core import CoreSchema

from kosmos_rag.core.types.documents import Note, hash_text
from kosmos_rag.core.types.experiments import ExperimentAssignment
from kosmos_rag.core.types.explain import explanation
from kosmos_rag.core.types.indexes import KnownItems
from kosmos_rag.core.types.notebook import context_html, search_result_html
from kosmos_rag.core.types.serialize import (
    Located,
    Offset,
    Page,
    Paged,
    Places,
    Serializable,
    explain_only,
    explain_only_parts,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Which documents may answer.

    Conditions are AND-ed; an empty filter lets all pass.
    """

    sources: tuple[str, ...] = ()
    """Sources, or folders of sources: `docs` matches `docs/a.md`."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Conditions on fields: `{"metadata.year": {"$gte": 2024}, "title": "Churn"}`; docs/filters.md lists them all."""


QuerySyntax = Literal["auto", "operators", "plain"]
"""Which signs of a question are operators: those of a question of operators and terms alone, all, or none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operators(Serializable):
    """What of a question was taken as an operator."""

    phrases: tuple[str, ...] = ()
    """Quoted phrases: hits with them come first."""
    required: tuple[str, ...] = ()
    """Terms that each hit contains."""
    excluded: tuple[str, ...] = ()
    """Terms that no hit contains."""
    signed_text: tuple[str, ...] = ()
    """Words with a sign that were read as text, since the question is a sentence or a command line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultOptions:
    """How a search returns its hits: in pages, grouped, diverse, with facets.

    Hits are then of the whole ranking: all fused candidates, not only the first `k`.
    """

    cursor: str | None = None
    """`*` for the first page, `next_cursor` of a result for the next one; None: no pages."""
    group_by: Literal["document"] | None = None
    """`document`: a hit for each document, with its other passages in `inner_hits`."""
    group_size: int | None = None
    """Passages of a group at most, the hit included; None for 3."""
    facets: tuple[str, ...] = ()
    """Fields whose values are counted: `collection`, `department`, `media_type`, `source`, `metadata.KEY`."""
    mmr: float | None = None
    """Weight of relevance in maximal marginal relevance, 0 to 1; the rest is that of diversity. None: no reordering."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FacetValue(Serializable):
    """A value of a field and the number of documents with it.

    Of documents in the ranking of the search.
    """

    value: str | bool | int | float
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Citation(Located):
    """The location of a quote, with a hash to detect changes."""

    index: int
    """Its number in the context, from 1."""
    marker: str
    """The number as the text of the context writes it, `[1]` by default."""
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    title: str
    source: str
    section: tuple[str, ...]
    start: Offset
    end: Offset
    line_start: Offset
    line_end: Offset
    page_start: Page
    page_end: Page
    quote_sha256: str
    """SHA-256 of the cited text, hexadecimal."""
    date: datetime.date | None = None
    """Date of the content, by `updated` or `date` of the metadata; None without one."""
    outdated: str | None = None
    """Why the document is out of date: superseded by another one, or no longer valid; None where it is not."""
    link: str | None = None
    """Address of the cited lines where the source has a web page for them, such as a hosted repository."""
    table_context: tuple[str, ...] = ()
    """Caption and names of the columns of the table that the cited text begins within."""
    place_spans: Places = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Occurrence(Located):
    """Another place of a hit's text.

    In a document that the reader may read.
    """

    chunk_id: uuid.UUID
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    source: str
    title: str
    media_type: str
    metadata: Mapping[str, Any]
    collection: str
    department: str | None = None
    section: tuple[str, ...]
    start: Offset
    end: Offset
    line_start: Offset
    line_end: Offset
    page_start: Page
    page_end: Page
    place_spans: Places = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage(Located):
    """A chunk that a search returned, with its location and its scores."""

    rank: int
    score: Annotated[float, explain_only(math.nan)]
    """The score that decided the rank: of the reranker where it ran, else of the fusion."""
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
    start: Offset
    end: Offset
    line_start: Offset
    line_end: Offset
    page_start: Page
    page_end: Page
    text: str
    chunker: str
    collection: str
    department: str | None = None
    """Of its document, `general` where it has none; None in a collection without departments."""
    dense_rank: Annotated[int | None, explain_only(None)]
    dense_score: Annotated[float | None, explain_only(None)]
    """Cosine similarity to the question, -1 to 1."""
    lexical_rank: Annotated[int | None, explain_only(None)]
    lexical_score: Annotated[float | None, explain_only(None)]
    """BM25."""
    fused_rank: Annotated[int, explain_only(0)]
    """Among all candidates, before reranking."""
    fused_score: Annotated[float, explain_only(math.nan)]
    score_contributions: Annotated[Mapping[str, float], explain_only({})]
    """Contribution of each candidate list to the fused score: `dense`, `lexical`, and `dense 2` of another wording."""
    rerank_score: Annotated[float | None, explain_only(None)]
    """Relevance by the reranker, 0 to 1; None where it did not run."""
    signals: Annotated[Mapping[str, float], explain_only()] = field(default_factory=dict)
    """Change of the score by each signal; the score before is relative to the best one."""
    parent_span: tuple[int, int] | None = None
    """Span of the document that a context shows instead of the chunk; None where it shows the chunk."""
    notes: tuple[Note, ...] = ()
    """What of the document's file was guessed or could not be read."""
    table_context: tuple[str, ...] = ()
    """Caption and names of the columns of the table that the text begins within."""
    place_spans: Places = ()
    also_in: tuple[Occurrence, ...] = ()
    """Other places with the same text under the same heading, which are no hits of their own."""
    inner_hits: tuple["Passage", ...] = ()
    """Other passages of the document in a result grouped by document, best first."""

    @property
    def places(self) -> "tuple[Passage | Occurrence, ...]":
        """The place of this hit, then the other places of its text."""
        return (self, *self.also_in)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def quote_sha256(self) -> str:
        """SHA-256 of the text, hexadecimal."""
        return hash_text(self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrieverStats(Serializable):
    """Statistics of one retriever: requested, returned and read rows."""

    requested: int
    returned: int
    plan: str
    """How the rows were found: `exact scan`, `ivfflat`, `hnsw`, `segments`; `hidden` from
    readers who may not read all documents."""
    read: Mapping[str, int]
    """How much was read to find them: `rows`, `postings`, `segments`, `lists`, `candidates`, as the plan has them."""
    reason: str | None
    """Why fewer were returned than requested; None if all were."""
    coverage: float | None = None
    """Of a lexical retriever: BM25 score of the best candidate as a share of the idf of all query terms, 0 to 2.5."""
    terms: int | None = None
    """Of a lexical retriever: number of query terms after analysis."""
    weight: float | None = None
    """Weight of the list in the fusion; None for a list that was not fused."""
    by_words: bool = False
    """Whether words decided: the question names an identifier or is one term, and the best candidate covers it."""
    known_items: KnownItems | None = None
    """How well the retrievers find known items of the collections, if the weight follows it; None for a reader who may
    not read all documents."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expansion(Serializable):
    """What was searched for in addition to the words of the question."""

    synonyms: tuple[str, ...] = ()
    """Searched by the lexical retriever."""
    wordings: tuple[str, ...] = ()
    """The question in other words, each asked as well: the second list of candidates on."""
    passage: str | None = None
    """A hypothetical answer by a language model (HyDE); the dense retriever searched with its embedding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatedCondition(Serializable):
    """A condition on documents that the question states in words: `since March`, `by the finance team`."""

    text: str
    """As the question has it."""
    field: str
    """`date`, `title`, `department`, or `metadata.KEY`."""
    value: str
    """The value; of a date the days as an ISO 8601 interval, the end excluded."""
    matching: int = 0
    """Number of found passages that satisfy it; with 0 it changed nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionActivity(Serializable):
    """What one of several questions gave to the result of a search."""

    question: str
    returned: int
    """How many hits the question has by itself."""
    ranks: tuple[int, ...]
    """Ranks of the hits of the result that it found."""
    milliseconds: float
    cached: Annotated[bool, explain_only(False)]
    """Whether its result was in the result cache."""
    warnings: tuple[str, ...]
    incomplete_reason: str | None
    """Why it has fewer hits than requested; None where it has as many."""
    operators: Operators = Operators()
    """What of the question was taken as an operator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult(Serializable):
    """The result of one search: the hits, and what each stage did."""

    question: str
    """The question; of several questions, one a line."""
    expansion: Annotated[Expansion, explain_only(Expansion())]
    requested: int
    """Number of requested hits."""
    hits: Annotated[tuple[Passage, ...], Field(default=())]
    """The passages, best first."""
    stages: tuple[str, ...]
    """The stages that ran, in order."""
    timings_ms: Annotated[Mapping[str, float], explain_only({})]
    """Milliseconds of each stage, and `total`."""
    retrievers: Annotated[Mapping[str, RetrieverStats], explain_only({})]
    """By list of candidates: `dense`, `lexical`, and of other wordings `dense 2`."""
    warnings: tuple[str, ...]
    """Warnings for the caller: skipped stages with the reason, dropped hits."""
    degraded_stages: tuple[str, ...]
    """Stages that the settings ask for and that could not run in time, or at all: `expand`, `rerank`."""
    cached: Annotated[bool, explain_only(False)]
    """Whether the result was in the result cache."""
    incomplete_reason: str | None
    """Why there are fewer hits than requested; None where there are as many."""
    next_cursor: str | None = None
    """The `cursor` of the next page; None on the last one, and without pages."""
    facets: Mapping[str, tuple[FacetValue, ...]] = field(default_factory=dict)
    """By field: values of the documents in the ranking, the most frequent first."""
    activity: tuple[QuestionActivity, ...] = ()
    """What each of several questions gave, in their order; empty where one question was asked."""
    intent: Annotated[str | None, explain_only()] = None
    """The kind of question by the rules of `rag.intents`; None where no rule matches."""
    operators: Operators = Operators()
    """What of the question was taken as an operator."""
    conditions: tuple[StatedCondition, ...] = ()
    """What of the question was taken as a condition on documents; passages that conflict with it come last."""
    id: Annotated[uuid.UUID | None, Field(alias="retrieval_id")] = field(default=None, compare=False)
    """Its record in the audit log, for feedback; None where no log is kept."""
    experiment: ExperimentAssignment | None = field(default=None, compare=False)
    """Which configuration of an experiment answered; None where no experiment is in service."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def returned(self) -> int:
        """How many hits there are."""
        return len(self.hits)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def milliseconds(self) -> float:
        """How long the search took."""
        return round(self.timings_ms.get("total", 0.0), 1)

    @model_validator(mode="before")
    @classmethod
    def _keep_total(cls, values: Any) -> Any:
        """Keep the total where the timings of the stages are not shown."""
        if isinstance(values, Mapping) and "timings_ms" not in values and "milliseconds" in values:
            return {**values, "timings_ms": {"total": values["milliseconds"]}}
        return values

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON Schema, with `returned` optional.

        A context leaves it out with the hits.
        """
        schema = super(SearchResult, cls).__get_pydantic_json_schema__(core, handler)
        if handler.mode == "serialization":
            handler.resolve_ref_schema(schema)["required"].remove("returned")
        return schema

    def explain(self) -> str:
        """Return a readable table of how hits were ranked."""
        return explanation(self)

    def __iter__(self) -> Iterator[Passage]:
        """Iterate over the hits, best first."""
        return iter(self.hits)

    def __len__(self) -> int:
        """Return the number of hits; a result without hits is false."""
        return len(self.hits)

    def _repr_html_(self) -> str:
        return search_result_html(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rectangle(Serializable):
    """A line of text, or a table, on a page.

    Coordinates are shares of the page's width and height, 0 to 1, from the top left of the page as it is displayed.
    """

    page: int
    """From 1."""
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentSection(Serializable):
    """A section of a live document: consecutive lines under the same headings."""

    section: tuple[str, ...]
    """Its headings, the outermost first; empty before the first one."""
    line_start: Offset
    line_end: Offset

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lines(self) -> tuple[int, int]:
        """First and last line, from 1."""
        return self.line_start, self.line_end


@dataclass(frozen=True, kw_only=True, slots=True)
class Excerpt:
    """A stretch of a stored document's text."""

    text: str
    page_start: Page
    page_end: Page
    page_breaks: tuple[int, ...] = ()
    """Where in the document another page begins within it, as far as that was read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextPassage(Paged):
    """A passage of the context: one chunk, joined neighbours, or a section."""

    citation: Citation
    """Of the text; of a section, of the best chunk in it."""
    text: str
    start: Offset
    """Where the text begins in its document; before the citation's own start where the text is a section."""
    page_start: Page
    page_end: Page
    page_breaks: tuple[int, ...] = ()
    """Where in the document another page begins within the text; none of a single chunk, whose pages are all known."""
    score: Annotated[float, explain_only(math.nan)]
    tokens: int
    """Of the passage in the text of the context, with its header."""
    chunk_ids: tuple[uuid.UUID, ...]
    """The hits in it, in the order of the document."""

    @property
    def end(self) -> int:
        """Where the text ends in its document."""
        return self.start + len(self.text)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def span(self) -> tuple[int, int]:
        """Characters of the document's text: first, and one after the last."""
        return self.start, self.end

    @property
    def quote(self) -> str:
        """The cited text, of which `quote_sha256` is the hash."""
        return self.text[self.citation.start - self.start : self.citation.end - self.start]


@dataclass(frozen=True, kw_only=True, slots=True)
class Context(Serializable):
    """Evidence for a prompt: numbered passages within a token budget."""

    question: str
    text: Annotated[str, Field(default="")]
    """The passages as a prompt has them, each under its marker; empty in an answer that is not explained."""
    passages: tuple[ContextPassage, ...]
    """Those of the search, best first; in a conversation then those of earlier turns that the prompt repeats."""
    tokens: int
    max_tokens: int
    """The budget of the passages of the search."""
    omitted: Mapping[str, int]
    """Hits that are not shown, by reason: `near_duplicate`, `budget`."""
    retrieval: Annotated[SearchResult, explain_only_parts("hits", "returned")]
    """The search behind it; its hits are the texts of the passages."""

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations in the order of the passages."""
        return tuple(passage.citation for passage in self.passages)

    def __iter__(self) -> Iterator[ContextPassage]:
        """Iterate over the passages in their order."""
        return iter(self.passages)

    def __len__(self) -> int:
        """Return the number of passages; a context without any is false."""
        return len(self.passages)

    def _repr_html_(self) -> str:
        return context_html(self)
