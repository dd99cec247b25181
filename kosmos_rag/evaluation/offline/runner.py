"""Evaluate a tenant's retrieval.

Every question of a set is searched, and the rankings are measured.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.display import mask_urls
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, Answer, IndexInfo, SearchResult, SpaceInfo
from kosmos_rag.core.version import __version__
from kosmos_rag.evaluation.offline.metrics import compute_measures, parse_measures
from kosmos_rag.evaluation.offline.questions import Question, QuestionSet
from kosmos_rag.evaluation.offline.types import (
    ABSTENTION,
    CITATION_PRECISION,
    DEGRADED,
    FALSE_ANSWERS,
    FALSE_REFUSALS,
    Evaluation,
    QuestionResult,
    means,
)
from kosmos_rag.evaluation.settings import EvaluationSettings

Progress = Callable[[int, int, str], None]
"""Called with the number of questions done, the number of all, and the label of the plan."""


class HasIndexes(Protocol):
    """Reports a tenant's indexes."""

    def status(self) -> Sequence[IndexInfo]:
        """Return the indexes."""
        ...


class HasSpaces(Protocol):
    """Reports a tenant's embedding spaces."""

    def status(self) -> Sequence[SpaceInfo]:
        """Return the spaces, the live one first."""
        ...


class EvaluatedTenant(Protocol):
    """One tenant as one reader sees it: a Tenant is one."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        ...

    @property
    def language_model(self) -> str | None:
        """Name of the language model; None without one."""
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
        """Return the best passages for a query."""
        ...

    def answer(self, question: str) -> Answer:
        """Answer a question, or refuse."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How to evaluate a question set."""

    label: str
    settings: Settings
    """Settings of the tenant; of a collection with a preset, the settings under it."""
    answers: bool = False
    """Whether to answer each question too, to measure citations and refusals."""
    collection: str | None = None
    principals: tuple[str, ...] = (EVERYONE,)
    """Principals of the reader."""
    open_reader: "Callable[[tuple[str, ...]], EvaluatedTenant] | None" = None
    """Opens the tenant for a question with principals of its own; None where no question has some."""


def for_evaluation(settings: Settings) -> Settings:
    """Return settings without reranking deadline and result cache.

    So load does not change the results.
    """
    rag = settings.rag
    reranking = rag.reranking.model_copy(update={"deadline_ms": 3_600_000})
    retrieval = rag.retrieval.model_copy(update={"result_cache": 0})
    return settings.model_copy(update={"rag": rag.model_copy(update={"reranking": reranking, "retrieval": retrieval})})


def evaluate(
    tenant: EvaluatedTenant, question_set: QuestionSet, plan: Plan, on_progress: Progress | None = None
) -> Evaluation:
    """Search with every question and measure the rankings.

    Args:
        tenant: The tenant as one reader sees it.
        plan: Settings, label and reader.
        on_progress: Called before each question.

    Raises RequestError for a tenant without documents, ConfigError on an unknown measure, and what a search raises: an
    evaluation covers all its questions or does not exist.
    """
    settings, measured = plan.settings, plan.settings.section(EvaluationSettings)
    parse_measures(measured.measures)
    language_model = tenant.language_model if _uses_language_model(plan) else None
    index_state = {**_index_state(tenant), "language_model": language_model}
    started, at = time.perf_counter(), datetime.now(UTC)
    results = []
    for number, question in enumerate(question_set.questions):
        if on_progress is not None:
            on_progress(number, len(question_set.questions), plan.label)
        reader = _open_reader(tenant, question, plan)
        results.append(_evaluate_question(reader, question, measured.depth, answers=plan.answers))
    seconds = time.perf_counter() - started
    by_question = compute_measures(measured.measures, results)
    results = [
        replace(result, measures={**by_question.get(result.question_id, {}), **result.measures}) for result in results
    ]
    return Evaluation(
        id=uuid.uuid4(),
        at=at,
        tenant=tenant.name,
        label=plan.label,
        set_name=question_set.name,
        set_sha256=question_set.sha256,
        collection=plan.collection,
        principals=plan.principals,
        depth=measured.depth,
        questions=len(results),
        answered=plan.answers,
        measures=_order(means(results), measured.measures),
        settings=mask_urls(settings.rag.model_dump(mode="json")),
        settings_hash=settings.settings_hash,
        code_version=__version__,
        index_state=index_state,
        seconds=round(seconds, 3),
        results=tuple(sorted(results, key=lambda result: result.question_id)),
        of_readers=question_set.of_readers,
    )


def _open_reader(tenant: EvaluatedTenant, question: Question, plan: Plan) -> EvaluatedTenant:
    """Return the tenant as the reader of a question sees it. Raises RequestError."""
    if not question.principals:
        return tenant
    if plan.open_reader is None:
        raise RequestError(f"the question {question.text!r} has principals, and this evaluation has one reader")
    return plan.open_reader((EVERYONE, *question.principals))


def _order(measures: Mapping[str, float], first: Sequence[str]) -> dict[str, float]:
    """Put the configured measures first: reports rank questions by the first measure."""
    return {name: measures[name] for name in dict.fromkeys([*first, *measures]) if name in measures}


def _index_state(tenant: EvaluatedTenant) -> dict[str, Any]:
    live = next((space for space in tenant.spaces.status() if space.live), None)
    if live is None or not live.chunks:
        raise RequestError(
            f"tenant {tenant.name!r} has no documents to search; ingest some first, or name a set with its own corpus"
        )
    stored = ("kind", "state", "collection", "rows", "rows_now", "settings", "health", "due")
    indexes = [
        {name: value for name, value in asdict(info).items() if name in stored} for info in tenant.indexes.status()
    ]
    return {"model": live.model, "dimensions": live.dimensions, "chunks": live.chunks, "indexes": indexes}


def _uses_language_model(plan: Plan) -> bool:
    """Return whether a language model influences the results."""
    rag = plan.settings.rag
    return rag.expansion.queries > 0 or rag.expansion.hyde or (plan.answers and rag.answer.mode == "generative")


def _evaluate_question(tenant: EvaluatedTenant, question: Question, depth: int, *, answers: bool) -> QuestionResult:
    search_result = tenant.search(question.text, depth)
    places = (place for hit in search_result.hits for place in hit.places)
    ranking = tuple(dict.fromkeys(name for place in places for name in question.list_passage_names(place)))
    result = QuestionResult(
        question_id=question.id,
        question=question.text,
        judged=question.grades,
        ranking=ranking,
        timings_ms={stage: round(milliseconds, 3) for stage, milliseconds in search_result.timings_ms.items()},
        measures={DEGRADED: float(bool(search_result.degraded_stages))},
    )
    return _evaluate_answer(tenant, question, result) if answers else result


def _evaluate_answer(tenant: EvaluatedTenant, question: Question, result: QuestionResult) -> QuestionResult:
    started = time.perf_counter()
    answer = tenant.answer(question.text)
    milliseconds = round((time.perf_counter() - started) * 1000, 3)
    return replace(
        result,
        timings_ms={**result.timings_ms, "answer": milliseconds},
        measures={**result.measures, **_measure_answer(question, answer)},
        refused=answer.refused,
        confidence=answer.confidence,
    )


def _measure_answer(question: Question, answer: Answer) -> dict[str, float]:
    if not question.answerable:
        return {ABSTENTION: float(answer.refused), FALSE_ANSWERS: float(not answer.refused)}
    measures = {ABSTENTION: float(not answer.refused), FALSE_REFUSALS: float(answer.refused)}
    if not answer.refused and answer.citations:
        correct = [question.is_answered_in(citation) for citation in answer.citations]
        measures[CITATION_PRECISION] = sum(correct) / len(correct)
    return measures
