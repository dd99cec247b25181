"""Answer a question from a context.

The steps are: score the evidence, refuse or answer, check the sentences of a model.
"""

from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kosmos_rag.answering.abstention import (
    REFUSAL,
    best_evidence,
    explain_language,
    explain_low_score,
    find_confidence,
)
from kosmos_rag.answering.citation_check import check_citations, is_refusal, suspicious_documents
from kosmos_rag.answering.compose import rank, render, scored_unit, select, sentence
from kosmos_rag.answering.context import render_passages
from kosmos_rag.answering.conversation import SAMPLE as CONVERSATION_SAMPLE
from kosmos_rag.answering.conversation import RewrittenQuery, contextualize
from kosmos_rag.answering.disagreement import find_disagreements
from kosmos_rag.answering.evidence import Evidence, score_questions
from kosmos_rag.answering.history import Conversation, passage_span, recent_turns
from kosmos_rag.answering.question_parts import split_question
from kosmos_rag.answering.sanitize import sanitize
from kosmos_rag.answering.scorers import EmbeddingScorer, EvidenceScorer, RerankingScorer
from kosmos_rag.answering.stream import AnswerStream, DeferredStream
from kosmos_rag.answering.templates import Prompt, load
from kosmos_rag.core.config import AnswerSettings, RagSettings
from kosmos_rag.core.errors import ConfigError, ModelError, RequestError, reader_message
from kosmos_rag.core.protocols import Embedder, LanguageModel, Message, TextStream
from kosmos_rag.core.types import (
    Answer,
    AnswerDone,
    AnswerEvent,
    AnswerPiece,
    AnswerSentence,
    AnswerSources,
    CitationReport,
    Context,
    ContextPassage,
    Turn,
)

_RERANK = "rerank"
"""The stage of a search that the reranker runs in."""
_NO_CONVERSATION = Conversation()
_SAMPLE = {"question": "", "context": "", "passages": (), "marker": "[1]", "refusal": REFUSAL}


@dataclass(frozen=True, kw_only=True, slots=True)
class _ScoredPart:
    """Evidence scored for a question or a part of it."""

    question: str
    evidence: Sequence[Evidence]
    confidence: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _ScoredEvidence:
    """Evidence scored for the parts of a question.

    The question itself is the only part where it joins no others, or where no part is answered.
    """

    parts: Sequence[_ScoredPart]
    warnings: tuple[str, ...] = ()

    @property
    def confidence(self) -> float:
        """The confidence of the part that is answered best."""
        return max(part.confidence for part in self.parts)

    @property
    def evidence(self) -> Sequence[Evidence]:
        """Each unit with its best score."""
        by_unit = zip(*(part.evidence for part in self.parts), strict=True)
        return [max(scores, key=lambda item: item.score) for scores in by_unit]

    def answered(self, threshold: float) -> list[_ScoredPart]:
        """Return the parts that are answered; the question itself, where it has no parts."""
        return [part for part in self.parts if part.confidence >= threshold or len(self.parts) == 1]

    def unanswered(self, threshold: float) -> list[_ScoredPart]:
        """Return the parts of an answered question that are not answered."""
        return [part for part in self.parts if part.confidence < threshold and len(self.parts) > 1]


class Answerer:
    """Answers questions from contexts, extractive or generative by `rag.answer.mode`. Thread-safe."""

    def __init__(
        self,
        embedder: Embedder,
        model: LanguageModel | None,
        settings: RagSettings,
        *,
        scorer: EmbeddingScorer | None = None,
        reranking_scorer: RerankingScorer | None = None,
        languages: Collection[str] = (),
    ) -> None:
        """Load the prompt templates.

        Args:
            embedder: Compares sentences with their evidence, and by `scorer` the question with the units.
            scorer: Of the embedder. Answerers that share it share its cache; None creates one.
            reranking_scorer: Compares the question with the units instead where `rag.reranking` is enabled.
            model: Writes the answers of the mode `generative`, and rewrites questions of conversations.
            settings: Of answers, contexts, the embedding and reranking.
            languages: ISO 639-1 codes of the embedder's languages; none where they are unknown, or all.

        Raises ConfigError where a template is broken, or where a setting needs a language model and there is none.
        """
        answer = settings.answer
        self._embedder = embedder
        self._embedding_scorer = scorer or EmbeddingScorer(embedder)
        self._reranking_scorer = reranking_scorer if settings.reranking.enabled else None
        self._settings: AnswerSettings = answer
        self._embedding_model = settings.embedding.model
        self._languages = languages
        self._prefer_current = settings.retrieval.prefer_current
        self._citation_format = settings.context.citation_format
        self._include_metadata = settings.context.include_metadata
        self._model = self._conversation_model = None
        fence_secret = None if answer.fence_secret is None else answer.fence_secret.get_secret_value()
        self._prompt: Prompt | None = None
        if answer.mode == "generative":
            self._model = _require_model(model, "rag.answer.mode=generative")
            self._prompt = load(answer.template, _SAMPLE, fence_secret=fence_secret)
        if answer.history_turns:
            self._conversation_model = _require_model(model, "rag.answer.history_turns")
            self._conversation_prompt = load("condense", CONVERSATION_SAMPLE, fence_secret=fence_secret)

    def search_query(self, question: str, history: Sequence[Turn]) -> RewrittenQuery:
        """Rewrite a follow-up question so that it can be searched alone.

        Without a conversation, or without a model for it, the question is unchanged.
        """
        if not history:
            return RewrittenQuery(question=question)
        if self._conversation_model is None:
            return RewrittenQuery(
                question=question, warnings=("the history was ignored: rag.answer.history_turns is 0",)
            )
        return contextualize(
            self._conversation_model,
            self._conversation_prompt,
            question,
            recent_turns(history, self._settings.history_turns),
        )

    def stream(
        self,
        question: str,
        context: Context,
        warnings: tuple[str, ...] = (),
        conversation: Conversation = _NO_CONVERSATION,
    ) -> AnswerStream:
        """Answer `question` from a context, as a stream of events.

        The evidence is scored now. The language model is called when the first piece is read.

        Args:
            question: The user's question. The context's question differs where a conversation was rewritten.
            warnings: Warnings of earlier stages; the answer repeats them.
            conversation: What the prompt repeats; the context has its passages.

        Raises ModelUnavailable.
        """
        scored = self._score(context)
        refused = not scored.evidence or scored.confidence < self._settings.threshold
        sources = AnswerSources(question=question, context=context, refused=refused, warnings=warnings)
        pieces = DeferredStream(lambda: self._generate(question, context, conversation))
        return AnswerStream(sources, self._events(sources, scored, pieces), pieces)

    def _events(
        self, sources: AnswerSources, scored: _ScoredEvidence, pieces: DeferredStream
    ) -> Generator[AnswerEvent, None, None]:
        yield sources
        text = ""
        for piece in self._answer_text(sources, scored, pieces):
            text += piece
            yield AnswerPiece(text=piece)
        yield AnswerDone(answer=self._answer(sources, scored, text.strip(), truncated=pieces.truncated))

    def _answer_text(self, sources: AnswerSources, scored: _ScoredEvidence, pieces: DeferredStream) -> Iterable[str]:
        if sources.refused:
            return [REFUSAL]
        if self._model is None:
            return [render(self._select_sentences(scored))]
        return sanitize(pieces, evidence=sources.context.text, link_hosts=self._settings.link_hosts)

    def _answer(self, sources: AnswerSources, scored: _ScoredEvidence, text: str, *, truncated: bool) -> Answer:
        context = sources.context
        refused = is_refusal(text, self._citation_format)
        report: CitationReport | None = None
        sentences: tuple[AnswerSentence, ...] = ()
        if self._model is not None and not sources.refused:
            report = check_citations(
                text, context.passages, embedder=self._embedder, citation_format=self._citation_format
            )
            sentences = tuple(quote for checked in report.sentences for quote in checked.quotes)
        elif not refused:
            sentences = self._select_sentences(scored)
        supported = _cites_no_suspicious_document(sentences, context) if report is None else report.supported
        return Answer(
            question=sources.question,
            text=REFUSAL if refused else text,
            mode=self._settings.mode,
            refused=refused,
            verified=supported and not refused and not truncated,
            truncated=truncated,
            confidence=scored.confidence,
            sentences=sentences,
            report=report,
            context=context,
            closest=self._select_closest(scored, context) if refused else (),
            warnings=(
                sources.warnings
                + scored.warnings
                + self._warnings(truncated=truncated)
                + _warn_outdated(sentences)
                + find_disagreements(sentences)
                + self._warn_unanswered(scored)
                + (self._warn_language(context) if refused else ())
            ),
            units=tuple(scored_unit(item) for item in rank(scored.evidence)),
            refusal_reason=self._explain_refusal(sources, scored) if refused else None,
        )

    def _warnings(self, *, truncated: bool) -> tuple[str, ...]:
        limit = self._settings.max_output_tokens
        return (f"the answer was cut at rag.answer.max_output_tokens, which is {limit}",) if truncated else ()

    def _warn_unanswered(self, scored: _ScoredEvidence) -> tuple[str, ...]:
        """Warn of each part of the question that the passages do not answer."""
        parts = scored.unanswered(self._settings.threshold)
        return tuple(f"no passage answers a part of the question: {part.question}" for part in parts)

    def _warn_language(self, context: Context) -> tuple[str, ...]:
        """Warn of a language that the embedding model does not know."""
        passages = context.passages[: self._settings.max_passages]
        warning = explain_language(passages, self._embedding_model, self._languages)
        return () if warning is None else (warning,)

    def _explain_refusal(self, sources: AnswerSources, scored: _ScoredEvidence) -> str:
        """Return the reason for a refusal in one sentence."""
        if not sources.refused:
            return "The language model found no answer in the passages."
        if not sources.context.passages:
            return f"There are no passages: {sources.context.retrieval.incomplete_reason or 'nothing fits the budget'}."
        best = best_evidence(scored.evidence)
        if best is None:
            return "The passages have no sentence, code, item or row that could be quoted."
        passages = sources.context.passages[: self._settings.max_passages]
        return explain_low_score(sources.context.question, best, passages, scored.confidence, self._settings.threshold)

    def _select_sentences(self, scored: _ScoredEvidence) -> tuple[AnswerSentence, ...]:
        """Select the units of each part that is answered, each unit once."""
        limit = max(1, self._settings.max_sentences // len(scored.parts))
        selected = [
            sentence(item)
            for part in scored.answered(self._settings.threshold)
            for item in select(part.evidence, limit, prefer_current=self._prefer_current)
        ]
        by_span = {(quoted.citation.index, quoted.citation.start, quoted.citation.end): quoted for quoted in selected}
        return tuple(by_span.values())

    def _select_closest(self, scored: _ScoredEvidence, context: Context) -> tuple[AnswerSentence, ...]:
        """Select the best units of a refusal.

        There are none if a cited document has instructions to a language model.
        """
        if scored.confidence < self._settings.closest_threshold or self._settings.closest_threshold == 1:
            return ()
        closest = self._select_sentences(scored)
        return closest if _cites_no_suspicious_document(closest, context) else ()

    def _score(self, context: Context) -> _ScoredEvidence:
        """Score the evidence by the reranker, or by the embedder where the reranker fails."""
        warnings: tuple[str, ...] = ()
        # A reranker that failed in the search is not asked again.
        if self._reranking_scorer is not None and _RERANK not in context.retrieval.degraded_stages:
            try:
                return self._score_questions(self._reranking_scorer, context)
            except ModelError as error:
                warnings = (f"the embedding model scored the units: {reader_message(error)}",)
        return replace(self._score_questions(self._embedding_scorer, context), warnings=warnings)

    def _score_questions(self, scorer: EvidenceScorer, context: Context) -> _ScoredEvidence:
        questions = split_question(context.question)
        if len(questions) > 1:
            questions = (context.question, *questions)
        passages = context.passages[: self._settings.max_passages]
        whole, *parts = [
            _ScoredPart(question=question, evidence=evidence, confidence=find_confidence(evidence, scorer))
            for question, evidence in zip(questions, score_questions(questions, passages, scorer), strict=True)
        ]
        is_answered_in_parts = any(part.confidence >= self._settings.threshold for part in parts)
        return _ScoredEvidence(parts=parts if is_answered_in_parts else [whole])

    def _generate(self, question: str, context: Context, conversation: Conversation) -> TextStream:
        assert self._model is not None, "asked for only where it writes"
        if self._settings.history_turns and self._settings.history_tokens:
            messages = self._build_turns(question, context, conversation)
        else:
            messages = self.build_prompt(context)
        return self._model.stream(messages, max_tokens=self._settings.max_output_tokens)

    def build_prompt(self, context: Context) -> list[Message]:
        """Return the messages of the answer template for a context; none is sent.

        Raises RequestError for a context without passages, ConfigError for a broken template.
        """
        if not context.passages:
            raise RequestError("the context has no passage to answer from; do not ask a model then")
        prompt = self._prompt or load(self._settings.template, _SAMPLE)
        values = _prompt_values(context.question, context.text, context.passages, context.passages[0].citation.marker)
        return prompt.messages(values, fenced=[context.text, context.question])

    def _build_turns(self, question: str, context: Context, conversation: Conversation) -> list[Message]:
        """Return the messages of a conversation, which begin as those of its earlier questions."""
        assert self._prompt is not None, "loaded where a model writes"
        marker = self._citation_format.format(index=1)
        repeated = {passage_span(passage) for passage in conversation.passages}

        def to_values(query: str, passages: Sequence[ContextPassage]) -> dict[str, Any]:
            text = render_passages(passages, include_metadata=self._include_metadata)
            return _prompt_values(query, text, passages, marker)

        earlier = [(to_values(turn.question, turn.passages), turn.answer) for turn in conversation.turns]
        unseen = [passage for passage in context.passages if passage_span(passage) not in repeated]
        values = to_values(context.question, unseen)
        turn_texts = [text for turn in conversation.turns for text in (turn.question, turn.answer)]
        seed = question if conversation.first_question is None else conversation.first_question
        fenced = [context.text, context.question, *turn_texts, *(turn_values["context"] for turn_values, _ in earlier)]
        return self._prompt.messages(values, fenced=fenced, earlier=earlier, seed=seed)


def _prompt_values(question: str, text: str, passages: Sequence[ContextPassage], marker: str) -> dict[str, Any]:
    """Return the variables of an answer template."""
    return {"question": question, "context": text, "passages": passages, "marker": marker, "refusal": REFUSAL}


def _require_model(model: LanguageModel | None, key: str) -> LanguageModel:
    if model is None:
        raise ConfigError(f"{key} needs a language model; set language_model.url, or give the engine one")
    return model


def _warn_outdated(sentences: Iterable[AnswerSentence]) -> tuple[str, ...]:
    """Warn of each cited passage that is out of date."""
    reasons = {
        quoted.citation.marker: quoted.citation.outdated for quoted in sentences if quoted.citation.outdated is not None
    }
    return tuple(f"{marker} is out of date: {reason}" for marker, reason in reasons.items())


def _cites_no_suspicious_document(sentences: Sequence[AnswerSentence], context: Context) -> bool:
    """Return whether no cited document contains instructions to a language model."""
    cited = {cited_sentence.citation.document_id for cited_sentence in sentences}
    return not suspicious_documents([passage for passage in context.passages if passage.citation.document_id in cited])
