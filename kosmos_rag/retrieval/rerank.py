"""The rerank stage: hits in the order that a cross-encoder sees, within the time that the question has left."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Generic, TypeVar

from kosmos_rag.core.config import RerankingSettings
from kosmos_rag.core.errors import first_line
from kosmos_rag.core.protocols import Reranker
from kosmos_rag.core.telemetry.metrics import RETRIEVAL_FALLBACKS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.phrases import PHRASE
from kosmos_rag.retrieval.timer import Watch

T = TypeVar("T")
LATE, BUSY, MODEL = "deadline", "busy", "model"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome(Generic[T]):
    """A value, or why there is none."""

    value: T | None
    reason: str | None
    why: str | None = None
    """The kind of the reason: `deadline` passed, `busy` with calls that hang, or the `model` failed."""


class Deadline:
    """Runs calls in threads of their own, a bounded number at a time, and waits for each only so long.

    A call that is given up on runs on in its thread, for Python cannot stop it, and holds its place until it ends.
    While all places are held by such calls, others are refused at once: so a model that hangs costs its deadline as
    often as there are places, and nothing after that.
    """

    def __init__(self, *, concurrency: int) -> None:
        self._concurrency = concurrency
        self._places = threading.BoundedSemaphore(concurrency)
        self._lock = threading.Lock()
        self._late: set[Future[Any]] = set()

    def run(self, call: Callable[[], T], *, deadline_ms: float, spent_ms: float = 0.0) -> Outcome[T]:
        """Return the call's value, or the reason that it has none: out of time, or its error.

        `spent_ms` of the deadline have passed before.
        """
        until = time.monotonic() + (deadline_ms - spent_ms) / 1000
        if spent_ms >= deadline_ms:
            return _none(f"the deadline of {deadline_ms} ms passed before", LATE)
        if len(self._late) >= self._concurrency:
            return _none(f"{self._concurrency} earlier calls are past their deadline and have not ended", BUSY)
        if not self._places.acquire(timeout=max(0.0, until - time.monotonic())):
            return _none(f"the deadline of {deadline_ms} ms passed while earlier calls ran", BUSY)
        future: Future[Outcome[T]] = Future()
        try:
            # A daemon, so that a hanging model does not keep the process from ending.
            threading.Thread(target=self._work, args=(call, future), name="kosmos-rag-deadline", daemon=True).start()
        except RuntimeError as error:
            self._places.release()
            return _none(first_line(error), BUSY)
        wait([future], timeout=max(0.0, until - time.monotonic()))
        with self._lock:
            if not future.done():
                self._late.add(future)
                return _none(f"the deadline of {deadline_ms} ms passed", LATE)
        return future.result()

    def _work(self, call: Callable[[], T], future: Future[Outcome[T]]) -> None:
        outcome: Outcome[T]
        try:
            outcome = Outcome(value=call(), reason=None)
        except BaseException as error:  # noqa: BLE001 — handed to the waiting thread
            outcome = _none(first_line(error), MODEL)
        with self._lock:
            future.set_result(outcome)
            self._late.discard(future)
        self._places.release()


def _none(reason: str, why: str) -> Outcome[T]:
    return Outcome(value=None, reason=reason, why=why)


_WARM_UP_MS = 120_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Reranked:
    """Passages in their last order."""

    passages: list[Passage]
    note: str | None
    """What the caller should know."""
    done: bool
    """Whether the stage ran; else the order is the fused one."""


class Reranking:
    """Reorders passages, or leaves them as they are and says why. Thread-safe."""

    def __init__(
        self, reranker: Reranker, settings: RerankingSettings, telemetry: Telemetry, line: Deadline | None = None
    ) -> None:
        self._reranker = reranker
        self._telemetry = telemetry
        self._settings = settings
        self._deadline = Deadline(concurrency=settings.concurrency) if line is None else line

    def under(self, settings: RerankingSettings) -> "Reranking":
        """Return one with another threshold and deadline, in line for the same model."""
        return Reranking(self._reranker, settings, self._telemetry, self._deadline)

    def beside(self) -> "Reranking":
        """Return the same in a line of its own: calls of it that hang hold up no others, and are not told of."""
        return Reranking(self._reranker, self._settings, Telemetry())

    def warm_up(self) -> None:
        """Load the model. One that cannot be loaded, or hangs, is found out now, and no question waits for it."""
        self._deadline.run(lambda: self._reranker.score("warm", ["up"]), deadline_ms=_WARM_UP_MS)

    def run(self, question: str, passages: list[Passage], watch: Watch) -> Reranked:
        """Return the passages by relevance, without those below the threshold."""
        if not passages:
            return Reranked(passages=passages, note=None, done=True)
        texts = [passage.text for passage in passages]
        outcome = self._deadline.run(
            lambda: self._reranker.score(question, texts),
            deadline_ms=self._settings.deadline_ms,
            spent_ms=watch.elapsed_ms(),
        )
        watch.lap("rerank")
        scores, fault = outcome.value, outcome.reason or _fault(outcome.value, len(passages))
        if scores is None or fault:
            self._telemetry.record(RETRIEVAL_FALLBACKS, 1, "rerank", outcome.why or MODEL)
            return Reranked(passages=passages, note=f"not reranked, in fused order: {fault}", done=False)
        scored = [
            replace(passage, score=score, rerank_score=score) for passage, score in zip(passages, scores, strict=True)
        ]
        # Sorting is stable: equal scores keep their fused order. What holds the phrases stays before the rest.
        ordered = sorted(scored, key=lambda passage: (PHRASE not in passage.score_contributions, -passage.score))
        kept = [passage for passage in ordered if passage.score >= self._settings.threshold]
        dropped = len(ordered) - len(kept)
        note = f"{dropped} of {len(ordered)} reranked below the threshold {self._settings.threshold}"
        return Reranked(passages=kept, note=note if dropped else None, done=True)


def _fault(scores: object, passages: int) -> str | None:
    """Return what is wrong with a reranker's answer: ours checks its own, another one may not."""
    if not isinstance(scores, Sequence):
        return "the model gave no list of scores"
    if len(scores) != passages:
        return f"the model scored {len(scores)} of {passages} passages"
    # Written so that NaN, which compares with nothing, is a fault.
    if not all(isinstance(score, Real) and 0 <= float(score) <= 1 for score in scores):
        return "the model gave scores that are not between 0 and 1"
    return None
