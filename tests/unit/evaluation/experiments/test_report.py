"""What is said of the two configurations: only where there is enough, and only where it is more than chance."""

import random
from dataclasses import replace

import pytest

from kosmos_rag.core.types import ExperimentMode
from kosmos_rag.evaluation.experiments.records import ArmDifference, ExperimentReport
from kosmos_rag.evaluation.experiments.report import build_report
from kosmos_rag.evaluation.experiments.store import Rated
from tests.unit.evaluation.experiments.compared import PAIR, SHADOW

SERVE = replace(SHADOW, mode=ExperimentMode.SERVE)
FIRST = PAIR._replace(treatment_ms=None, treatment_hits=None, overlap=None, rbo=None)
SECOND = FIRST._replace(arm="treatment", control_ms=None, control_hits=None, treatment_ms=10.0, treatment_hits=10)


def _difference(of: str, result: ExperimentReport) -> ArmDifference:
    return next(difference for difference in result.differences if difference.of == of)


def _pairs(count: int, *, slower_by: float) -> list[Rated]:
    dice = random.Random(3)
    times = [dice.lognormvariate(3, 0.5) for _ in range(count)]
    return [PAIR._replace(control_ms=took, treatment_ms=took * dice.uniform(0.9, 1.1) + slower_by) for took in times]


def test_nothing__is_told_of_nothing() -> None:
    result = build_report(SHADOW, [])
    assert (result.results, result.overlap, result.rbo, result.differences) == (0, None, None, ())
    assert [arm.p50_ms for arm in result.arms] == [None, None]
    assert result.shortage == "0 questions compared, and 30 are needed"


def test_counts__are_of_what_ran() -> None:
    failed = PAIR._replace(treatment_ms=None, treatment_hits=None, overlap=None, rbo=None, error="ModelError")
    same = PAIR._replace(overlap=1.0, rbo=1.0, degraded=True)
    result = build_report(SHADOW, [PAIR, same, failed])
    assert (result.results, result.compared, result.failed, result.degraded, result.identical) == (3, 2, 1, 1, 1)
    assert (result.overlap, result.rbo) == (0.75, 0.7)
    first, second = result.arms
    assert (first.questions, first.short, first.served) == (3, 0, 3)
    assert (second.questions, second.short, second.served) == (2, 2, 0)


def test_latency__of_pairs_is_told_apart_where_it_differs() -> None:
    slower, alike = build_report(SHADOW, _pairs(60, slower_by=2.0)), build_report(SHADOW, _pairs(60, slower_by=0.0))
    assert slower.shortage is None
    assert _difference("latency", slower).significant
    assert _difference("latency", slower).reason == "Wilcoxon signed-rank"
    assert not _difference("latency", alike).significant
    assert _difference("latency", build_report(SHADOW, [PAIR] * 40)).p == 1.0
    few = _difference("latency", build_report(SHADOW, _pairs(29, slower_by=2.0)))
    assert (few.p, few.significant) == (None, False)
    assert few.reason == "too few questions: 29 of 30"


def test_latency__of_two_samples() -> None:
    dice = random.Random(5)
    first = [FIRST._replace(control_ms=dice.lognormvariate(3, 0.3)) for _ in range(80)]
    second = [SECOND._replace(treatment_ms=dice.lognormvariate(3.4, 0.3)) for _ in range(80)]
    result = _difference("latency", build_report(SERVE, first + second))
    assert (result.significant, result.reason) == (True, "Mann-Whitney U")
    assert result.second > result.first
    assert build_report(SERVE, first + second[:29]).shortage == "29 questions of one configuration, and 30 are needed"


@pytest.mark.parametrize(("likes", "significant"), [((20, 2), True), ((11, 10), False)])
def test_thumbs__are_shares_of_ratings(likes: tuple[int, int], significant: bool) -> None:
    results = [
        served._replace(up=number < count, down=number >= count)
        for served, count in ((FIRST, likes[0]), (SECOND, likes[1]))
        for number in range(22)
    ]
    result = _difference("thumbs", build_report(SERVE, results))
    assert (result.first, result.second) == (round(likes[0] / 22, 4), round(likes[1] / 22, 4))
    assert result.significant is significant
    assert _difference("thumbs", build_report(SERVE, results[:22] + results[22:31])).p is None


def test_clicks__are_shares_of_questions_and_nothing_where_nobody_tells_of_them() -> None:
    clicked = [FIRST._replace(clicks=3)] * 5 + [FIRST] * 35 + [SECOND._replace(clicks=1)] * 30 + [SECOND] * 10
    result = _difference("clicks", build_report(SERVE, clicked))
    assert (result.first, result.second, result.significant) == (0.125, 0.75, True)
    assert {difference.of for difference in build_report(SERVE, [FIRST] * 40 + [SECOND] * 40).differences} == {
        "latency"
    }


def test_p_values__are_corrected_for_that_there_are_several() -> None:
    results = [FIRST._replace(up=number < 13, down=number >= 13) for number in range(40)]
    results += [SECOND._replace(up=number < 22, down=number >= 22) for number in range(40)]
    without_latency = [result._replace(control_ms=None, treatment_ms=None) for result in results]
    alone = _difference("thumbs", build_report(SERVE, without_latency))
    with_latency = _difference("thumbs", build_report(SERVE, results))
    assert alone.p is not None
    assert with_latency.p == pytest.approx(2 * alone.p)
