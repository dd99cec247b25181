"""Stage durations, against a controlled clock."""

import time

import pytest

from kosmos_rag.core.telemetry.tracing import StageTimer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, as its only element: tests move it."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def start_timer() -> StageTimer:
    """Start a timer by the clock of the tests: the class took the real one when it was defined."""
    timer = StageTimer()
    timer._started = time.perf_counter()
    return timer


def test_laps__are_from_one_to_the_next_in_order(clock: list[float]) -> None:
    timer = start_timer()
    for stage, took in (("embed", 0.010), ("plan", 0.002), ("fetch", 0.003)):
        clock[0] += took
        timer.record(stage)
    clock[0] += 0.005
    assert tuple(timer.durations_ms) == ("embed", "plan", "fetch")
    assert timer.timings_ms() == pytest.approx({"embed": 10, "plan": 2, "fetch": 3, "total": 20})
    assert list(timer.timings_ms()) == ["embed", "plan", "fetch", "total"]


def test_lap__of_a_stage_that_runs_again_adds_up(clock: list[float]) -> None:
    timer = start_timer()
    for stage in ("plan", "dense", "plan", "dense"):
        clock[0] += 0.004
        timer.record(stage)
    assert tuple(timer.durations_ms) == ("plan", "dense")
    assert timer.timings_ms() == pytest.approx({"plan": 8, "dense": 8, "total": 16})


def test_lap__leaves_the_seconds_of_the_next_stage_to_it(clock: list[float]) -> None:
    timer = start_timer()
    clock[0] += 0.100
    timer.record("dense", next_s=0.070)
    clock[0] += 0.005
    timer.record("lexical")
    assert tuple(timer.durations_ms) == ("dense", "lexical")
    assert timer.timings_ms() == pytest.approx({"dense": 30, "lexical": 75, "total": 105})


def test_lap__of_two_rounds_adds_up_to_the_total(clock: list[float]) -> None:
    timer = start_timer()
    for _ in range(2):
        clock[0] += 0.050
        timer.record("dense", next_s=0.040)
        timer.record("lexical")
        clock[0] += 0.001
        timer.record("dense")
    timings = timer.timings_ms()
    assert timings == pytest.approx({"dense": 22, "lexical": 80, "total": 102})
    assert sum(took for stage, took in timings.items() if stage != "total") == pytest.approx(timings["total"])


def test_timer__without_laps_has_a_total_alone(clock: list[float]) -> None:
    timer = start_timer()
    clock[0] += 0.0015
    assert timer.durations_ms == {}
    assert timer.timings_ms() == pytest.approx({"total": 1.5})
