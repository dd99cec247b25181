"""The clock of one retrieval: which stages ran, and how long each took."""

import time
from collections.abc import Sequence
from datetime import datetime


class Watch:
    """Measures stages as they pass. Not shared between threads."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """End a stage that began where the one before it ended; one that runs again adds up."""
        now = time.perf_counter()
        self._add(stage, (now - self._last) * 1000)
        self._last = now

    def _add(self, stage: str, took_ms: float) -> None:
        self._laps[stage] = self._laps.get(stage, 0.0) + took_ms

    def server_laps(self, stages: Sequence[str], clocks: Sequence[datetime]) -> None:
        """End stages that ran on the server in one round trip, between its own clock readings."""
        for stage, begin, end in zip(stages, clocks, clocks[1:], strict=False):
            took_ms = (end - begin).total_seconds() * 1000
            self._add(stage, took_ms)
            self._add("database", -took_ms)
        self.lap("database")

    def elapsed_ms(self) -> float:
        """Return the time since the question came."""
        return (time.perf_counter() - self._started) * 1000

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that ran, in order."""
        return tuple(stage for stage in self._laps if stage != "database")

    def timings_ms(self) -> dict[str, float]:
        """Return milliseconds of each stage and `total`; `database` is what the round trip took beyond the legs."""
        return {stage: round(took, 3) for stage, took in {**self._laps, "total": self.elapsed_ms()}.items()}
