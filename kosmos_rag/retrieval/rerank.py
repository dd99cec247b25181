"""Rerank passages by a cross-encoder, within the deadline of the search."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Generic, TypeVar, cast

from kosmos_rag.core.config import RerankingSettings
from kosmos_rag.core.errors import ModelError, first_line, reader_message
from kosmos_rag.core.protocols import Reranker
from kosmos_rag.core.telemetry import genai, usage
from kosmos_rag.core.telemetry.metrics import RETRIEVAL_FALLBACKS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.types import Passage
from kosmos_rag.models.reranking.batch_size import RerankBatchSize
from kosmos_rag.retrieval.fusion import PHRASE

logger = logging.getLogger(__name__)

T = TypeVar("T")
LATE, BUSY, MODEL = "deadline", "busy", "model"


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOutcome(Generic[T]):
    """The value of a call, or why there is none."""

    value: T | None
    message: str | None
    error_kind: str | None = None
    """`deadline` passed, `busy` with earlier calls, or the `model` failed."""


class DeadlineExecutor:
    """Runs calls in threads and waits for each until its deadline.

    At most `slots` calls run at once. A call past its deadline continues in its thread, because Python cannot stop it,
    and keeps its slot until it ends. While such calls occupy all slots, others are refused at once: a model that hangs
    costs its deadline once for each slot, and nothing after that.
    """

    def __init__(self, *, slots: int) -> None:
        self._slot_count = slots
        self._slots = threading.BoundedSemaphore(slots)
        self._lock = threading.Lock()
        self._late: set[Future[Any]] = set()

    def run(self, call: Callable[[], T], *, deadline_ms: float, spent_ms: float = 0.0) -> CallOutcome[T]:
        """Run a call and return its value, or why it has none.

        Args:
            deadline_ms: Milliseconds for the search until the call must end.
            spent_ms: Milliseconds of the deadline that have passed.
        """
        until = time.monotonic() + (deadline_ms - spent_ms) / 1000
        if spent_ms >= deadline_ms:
            return _build_failure(f"the deadline of {deadline_ms} ms passed before", LATE)
        if len(self._late) >= self._slot_count:
            return _build_failure(f"{self._slot_count} earlier calls are past their deadline and have not ended", BUSY)
        if not self._slots.acquire(timeout=max(0.0, until - time.monotonic())):
            return _build_failure(f"the deadline of {deadline_ms} ms passed while earlier calls ran", BUSY)
        future: Future[CallOutcome[T]] = Future()
        try:
            # A daemon thread, so that a hanging model does not keep the process alive.
            threading.Thread(
                target=self._run_call, args=(usage.bind(call), future), name="kosmos-rag-deadline", daemon=True
            ).start()
        except RuntimeError as error:
            self._slots.release()
            return _build_failure(first_line(error), BUSY)
        wait([future], timeout=max(0.0, until - time.monotonic()))
        with self._lock:
            if not future.done():
                self._late.add(future)
                return _build_failure(f"the deadline of {deadline_ms} ms passed", LATE)
        return future.result()

    def _run_call(self, call: Callable[[], T], future: Future[CallOutcome[T]]) -> None:
        outcome: CallOutcome[T]
        try:
            outcome = CallOutcome(value=call(), message=None)
        except BaseException as error:  # noqa: BLE001 — handed to the waiting thread
            logger.warning("a model failed: %s", error, extra={"action": "model_failed"})
            outcome = _build_failure(reader_message(error), MODEL)
        with self._lock:
            future.set_result(outcome)
            self._late.discard(future)
        self._slots.release()


def _build_failure(message: str, error_kind: str) -> CallOutcome[T]:
    return CallOutcome(value=None, message=message, error_kind=error_kind)


_WARM_UP_MS = 120_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankResult:
    """Passages after the rerank stage."""

    passages: list[Passage]
    warning: str | None
    """Why the stage did not run, or how many passages the threshold dropped."""
    is_complete: bool
    """Whether the stage ran; if not, the passages are in fused order."""


class RerankStage:
    """Reorders passages, or keeps their order and gives the reason. Thread-safe."""

    def __init__(
        self,
        reranker: Reranker,
        settings: RerankingSettings,
        telemetry: Telemetry,
        executor: DeadlineExecutor | None = None,
        batch_size: RerankBatchSize | None = None,
    ) -> None:
        self._reranker = reranker
        self._telemetry = telemetry
        self._settings = settings
        self._executor = DeadlineExecutor(slots=settings.concurrency) if executor is None else executor
        self._batch_size = batch_size or RerankBatchSize(settings)

    def with_settings(self, settings: RerankingSettings) -> "RerankStage":
        """Return a stage with another threshold and deadline.

        It shares model and slots, and the learned batch size where the same settings decide it.
        """
        keeps = RerankBatchSize.depends_on(settings) == RerankBatchSize.depends_on(self._settings)
        batch_size = self._batch_size if keeps else None
        return RerankStage(self._reranker, settings, self._telemetry, self._executor, batch_size)

    def for_background(self) -> "RerankStage":
        """Return a stage for background queries.

        It has its own slots and records no metrics.
        """
        return RerankStage(self._reranker, self._settings, Telemetry())

    def warm_up(self) -> None:
        """Load the model.

        No query then waits for a model that fails or hangs.
        """
        self._executor.run(lambda: self._reranker.score("warm", ["up"]), deadline_ms=_WARM_UP_MS)

    def run_call(self, question: str, call: Callable[[], T]) -> T:
        """Run calls of the reranker outside of a search, within its slots and deadline.

        Args:
            question: Text for the span.
            call: Calls the reranker; it continues in its thread past the deadline, which counts from now.

        Raises ModelError where the deadline passes, earlier calls have all slots, or the call fails.
        """
        with genai.start_rerank(self._reranker.name, question, ()):
            outcome = self._executor.run(call, deadline_ms=self._settings.milliseconds_to_deadline)
            if outcome.message is not None:
                raise ModelError(outcome.message)
        return cast("T", outcome.value)

    def run(self, text: str, passages: list[Passage], timer: StageTimer) -> RerankResult:
        """Return the passages by relevance, without those below the threshold.

        Passages are scored in fused order, batch by batch, until the deadline. Those without a score follow in fused
        order.

        Args:
            text: Query without operators.
            passages: Passages in fused order.
            timer: Timer of the search; the deadline counts from its start.
        """
        if not passages:
            return RerankResult(passages=passages, warning=None, is_complete=True)
        with genai.start_rerank(self._reranker.name, text, passages) as span:
            result = self._rerank(text, passages, timer)
            if span.is_recording():
                span.set_attributes(genai.rerank_attributes(result.passages if result.is_complete else ()))
        timer.record("rerank")
        return result

    def _rerank(self, text: str, passages: list[Passage], timer: StageTimer) -> RerankResult:
        batches = _Batches(self._reranker, text, [passage.text for passage in passages], self._batch_size)
        deadline_ms = self._settings.milliseconds_to_deadline
        outcome = self._executor.run(batches.score_all, deadline_ms=deadline_ms, spent_ms=timer.timings_ms()["total"])
        scores = batches.stop()
        usage.record(usage.Quantity.RERANKED_PASSAGES, len(scores), self._reranker.name)
        late = outcome.error_kind == LATE and bool(scores)
        if not late and outcome.message:
            return self._keep_order(passages, outcome.message, outcome.error_kind or MODEL)
        if fault := batches.fault:
            return self._keep_order(passages, fault, MODEL)
        first, rest = passages[: len(scores)], passages[len(scores) :]
        scored = [
            replace(passage, score=blended, rerank_score=score)
            for passage, score, blended in zip(first, scores, _blend(first, scores, self._settings.weight), strict=True)
        ]
        # Sorting is stable: equal scores keep their fused order. Passages with the quoted phrases stay first.
        ranking = sorted(scored, key=lambda passage: (PHRASE not in passage.score_contributions, -passage.score))
        relevant = [passage for passage in ranking if (passage.rerank_score or 0.0) >= self._settings.threshold]
        dropped = len(ranking) - len(relevant)
        warnings = []
        if dropped:
            warnings.append(f"{dropped} of {len(ranking)} reranked below the threshold {self._settings.threshold}")
        if late:
            self._telemetry.record(RETRIEVAL_FALLBACKS, 1, "rerank", LATE)
            warnings.append(f"{len(scored)} of {len(passages)} reranked before the deadline of {deadline_ms} ms")
        return RerankResult(passages=[*relevant, *rest], warning="; ".join(warnings) or None, is_complete=not late)

    def _keep_order(self, passages: list[Passage], fault: str, error_kind: str) -> RerankResult:
        """Return the passages in fused order, and record why."""
        self._telemetry.record(RETRIEVAL_FALLBACKS, 1, "rerank", error_kind)
        return RerankResult(passages=passages, warning=f"not reranked, in fused order: {fault}", is_complete=False)


def _blend(passages: Sequence[Passage], scores: Sequence[float], weight: float) -> list[float]:
    """Return the weighted means of relevance and fused score.

    Fused scores are scaled: the best of these passages has 1, and one without evidence has 0.
    """
    best = max((passage.fused_score for passage in passages), default=0.0) or 1.0
    return [
        weight * score + (1 - weight) * passage.fused_score / best
        for passage, score in zip(passages, scores, strict=True)
    ]


class _Batches:
    """Scores the passages of one query in batches.

    Another thread may stop it.
    """

    def __init__(self, reranker: Reranker, question: str, texts: Sequence[str], size: RerankBatchSize) -> None:
        self._reranker = reranker
        self._question = question
        self._texts = texts
        self._size = size
        self._scores: list[float] = []
        self._stopped = threading.Event()
        self.fault: str | None = None
        """What was wrong with the scores of a batch; no batch follows it."""

    def score_all(self) -> None:
        """Score the batches in order until all are scored.

        `stop` ends it after the running batch.
        """
        while len(self._scores) < len(self._texts) and not self._stopped.is_set():
            batch = self._texts[len(self._scores) :][: self._size.passages]
            began = time.monotonic()
            scores = self._reranker.score(self._question, batch)
            self._size.learn(len(batch), (time.monotonic() - began) * 1000)
            if fault := _fault(scores, len(batch)):
                self.fault = fault
                return
            self._scores += scores

    def stop(self) -> list[float]:
        """Begin no further batch, and return the scores so far.

        They are in the order of the passages.
        """
        self._stopped.set()
        return list(self._scores)


def _fault(scores: object, passages: int) -> str | None:
    """Return what is wrong with the scores, or None.

    A reranker of the caller may return anything.
    """
    if not isinstance(scores, Sequence):
        return "the model gave no list of scores"
    if len(scores) != passages:
        return f"the model scored {len(scores)} of {passages} passages"
    # Written so that NaN, which compares with nothing, is a fault.
    if not all(isinstance(score, Real) and 0 <= float(score) <= 1 for score in scores):
        return "the model gave scores that are not between 0 and 1"
    return None
