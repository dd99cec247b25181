"""The clock of one retrieval: which stages ran, and how long each took."""

import time
from datetime import datetime

from kosmos_rag.core.telemetry import tracing


class Watch:
    """Measures stages as they pass, each a span of the trace. Not shared between threads."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """End a stage that began where the one before it ended; one that runs again adds up."""
        now = time.perf_counter()
        self._add(stage, (now - self._last) * 1000)
        self._last = now

    def _add(self, stage: str, took_ms: float) -> None:
        tracing.record_span(f"kosmos.{stage}", took_ms / 1000)
        self._laps[stage] = self._laps.get(stage, 0.0) + took_ms

    def server_lap(self, stage: str, begin: datetime, end: datetime) -> None:
        """End a stage that ran on the server within a round trip, by two readings of its clock.

        The rest of the round trip belongs to the stage that ends next.
        """
        # A server's clock may be set while it is read.
        took_s = max(0.0, (end - begin).total_seconds())
        self._add(stage, took_s * 1000)
        self._last += took_s

    def elapsed_ms(self) -> float:
        """Return the time since the question came."""
        return (time.perf_counter() - self._started) * 1000

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that ran, in order."""
        return tuple(self._laps)

    def timings_ms(self) -> dict[str, float]:
        """Return milliseconds of each stage and `total`."""
        return {stage: round(took, 3) for stage, took in {**self._laps, "total": self.elapsed_ms()}.items()}
