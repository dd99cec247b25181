"""Ask a tenant: search, contexts and answers, with their checks and ratings."""

import uuid
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Literal

from kosmos_rag.answering.citation_check import check_citations, quote_status
from kosmos_rag.answering.stream import AnswerStream
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.protocols import Message, Vectors, complete
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.types import (
    Answer,
    AnswerSentence,
    CitationReport,
    Context,
    ContextPassage,
    Feedback,
    Filter,
    QuerySyntax,
    QuoteStatus,
    Rating,
    RatingReason,
    ResultOptions,
    SearchResult,
    Turn,
)
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.engine.query import EFFORTS, Effort
from kosmos_rag.engine.tenant_scope import TenantScope
from kosmos_rag.retrieval.query import DEFAULT_RETRIEVERS, QueryRequest, parse_retriever_options
from kosmos_rag.storage.audit.feedback import FeedbackEntry, store_feedback


@name_wrong_arguments(unless="search")
class QuestionAnswering(TenantScope):
    """Calls that ask, and those that check and rate what was answered."""

    def complete(self, prompt: str, *, max_tokens: int) -> str:
        """Return the language model's answer to a prompt.

        Raises ConfigError without a language model, and ModelError.
        """
        if self._parts.language_model is None:
            raise ConfigError("no language model is configured: set language_model.url and language_model.model")
        with self._parts.queries.charge(self._reader, usage.Quantity.INPUT_TOKENS):
            return complete(self._parts.language_model, prompt, max_tokens=max_tokens)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts as documents of this tenant are embedded.

        Returns an array of shape (texts, dimensions). Raises ModelUnavailable, ModelError.
        """
        with self._parts.queries.charge(self._reader, usage.Quantity.EMBEDDED_TOKENS):
            return self._parts.embedder.embed(texts)

    def embed_query(self, question: str) -> Sequence[float]:
        """Embed a question as `search` does. Raises ModelUnavailable, ModelError."""
        with self._parts.queries.charge(self._reader, usage.Quantity.EMBEDDED_TOKENS):
            vector: list[float] = self._parts.embedder.embed_query(question).tolist()
        return vector

    def search(
        self,
        question: str | Sequence[str],
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002 — the word that callers expect
        *,
        syntax: QuerySyntax = "auto",
        cursor: str | None = None,
        group_by: Literal["document"] | None = None,
        group_size: int | None = None,
        facets: Sequence[str] = (),
        mmr: float | None = None,
        semantic_weight: float | None = None,
        keyword_weight: float | None = None,
        vector: Sequence[float] | None = None,
        today: date | None = None,
        effort: Effort = "low",
    ) -> SearchResult:
        """Return the best passages for a question, or for several.

        Several questions are searched one after another. Their hits are fused by rank, a passage that several found
        is one hit, and `activity` has what each question gave. Raises RequestError, EmbeddingSpaceMismatch,
        ModelUnavailable, DatabaseError.

        Args:
            question: The question, with the operators of docs/questions.md; or a list of 1 to 10 questions, without
                pages, groups, facets, mmr and vector.
            k: Number of passages, or of documents where they are grouped; None for `rag.retrieval.top_k`.
            filter: Conditions on documents.
            syntax: Whether signs are operators: `auto` in a question of operators and terms alone, `operators` in each
                question; `plain` reads quotes as text too.
            cursor: `*` for the first of several pages, `next_cursor` of a result for the next one; None for no pages.
            group_by: `document` for a hit a document, with its other passages in `inner_hits`.
            group_size: Passages of a group, the hit included; None for 3.
            facets: Fields whose values are counted over the documents of the ranking, docs/search.md.
            mmr: Weight of relevance, 0 to 1, in maximal marginal relevance; None for no reordering.
            semantic_weight: Weight of the dense retriever, 0 for none; None for `rag.retrieval.semantic_weight`.
            keyword_weight: Weight of the lexical retriever, 0 for none; None for `rag.retrieval.keyword_weight`.
            vector: Embedding of the question by the model of the documents; the question may then be empty, and only
                the dense retriever searches. None to embed the question.
            today: Reference date of `last week` in a question, and of validity; None for the day in UTC.
            effort: `high` fuses the hits of up to six searches that the language model plans, for one question without
                pages, groups, facets, mmr and vector; `low` is one search.
        """
        if effort not in EFFORTS:
            raise RequestError(f"effort is {effort!r}; give one of {', '.join(EFFORTS)}")
        if isinstance(facets, str) or (facets and not isinstance(facets, Sequence)):
            raise RequestError(f"facets are {facets!r}; give a list of fields")
        if not isinstance(question, str) or effort == "high":
            if facets or any(option is not None for option in (cursor, group_by, group_size, mmr, vector)):
                raise RequestError("pages, groups, facets, mmr and vector are of one search; ask one, with effort low")
            if effort == "high" and not isinstance(question, str):
                raise RequestError("effort high plans the searches of one question; ask one question")
            weights = parse_retriever_options(semantic_weight, keyword_weight, None)
            several = QueryRequest(
                text=question if isinstance(question, str) else "",
                k=k,
                filter=filter,
                syntax=syntax,
                retrievers=weights,
                today=today,
                read_your_writes=self._read_your_writes,
            )
            if isinstance(question, str):
                return self._parts.queries.search_planned(self._reader, several)
            return self._parts.queries.search_several(self._reader, question, several)
        options = None
        if facets or any(option is not None for option in (cursor, group_by, group_size, mmr)):
            options = ResultOptions(
                cursor=cursor, group_by=group_by, group_size=group_size, facets=tuple(facets), mmr=mmr
            )
        retrievers = DEFAULT_RETRIEVERS
        if any(option is not None for option in (semantic_weight, keyword_weight, vector)):
            retrievers = parse_retriever_options(semantic_weight, keyword_weight, vector)
        request = QueryRequest(
            text=question,
            k=k,
            filter=filter,
            syntax=syntax,
            options=options,
            retrievers=retrievers,
            today=today,
            read_your_writes=self._read_your_writes,
        )
        return self._parts.queries.search(self._reader, request)

    def context(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
        syntax: QuerySyntax = "auto",
    ) -> Context:
        """Return numbered, cited evidence for a question within a token budget.

        Raises what `search` raises.

        Args:
            k: Passages to search for; None for the setting.
            filter: Conditions on documents.
            max_tokens: Budget in tokens of the embedding model; None for the setting.
            syntax: Whether signs are operators; see `search`.
        """
        request = QueryRequest(
            text=question, k=k, filter=filter, syntax=syntax, read_your_writes=self._read_your_writes
        )
        return self._parts.queries.context(self._reader, request, max_tokens)

    def answer(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
        syntax: QuerySyntax = "auto",
        history: Sequence[Turn] = (),
    ) -> Answer:
        """Answer from the evidence with a citation in each sentence, or refuse.

        It refuses if the evidence does not answer the question. Raises what `search` raises, and ModelError if a
        language model must write the answer and fails.

        Args:
            k: Passages to search for; None for the setting.
            filter: Conditions on documents.
            max_tokens: Budget of the context in tokens of the embedding model; None for the setting.
            syntax: Whether signs are operators; see `search`.
            history: Earlier turns of the conversation, oldest first; the last `rag.answer.history_turns` are used.
        """
        request = QueryRequest(
            text=question, k=k, filter=filter, syntax=syntax, read_your_writes=self._read_your_writes
        )
        return self._parts.queries.answer(self._reader, request, max_tokens, history)

    def stream_answer(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
        syntax: QuerySyntax = "auto",
        history: Sequence[Turn] = (),
    ) -> AnswerStream:
        """Answer as `answer` does, as a stream.

        It gives the sources, then the text in pieces, and the whole answer at its end. The retrieval is in the audit
        log, if one is kept, before this returns. A refusal by the model is in it before the end is delivered. Raises
        what `search` raises.

        Args:
            k: Passages to search for; None for the setting.
            filter: Conditions on documents.
            max_tokens: Budget of the context in tokens of the embedding model; None for the setting.
            syntax: Whether signs are operators; see `search`.
            history: Earlier turns of the conversation, oldest first.
        """
        request = QueryRequest(
            text=question, k=k, filter=filter, syntax=syntax, read_your_writes=self._read_your_writes
        )
        return self._parts.queries.stream(self._reader, request, max_tokens, history)

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, as the embedding model does.

        All token budgets use this count.
        """
        return self._parts.embedder.tokenizer.count([text])[0]

    def build_prompt(self, context: Context) -> list[Message]:
        """Return the messages that answer a context's question, for a language model of your own.

        They are those of `rag.answer.template`, with passages fenced as data. `check_citations` checks what the model
        writes. Raises RequestError for a context without passages, ConfigError for a broken template.
        """
        return self._pipelines().answerer.build_prompt(context)

    def check_citations(
        self, text: str, context: Context | Sequence[ContextPassage], *, citation_format: str | None = None
    ) -> CitationReport:
        """Check, sentence by sentence, a text that cites passages of a context.

        Raises ModelUnavailable.

        Args:
            citation_format: The format of a marker; None for `rag.context.citation_format`.
        """
        passages = context.passages if isinstance(context, Context) else context
        with self._parts.queries.charge(self._reader, usage.Quantity.EMBEDDED_TOKENS):
            return check_citations(
                text,
                passages,
                embedder=self._parts.embedder,
                citation_format=citation_format or self._pipelines().settings.rag.context.citation_format,
            )

    def check_quotes(self, quotes: Iterable[AnswerSentence]) -> list[QuoteStatus]:
        """Return whether each cited sentence is still in its document.

        The documents are read as this reader may read them now. Raises RequestError if a sentence differs from the
        cited quote, DatabaseError.
        """
        sentences = list(quotes)
        ids = {quote.citation.document_id for quote in sentences}
        texts = self._documents.read_texts_by_id(ids)
        return [
            quote_status(quote.citation, quote.text, texts.get(quote.citation.document_id, "")) for quote in sentences
        ]

    def feedback(
        self,
        rating: Rating | str,
        *,
        retrieval_id: uuid.UUID | None = None,
        question: str | None = None,
        chunk_id: uuid.UUID | None = None,
        comment: str | None = None,
        reason: RatingReason | str | None = None,
    ) -> Feedback:
        """Store the subject's rating of a search, a question or a passage.

        An earlier rating of the same object is replaced. Raises RequestError, NotFound, ConfigError, DatabaseError.

        Args:
            retrieval_id: `SearchResult.id` of the rated search.
            question: The rated question, where no search is named.
            chunk_id: The rated passage of the search; None for the whole result.
            comment: Free text.
            reason: Reason of a rating down; `not_covered`, that the documents do not answer, of any rating.
        """
        if rating not in list(Rating):
            raise RequestError(f"the rating is {str(rating)[:80]!r}; use {', '.join(Rating)}")
        if reason is not None and reason not in list(RatingReason):
            raise RequestError(f"the reason is {str(reason)[:80]!r}; use {', '.join(RatingReason)}")
        opinion = FeedbackEntry(
            rating=Rating(rating),
            retrieval_id=retrieval_id,
            question=question,
            chunk_id=chunk_id,
            comment=comment,
            reason=None if reason is None else RatingReason(reason),
        )
        return store_feedback(
            self._parts.database,
            self._reader,
            opinion,
            self._audit_policy(self._collection),
        )
