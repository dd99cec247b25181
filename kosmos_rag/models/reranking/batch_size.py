"""How many passages a reranker scores at a time, learned from the time that it takes."""

from kosmos_rag.core.config import RerankingSettings

_DEADLINE_SHARE = 0.1
"""Share of the deadline that a batch may take before no larger one is tried.

The scores of a batch that runs at the deadline are lost.
"""
_MAX_BATCH = 64


class RerankBatchSize:
    """Passages of a batch: what this device scores in a small share of the deadline. Thread-safe.

    Two cores take a few passages at a time; a GPU takes as long for twenty as for four.
    """

    def __init__(self, settings: RerankingSettings) -> None:
        self.passages = settings.passages_per_batch
        self._least = self.passages
        self._is_fixed = settings.batch_size is not None or settings.url is not None
        self._limit_ms = _DEADLINE_SHARE * settings.milliseconds_to_deadline

    @staticmethod
    def depends_on(settings: RerankingSettings) -> tuple[object, ...]:
        """Return the settings that decide the size."""
        return settings.batch_size, settings.url, settings.milliseconds_to_deadline

    def learn(self, passages: int, milliseconds: float) -> None:
        """Choose the next size by the time of a batch.

        A full one that took less than half of the limit doubles it; any that took more than the limit halves it.
        """
        if self._is_fixed:
            return
        if milliseconds > self._limit_ms:
            self.passages = max(min(passages, self.passages) // 2, self._least)
        elif milliseconds < self._limit_ms / 2 and passages >= self.passages:
            self.passages = min(2 * passages, _MAX_BATCH)
