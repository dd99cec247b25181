"""Durations of the stages of one search."""

import time
from datetime import datetime

from kosmos_rag.core.telemetry import tracing


class StageTimer:
    """Measures consecutive stages and records each as a span. Not shared between threads."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self._durations: dict[str, float] = {}

    def record(self, stage: str) -> None:
        """End a stage that started where the previous one ended.

        A stage that runs again adds to its duration.
        """
        now = time.perf_counter()
        self._add(stage, (now - self._last) * 1000)
        self._last = now

    def _add(self, stage: str, duration_ms: float) -> None:
        tracing.record_span(f"kosmos.{stage}", duration_ms / 1000)
        self._durations[stage] = self._durations.get(stage, 0.0) + duration_ms

    def record_server_time(self, stage: str, begin: datetime, end: datetime) -> None:
        """Record a stage that ran on the server within a round trip.

        Args:
            stage: Name of the stage.
            begin: Clock of the server before the stage.
            end: Clock of the server after it. The rest of the round trip belongs to the next stage.
        """
        # The clock of a server may be set between the two readings.
        duration_s = max(0.0, (end - begin).total_seconds())
        self._add(stage, duration_s * 1000)
        self._last += duration_s

    def elapsed_ms(self) -> float:
        """Return the milliseconds since the search started."""
        return (time.perf_counter() - self._started) * 1000

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that ran, in order."""
        return tuple(self._durations)

    def timings_ms(self) -> dict[str, float]:
        """Return milliseconds of each stage and `total`."""
        return {
            stage: round(duration, 3) for stage, duration in {**self._durations, "total": self.elapsed_ms()}.items()
        }
