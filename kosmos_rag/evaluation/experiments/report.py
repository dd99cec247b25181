"""The two configurations of an experiment, held against each other, with tests of whether they differ."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kosmos_rag.core.types import Arm, ArmDifference, ArmReport, ExperimentInfo, ExperimentMode, ExperimentReport
from kosmos_rag.evaluation.experiments.store import Rated
from kosmos_rag.evaluation.significance import holm

ENOUGH = 30
"""Questions of a configuration below which nothing is said of it."""
ENOUGH_RATINGS = 10
"""Ratings of a configuration below which nothing is said of them: no split of fewer than that would be significant."""
_SAME = 1 - 1e-9


def report(experiment: ExperimentInfo, results: Sequence[Rated]) -> ExperimentReport:
    """Return how the configurations compare, by these results."""
    compared = [result for result in results if result.rbo is not None]
    # What was the second one's to answer, and was answered by the first, speaks for neither of them.
    own = [result for result in results if experiment.mode is ExperimentMode.SHADOW or result.error is None]
    first, second = (_arm(arm, own) for arm in Arm)
    faults = Counter(result.error for result in results if result.error is not None)
    return ExperimentReport(
        experiment=experiment,
        results=len(results),
        compared=len(compared),
        overlap=_mean([result.overlap for result in compared]),
        rbo=_mean([result.rbo for result in compared]),
        identical=sum((result.rbo or 0.0) > _SAME for result in compared),
        failed=faults.total(),
        faults=dict(faults.most_common()),
        degraded=sum(result.degraded for result in results),
        arms=(first, second),
        differences=_corrected(
            [_latency(experiment.mode, own), _thumbs(experiment, first, second), _clicks(experiment, first, second)]
        ),
        shortage=_shortage(experiment.mode, len(compared), first, second),
    )


def _arm(arm: Arm, results: Sequence[Rated]) -> ArmReport:
    first = arm is Arm.CONTROL
    asked = [
        (result.requested, hits)
        for result in results
        if (hits := result.control_hits if first else result.treatment_hits) is not None
    ]
    took = _milliseconds(arm, results)
    served = [result for result in results if result.arm == arm]
    p50, p95 = np.percentile(took, [50, 95]) if took else (None, None)
    return ArmReport(
        arm=arm,
        questions=len(asked),
        p50_ms=None if p50 is None else round(float(p50), 3),
        p95_ms=None if p95 is None else round(float(p95), 3),
        short=sum(hits < requested for requested, hits in asked),
        served=len(served),
        up=sum(result.up for result in served),
        down=sum(result.down for result in served),
        clicked=sum(result.clicks > 0 for result in served),
    )


def _milliseconds(arm: Arm, results: Sequence[Rated]) -> list[float]:
    given = (result.control_ms if arm is Arm.CONTROL else result.treatment_ms for result in results)
    return [milliseconds for milliseconds in given if milliseconds is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    return statistics.fmean(value or 0.0 for value in values) if values else None


def _shortage(mode: ExperimentMode, compared: int, first: ArmReport, second: ArmReport) -> str | None:
    if mode is ExperimentMode.SHADOW:
        return f"{compared} questions compared, and {ENOUGH} are needed" if compared < ENOUGH else None
    fewer = min(first.questions, second.questions)
    return f"{fewer} questions of one configuration, and {ENOUGH} are needed" if fewer < ENOUGH else None


def _latency(mode: ExperimentMode, results: Sequence[Rated]) -> ArmDifference | None:
    """Compare latencies, paired for the same questions, else as two samples."""
    pairs = [
        (result.control_ms, result.treatment_ms)
        for result in results
        if result.control_ms is not None and result.treatment_ms is not None
    ]
    paired = mode is ExperimentMode.SHADOW
    first = [pair[0] for pair in pairs] if paired else _milliseconds(Arm.CONTROL, results)
    second = [pair[1] for pair in pairs] if paired else _milliseconds(Arm.TREATMENT, results)
    if not first or not second:
        return None
    from scipy.stats import mannwhitneyu, wilcoxon

    told = ArmDifference(
        of="latency",
        first=round(statistics.median(first), 3),
        second=round(statistics.median(second), 3),
        p=None,
        reason=f"too little to tell: {min(len(first), len(second))} questions, {ENOUGH} are needed",
    )
    if min(len(first), len(second)) < ENOUGH:
        return told
    if not paired:
        return replace(told, p=float(mannwhitneyu(first, second).pvalue), reason="Mann-Whitney U")
    if first == second:
        return replace(told, p=1.0, reason="all equal")
    return replace(told, p=float(wilcoxon(first, second).pvalue), reason="Wilcoxon signed-rank")


def _thumbs(experiment: ExperimentInfo, first: ArmReport, second: ArmReport) -> ArmDifference | None:
    """Compare the shares of up ratings, if both arms were served."""
    if experiment.mode is ExperimentMode.SHADOW:
        return None
    counts = ((first.up, first.down), (second.up, second.down))
    return _shares("thumbs", counts, enough=ENOUGH_RATINGS, what="ratings")


def _clicks(experiment: ExperimentInfo, first: ArmReport, second: ArmReport) -> ArmDifference | None:
    """Compare the shares of questions of which a passage was opened.

    None where nobody tells of clicks.
    """
    if experiment.mode is ExperimentMode.SHADOW or not first.clicked + second.clicked:
        return None
    counts = tuple((arm.clicked, arm.served - arm.clicked) for arm in (first, second))
    return _shares("clicks", counts, enough=ENOUGH, what="questions")


def _shares(of: str, counts: Sequence[tuple[int, int]], *, enough: int, what: str) -> ArmDifference | None:
    totals = [sum(pair) for pair in counts]
    if not any(totals):
        return None
    first, second = (round(pair[0] / total, 4) if total else 0.0 for pair, total in zip(counts, totals, strict=True))
    reason = f"too little to tell: {min(totals)} {what}, {enough} are needed"
    told = ArmDifference(of=of, first=first, second=second, p=None, reason=reason)
    if min(totals) < enough:
        return told
    from scipy.stats import fisher_exact

    return replace(told, p=float(fisher_exact(counts).pvalue), reason="Fisher's exact")


def _corrected(found: Sequence[ArmDifference | None]) -> tuple[ArmDifference, ...]:
    """Return the differences with p-values corrected by Holm."""
    there = [one for one in found if one is not None]
    corrected = iter(holm([one.p for one in there if one.p is not None]))
    return tuple(one if one.p is None else replace(one, p=next(corrected)) for one in there)
