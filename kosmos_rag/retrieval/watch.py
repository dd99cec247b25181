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
        """End a stage that began where the one before it ended."""
        now = time.perf_counter()
        self._laps[stage] = (now - self._last) * 1000
        self._last = now

    def server_laps(self, stages: Sequence[str], clocks: Sequence[datetime]) -> None:
        """End stages that ran on the server in one round trip, between its own clock readings."""
        for stage, begin, end in zip(stages, clocks, clocks[1:], strict=False):
            self._laps[stage] = (end - begin).total_seconds() * 1000
        self.lap("database")
        self._laps["database"] -= sum(self._laps[stage] for stage in stages)

    def more(self, stage: str) -> None:
        """Add the time since the last stage to one that has ended on the server."""
        before = self._laps[stage]
        self.lap(stage)
        self._laps[stage] += before

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that ran, in order."""
        return tuple(stage for stage in self._laps if stage != "database")

    def timings_ms(self) -> dict[str, float]:
        """Return milliseconds of each stage and `total`; `database` is what the round trip took beyond the legs."""
        total = (time.perf_counter() - self._started) * 1000
        return {stage: round(took, 3) for stage, took in {**self._laps, "total": total}.items()}
