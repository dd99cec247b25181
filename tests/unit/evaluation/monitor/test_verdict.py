"""Verdicts on what was measured, and the distance between two samples of scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.evaluation.monitor.recall import LiveRecall
from kosmos_rag.evaluation.monitor.records import MonitorState
from kosmos_rag.evaluation.monitor.verdict import (
    MIN_SAMPLES,
    insufficient_samples,
    judge_answers,
    judge_isolation,
    judge_recall,
    ks_critical_distance,
    ks_distance,
)
from kosmos_rag.indexing.recall import summarise_recall

ALERTS = {"R@10": 0.7, "RR@10": 0.5}


def make_recall(
    recalls: Sequence[float], *, scores: Sequence[float] = (), short: int = 0, timed_out: int = 0
) -> LiveRecall:
    """What is known after samples have found so much of their ten nearest."""
    truth: list[list[Any]] = [list(range(10)) for _ in recalls]
    lists: list[list[Any]] = [list(range(round(10 * recall))) for recall in recalls]
    return LiveRecall(
        recall=summarise_recall(0, lists, truth, 1.5) if lists else None,
        samples=len(recalls),
        timed_out=timed_out,
        incomplete=short,
        scores=tuple(sorted(scores)),
        milliseconds=10.0,
    )


def test_recall__far_below_the_target_is_an_alarm() -> None:
    verdict = judge_recall(make_recall([0.6] * 40, short=10), [], 0.95)
    assert verdict.state is MonitorState.ALARM
    assert verdict.reason == "recall@10 is 0.600 ± 0.000, the target is 0.95"
    assert verdict.figures["ann_recall_at_10"] == 0.6
    assert verdict.figures["incomplete_share"] == 0.25
    assert "drift" not in verdict.figures


def test_recall__at_the_target_is_none() -> None:
    assert judge_recall(make_recall([1.0, 0.9] * 20), [], 0.95).state is MonitorState.OK


def test_recall__below_the_target_by_chance_is_none() -> None:
    noisy = [1.0] * 27 + [0.5] * 3 + [0.8] * 5  # .93, and a standard error of .025
    assert judge_recall(make_recall(noisy), [], 0.95).state is MonitorState.OK
    assert judge_recall(make_recall(noisy * 8), [], 0.95).state is MonitorState.ALARM


@pytest.mark.parametrize("count", [0, 1, MIN_SAMPLES - 1])
def test_recall__of_too_few_samples_is_unknown_however_bad(count: int) -> None:
    verdict = judge_recall(make_recall([0.0] * count, timed_out=3), [], 0.95)
    assert verdict.state is MonitorState.UNKNOWN
    assert verdict.reason == f"{count} samples, {MIN_SAMPLES} are needed; 3 took too long"
    assert insufficient_samples(count).state is MonitorState.UNKNOWN


def test_drift__is_told_beside_recall_and_raises_no_alarm() -> None:
    before = np.random.default_rng(1).normal(0.8, 0.05, 50).tolist()
    same = np.random.default_rng(2).normal(0.8, 0.05, 50).tolist()
    other = np.random.default_rng(3).normal(0.6, 0.05, 50).tolist()
    still = judge_recall(make_recall([1.0] * 50, scores=same), before, 0.95)
    moved = judge_recall(make_recall([1.0] * 50, scores=other), before, 0.95)
    assert still.figures["drift"] < still.figures["drift_limit"] < moved.figures["drift"]
    assert moved.state is MonitorState.OK
    assert moved.reason.endswith("the best scores have drifted since the last build or tuning")
    assert "drift" not in judge_recall(make_recall([1.0] * 50, scores=other), before[:20], 0.95).figures


@given(
    st.lists(st.floats(-1, 1, width=16), min_size=1, max_size=40),
    st.lists(st.floats(-1, 1, width=16), min_size=1, max_size=40),
)
def test_distance__is_the_largest_difference_of_shares(first: list[float], second: list[float]) -> None:
    def share_below(sample: list[float], value: float) -> float:
        return sum(item <= value for item in sample) / len(sample)

    differences = [abs(share_below(first, value) - share_below(second, value)) for value in first + second]
    assert ks_distance(first, second) == pytest.approx(max(differences), abs=1e-12)
    assert ks_distance(first, second) == ks_distance(second, first)


def test_limit__is_passed_by_one_in_a_thousand() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(7)
    passed = [
        ks_distance(*generator.normal(size=(2, 50)).tolist()) > ks_critical_distance(50, 50) for _ in range(2_000)
    ]
    assert sum(passed) <= 10
    assert ks_critical_distance(50, 50) == pytest.approx(stats.kstwobign.isf(0.001) * (2 / 50) ** 0.5, abs=1e-3)


def test_limit__of_one_among_many_is_passed_by_none_of_them() -> None:
    generator = np.random.default_rng(7)
    passed = [
        ks_distance(*generator.normal(size=(2, 50)).tolist()) > ks_critical_distance(50, 50, comparisons=2_000)
        for _ in range(2_000)
    ]
    assert not any(passed)
    samples = generator.normal(0.8, 0.05, 50), generator.normal(0.83, 0.05, 50)
    item, among_many = (
        judge_recall(make_recall([1.0] * 50, scores=samples[1].tolist()), samples[0].tolist(), 0.95, indexes=indexes)
        for indexes in (1, 10_000)
    )
    assert item.figures["drift"] == among_many.figures["drift"]
    assert item.figures["drift_limit"] < among_many.figures["drift_limit"]


@pytest.mark.parametrize(
    ("recall", "mrr", "questions", "state"),
    [
        (0.9, 0.8, 20, MonitorState.OK),
        (0.6, 0.8, 20, MonitorState.ALARM),
        (0.9, 0.4, 20, MonitorState.ALARM),
        (0.0, 0.0, 9, MonitorState.UNKNOWN),
    ],
)
def test_answers__are_judged_by_the_alerts(recall: float, mrr: float, questions: int, state: MonitorState) -> None:
    assert judge_answers({"R@10": recall, "RR@10": mrr}, questions, ALERTS).state is state


def test_permission__a_leak_weighs_more_than_what_was_missed() -> None:
    assert judge_isolation([], []).state is MonitorState.OK
    assert judge_isolation([], ["a did not find its own"]).state is MonitorState.UNKNOWN
    leaked = judge_isolation(["a found that of b"], ["a did not find its own"])
    assert (leaked.state, leaked.reason, leaked.figures["leaks"]) == (MonitorState.ALARM, "a found that of b", 1)
