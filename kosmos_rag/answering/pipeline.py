"""The answer to a question from a context: weigh its units, refuse or answer, and check what a model wrote."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kosmos_rag.answering.abstention import REFUSAL, confidence, features
from kosmos_rag.answering.citation_check import check_citations, distrusted, is_refusal
from kosmos_rag.answering.compose import render, select, sentence
from kosmos_rag.answering.conversation import SAMPLE as SAMPLE_OF_CONVERSATION
from kosmos_rag.answering.conversation import Searched, condensed
from kosmos_rag.answering.evidence import Evidence, weigh
from kosmos_rag.answering.sanitize import cleaned
from kosmos_rag.answering.stream import AnswerStream, DeferredStream
from kosmos_rag.answering.templates import load
from kosmos_rag.core.config import AnswerSettings, RagSettings
from kosmos_rag.core.errors import ConfigError
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
    Turn,
)

_SAMPLE = {"question": "", "context": "", "passages": (), "marker": "[1]", "refusal": REFUSAL}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weighed:
    """What the evidence is worth to the question."""

    evidence: Sequence[Evidence]
    features: Mapping[str, float]
    confidence: float


class Answerer:
    """Answers questions from contexts as the settings say. Thread-safe."""

    def __init__(self, embedder: Embedder, model: LanguageModel | None, settings: RagSettings) -> None:
        """Load the templates. Raises ConfigError: a broken one, or no language model where one is needed."""
        answer = settings.answer
        self._embedder = embedder
        self._settings: AnswerSettings = answer
        self._citation_format = settings.context.citation_format
        self._model = self._conversant = None
        if answer.mode == "generative":
            self._model = _needed(model, "rag.answer.mode=generative")
            self._prompt = load(answer.template, _SAMPLE)
        if answer.history_turns:
            self._conversant = _needed(model, "rag.answer.history_turns")
            self._condensing = load("condense", SAMPLE_OF_CONVERSATION)

    def search_query(self, question: str, history: Sequence[Turn]) -> Searched:
        """Return the question to search for, after a conversation."""
        if not history:
            return Searched(question=question)
        if self._conversant is None:
            return Searched(question=question, warnings=("history is not looked at: rag.answer.history_turns is 0",))
        return condensed(self._conversant, self._condensing, question, history[-self._settings.history_turns :])

    def stream(self, question: str, context: Context, warnings: tuple[str, ...] = ()) -> AnswerStream:
        """Answer from a context, which may be of another question than was asked: the one that was searched for.

        The evidence is weighed now; the language model is asked with the first piece. Raises ModelUnavailable.
        """
        weighed = self._weighed(context)
        refused = not weighed.evidence or weighed.confidence < self._settings.threshold
        sources = AnswerSources(question=question, context=context, refused=refused, warnings=warnings)
        pieces = DeferredStream(lambda: self._asked(context))
        return AnswerStream(sources, self._events(sources, weighed, pieces), pieces)

    def _events(
        self, sources: AnswerSources, weighed: _Weighed, pieces: DeferredStream
    ) -> Generator[AnswerEvent, None, None]:
        yield sources
        text = ""
        for piece in self._written(sources, weighed, pieces):
            text += piece
            yield AnswerPiece(text=piece)
        yield AnswerDone(answer=self._answer(sources, weighed, text.strip(), cut=pieces.cut))

    def _written(self, sources: AnswerSources, weighed: _Weighed, pieces: DeferredStream) -> Iterable[str]:
        if sources.refused:
            return [REFUSAL]
        if self._model is None:
            return [render(self._selected(weighed))]
        return cleaned(pieces, evidence=sources.context.text, link_hosts=self._settings.link_hosts)

    def _answer(self, sources: AnswerSources, weighed: _Weighed, text: str, *, cut: bool) -> Answer:
        context = sources.context
        refused = is_refusal(text, self._citation_format)
        report: CitationReport | None = None
        sentences: tuple[AnswerSentence, ...] = ()
        if self._model is not None and not sources.refused:
            report = check_citations(
                text, context.passages, embedder=self._embedder, citation_format=self._citation_format
            )
            sentences = tuple(quote for said in report.sentences for quote in said.quotes)
        elif not refused:
            sentences = self._selected(weighed)
        borne_out = _all_trusted(sentences, context) if report is None else report.supported
        return Answer(
            question=sources.question,
            text=REFUSAL if refused else text,
            mode=self._settings.mode,
            refused=refused,
            verified=borne_out and not refused and not cut,
            confidence=weighed.confidence,
            features=weighed.features,
            sentences=sentences,
            report=report,
            context=context,
            warnings=sources.warnings + self._notes(cut=cut),
        )

    def _notes(self, *, cut: bool) -> tuple[str, ...]:
        most = self._settings.max_output_tokens
        return (f"the answer was cut at rag.answer.max_output_tokens, which is {most}",) if cut else ()

    def _selected(self, weighed: _Weighed) -> tuple[AnswerSentence, ...]:
        return tuple(sentence(item) for item in select(weighed.evidence, self._settings.max_sentences))

    def _weighed(self, context: Context) -> _Weighed:
        evidence = weigh(context.question, context.passages[: self._settings.max_passages], self._embedder)
        values = features(context, evidence, self._embedder) if evidence else {}
        return _Weighed(evidence=evidence, features=values, confidence=confidence(values) if values else 0.0)

    def _asked(self, context: Context) -> TextStream:
        assert self._model is not None, "asked for only where it writes"
        return self._model.stream(self._messages(context), max_tokens=self._settings.max_output_tokens)

    def _messages(self, context: Context) -> list[Message]:
        values = {
            "question": context.question,
            "context": context.text,
            "passages": context.passages,
            "marker": context.passages[0].citation.marker,
            "refusal": REFUSAL,
        }
        return self._prompt.messages(values, fenced=[context.text, context.question])


def _needed(model: LanguageModel | None, key: str) -> LanguageModel:
    if model is None:
        raise ConfigError(f"{key} needs a language model; set language_model.url, or give the engine one")
    return model


def _all_trusted(sentences: Sequence[AnswerSentence], context: Context) -> bool:
    """Whether no document that is cited speaks to a language model."""
    cited = {said.citation.document_id for said in sentences}
    return not distrusted([passage for passage in context.passages if passage.citation.document_id in cited])
