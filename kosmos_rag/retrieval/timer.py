"""Durations of the stages of one search."""

import time

from kosmos_rag.core.telemetry import tracing


class StageTimer:
    """Measures consecutive stages and records each as a span.

    Not shared between threads.
    """

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self._durations: dict[str, float] = {}

    def record(self, stage: str, duration_s: float | None = None) -> None:
        """End a stage that started where the previous one ended.

        A stage that runs again adds to its duration.

        Args:
            stage: Name of the stage.
            duration_s: Seconds of the stage, as the server measured them; the time since belongs to the next stage.
                None: the stage ends now.
        """
        if duration_s is None:
            duration_s = time.perf_counter() - self._last
        self._last += duration_s
        self._durations[stage] = self._durations.get(stage, 0.0) + duration_s * 1000
        tracing.record_span(f"kosmos.{stage}", duration_s)

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
