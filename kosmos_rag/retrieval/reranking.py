"""The rerank stage: hits in the order that a cross-encoder sees, within the time that the question has left."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real

from kosmos_rag.config import RerankingSettings
from kosmos_rag.metrics import RETRIEVAL_FALLBACKS
from kosmos_rag.observation import Observation
from kosmos_rag.ports import Reranker
from kosmos_rag.ranking.deadline import MODEL, Deadline
from kosmos_rag.records import Passage
from kosmos_rag.retrieval.quoted import PHRASE
from kosmos_rag.retrieval.watch import Watch

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
        self, reranker: Reranker, settings: RerankingSettings, observation: Observation, line: Deadline | None = None
    ) -> None:
        self._reranker = reranker
        self._observation = observation
        self._settings = settings
        self._deadline = Deadline(concurrency=settings.concurrency) if line is None else line

    def under(self, settings: RerankingSettings) -> "Reranking":
        """Return one with another threshold and deadline, in line for the same model."""
        return Reranking(self._reranker, settings, self._observation, self._deadline)

    def beside(self) -> "Reranking":
        """Return the same in a line of its own: calls of it that hang hold up no others, and are not told of."""
        return Reranking(self._reranker, self._settings, Observation())

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
            self._observation.record(RETRIEVAL_FALLBACKS, 1, "rerank", outcome.why or MODEL)
            return Reranked(passages=passages, note=f"not reranked, in fused order: {fault}", done=False)
        scored = [
            replace(passage, score=score, rerank_score=score) for passage, score in zip(passages, scores, strict=True)
        ]
        # Sorting is stable: equal scores keep their fused order. What holds the phrases stays before the rest.
        ordered = sorted(scored, key=lambda passage: (PHRASE not in passage.shares, -passage.score))
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
