"""A set of questions asked of a tenant, and what came of each."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, Answer, IndexInfo, SearchResult, SpaceInfo
from kosmos_rag.core.types.questions import Question, QuestionSet
from kosmos_rag.core.version import __version__
from kosmos_rag.evaluation.metrics import measured, parsed
from kosmos_rag.evaluation.types import (
    ABSTENTION,
    CITATION_PRECISION,
    DEGRADED,
    FALSE_ANSWERS,
    FALSE_REFUSALS,
    Evaluation,
    QuestionResult,
    means,
)

Progress = Callable[[int, int, str], None]
"""Told how many are done, of how many, and what is being done."""


class HasIndexes(Protocol):
    """What knows a tenant's indexes."""

    def status(self) -> Sequence[IndexInfo]:
        """Return them."""
        ...


class HasSpaces(Protocol):
    """What knows a tenant's embedding spaces."""

    def status(self) -> Sequence[SpaceInfo]:
        """Return them, the live one first."""
        ...


class EvaluatedTenant(Protocol):
    """One tenant as one reader sees it: a Tenant is one."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        ...

    @property
    def language_model(self) -> str | None:
        """Name of the language model, where there is one."""
        ...

    @property
    def indexes(self) -> HasIndexes:
        """The tenant's indexes."""
        ...

    @property
    def spaces(self) -> HasSpaces:
        """The tenant's embedding spaces."""
        ...

    def search(self, question: str, k: int | None = None) -> SearchResult:
        """Return the best passages for a question."""
        ...

    def answer(self, question: str) -> Answer:
        """Answer a question, or refuse."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How a set is asked."""

    label: str
    settings: Settings
    """What the scope goes by; of a collection with a preset, under that."""
    answers: bool = False
    """Whether to have each question answered too, for citations and refusals."""
    collection: str | None = None
    principals: tuple[str, ...] = (EVERYONE,)
    """The reader that the scope is of."""


def for_evaluation(settings: Settings) -> Settings:
    """Return settings that measure what they find and not how busy the machine is: no deadline, no kept results."""
    rag = settings.rag
    reranking = rag.reranking.model_copy(update={"deadline_ms": 3_600_000})
    retrieval = rag.retrieval.model_copy(update={"cached_results": 0})
    return settings.model_copy(update={"rag": rag.model_copy(update={"reranking": reranking, "retrieval": retrieval})})


def evaluate(scope: EvaluatedTenant, asked: QuestionSet, plan: Plan, on_progress: Progress | None = None) -> Evaluation:
    """Ask every question, and measure what was found.

    Raises RequestError where the tenant has no documents, ConfigError on a measure that is none, and what a question
    raises: an evaluation is of all its questions, or is none.
    """
    settings = plan.settings
    parsed(settings.evaluation.measures)
    index_state = {**_index_state(scope), "language_model": scope.language_model if _asks_model(plan) else None}
    started, at = time.perf_counter(), datetime.now(UTC)
    results = []
    for number, question in enumerate(asked.questions):
        if on_progress is not None:
            on_progress(number, len(asked.questions), plan.label)
        results.append(_asked(scope, question, settings.evaluation.depth, answers=plan.answers))
    seconds = time.perf_counter() - started
    by_question = measured(settings.evaluation.measures, results)
    results = [
        replace(result, measures={**by_question.get(result.question_id, {}), **result.measures}) for result in results
    ]
    return Evaluation(
        id=uuid.uuid4(),
        at=at,
        tenant=scope.name,
        label=plan.label,
        set_name=asked.name,
        set_sha256=asked.sha256,
        collection=plan.collection,
        principals=plan.principals,
        depth=settings.evaluation.depth,
        questions=len(results),
        answered=plan.answers,
        measures=_in_order(means(results), settings.evaluation.measures),
        settings=settings.rag.model_dump(mode="json"),
        settings_hash=settings.settings_hash,
        code_version=__version__,
        index_state=index_state,
        seconds=round(seconds, 3),
        results=tuple(sorted(results, key=lambda result: result.question_id)),
    )


def _in_order(measures: Mapping[str, float], first: Sequence[str]) -> dict[str, float]:
    """Put what was configured first: by the first measure of all, reports tell better questions from worse."""
    return {name: measures[name] for name in dict.fromkeys([*first, *measures]) if name in measures}


def _index_state(scope: EvaluatedTenant) -> dict[str, Any]:
    live = next((space for space in scope.spaces.status() if space.live), None)
    if live is None or not live.chunks:
        raise RequestError(
            f"tenant {scope.name!r} has no documents to ask; ingest some first, or name a set that brings its own"
        )
    kept = ("kind", "state", "collection", "rows", "rows_now", "settings", "health", "due")
    indexes = [{name: value for name, value in asdict(info).items() if name in kept} for info in scope.indexes.status()]
    return {"model": live.model, "dimensions": live.dimensions, "chunks": live.chunks, "indexes": indexes}


def _asks_model(plan: Plan) -> bool:
    """Whether a language model has a hand in what is measured."""
    rag = plan.settings.rag
    return rag.expansion.queries > 0 or rag.expansion.hyde or (plan.answers and rag.answer.mode == "generative")


def _asked(scope: EvaluatedTenant, question: Question, depth: int, *, answers: bool) -> QuestionResult:
    found = scope.search(question.text, depth)
    ranking = tuple(dict.fromkeys(name for hit in found.hits for name in question.names_of(hit)))
    result = QuestionResult(
        question_id=question.id,
        question=question.text,
        judged=question.judged,
        ranking=ranking,
        timings_ms={stage: round(milliseconds, 3) for stage, milliseconds in found.timings_ms.items()},
        measures={DEGRADED: float(bool(found.degraded_stages))},
    )
    return _answered(scope, question, result) if answers else result


def _answered(scope: EvaluatedTenant, question: Question, result: QuestionResult) -> QuestionResult:
    started = time.perf_counter()
    answer = scope.answer(question.text)
    milliseconds = round((time.perf_counter() - started) * 1000, 3)
    return replace(
        result,
        timings_ms={**result.timings_ms, "answer": milliseconds},
        measures={**result.measures, **_judged_answer(question, answer)},
        refused=answer.refused,
        confidence=answer.confidence,
    )


def _judged_answer(question: Question, answer: Answer) -> dict[str, float]:
    if not question.answerable:
        return {ABSTENTION: float(answer.refused), FALSE_ANSWERS: float(not answer.refused)}
    measures = {ABSTENTION: float(not answer.refused), FALSE_REFUSALS: float(answer.refused)}
    if not answer.refused and answer.citations:
        right = [question.is_answered_at(citation) for citation in answer.citations]
        measures[CITATION_PRECISION] = sum(right) / len(right)
    return measures
