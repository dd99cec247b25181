"""Compare the two arms of an experiment, with tests of significance."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.types import Arm, ExperimentMode
from kosmos_rag.evaluation.experiments.records import ArmDifference, ArmReport, ExperimentInfo, ExperimentReport
from kosmos_rag.evaluation.experiments.store import Rated
from kosmos_rag.evaluation.offline.significance import holm

ENOUGH = 30
"""Questions of a configuration below which nothing is said of it."""
ENOUGH_RATINGS = 10
"""Ratings of a configuration below which nothing is said of them: no split of fewer than that would be significant."""
_SAME = 1 - 1e-9


def build_report(experiment: ExperimentInfo, results: Sequence[Rated]) -> ExperimentReport:
    """Return how the configurations compare, by these results."""
    compared = [result for result in results if result.rbo is not None]
    # A query that the control answered for a failed treatment counts for neither arm.
    attributable = [result for result in results if experiment.mode is ExperimentMode.SHADOW or result.error is None]
    first, second = (_arm(arm, attributable) for arm in Arm)
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
        differences=_correct_p_values(
            [
                _latency(experiment.mode, attributable),
                _thumbs(experiment, first, second),
                _clicks(experiment, first, second),
            ]
        ),
        shortage=_shortage(experiment.mode, len(compared), first, second),
    )


def _arm(arm: Arm, results: Sequence[Rated]) -> ArmReport:
    first = arm is Arm.CONTROL
    requested_and_hits = [
        (result.requested, hits)
        for result in results
        if (hits := result.control_hits if first else result.treatment_hits) is not None
    ]
    took = _milliseconds(arm, results)
    served = [result for result in results if result.arm == arm]
    p50, p95 = np.percentile(took, [50, 95]) if took else (None, None)
    return ArmReport(
        arm=arm,
        questions=len(requested_and_hits),
        p50_ms=None if p50 is None else round(float(p50), 3),
        p95_ms=None if p95 is None else round(float(p95), 3),
        short=sum(hits < requested for requested, hits in requested_and_hits),
        served=len(served),
        up=sum(result.up for result in served),
        down=sum(result.down for result in served),
        clicked=sum(result.clicks > 0 for result in served),
    )


def _milliseconds(arm: Arm, results: Sequence[Rated]) -> list[float]:
    measurements = (result.control_ms if arm is Arm.CONTROL else result.treatment_ms for result in results)
    return [milliseconds for milliseconds in measurements if milliseconds is not None]


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
    difference = ArmDifference(
        of="latency",
        first=round(statistics.median(first), 3),
        second=round(statistics.median(second), 3),
        p=None,
        reason=f"too few questions: {min(len(first), len(second))} of {ENOUGH}",
    )
    if min(len(first), len(second)) < ENOUGH:
        return difference
    require_extra("eval", "a test of significance", "scipy")
    from scipy.stats import mannwhitneyu, wilcoxon

    if not paired:
        return replace(difference, p=float(mannwhitneyu(first, second).pvalue), reason="Mann-Whitney U")
    if first == second:
        return replace(difference, p=1.0, reason="all equal")
    return replace(difference, p=float(wilcoxon(first, second).pvalue), reason="Wilcoxon signed-rank")


def _thumbs(experiment: ExperimentInfo, first: ArmReport, second: ArmReport) -> ArmDifference | None:
    """Compare the shares of up ratings, if both arms were served."""
    if experiment.mode is ExperimentMode.SHADOW:
        return None
    counts = ((first.up, first.down), (second.up, second.down))
    return _compare_proportions("thumbs", counts, enough=ENOUGH_RATINGS, unit="ratings")


def _clicks(experiment: ExperimentInfo, first: ArmReport, second: ArmReport) -> ArmDifference | None:
    """Compare the shares of questions of which a passage was opened.

    The result is None without reported clicks.
    """
    if experiment.mode is ExperimentMode.SHADOW or not first.clicked + second.clicked:
        return None
    counts = tuple((arm.clicked, arm.served - arm.clicked) for arm in (first, second))
    return _compare_proportions("clicks", counts, enough=ENOUGH, unit="questions")


def _compare_proportions(of: str, counts: Sequence[tuple[int, int]], *, enough: int, unit: str) -> ArmDifference | None:
    totals = [sum(pair) for pair in counts]
    if not any(totals):
        return None
    first, second = (round(pair[0] / total, 4) if total else 0.0 for pair, total in zip(counts, totals, strict=True))
    reason = f"too few {unit}: {min(totals)} of {enough}"
    difference = ArmDifference(of=of, first=first, second=second, p=None, reason=reason)
    if min(totals) < enough:
        return difference
    require_extra("eval", "a test of significance", "scipy")
    from scipy.stats import fisher_exact

    return replace(difference, p=float(fisher_exact(counts).pvalue), reason="Fisher's exact")


def _correct_p_values(differences: Sequence[ArmDifference | None]) -> tuple[ArmDifference, ...]:
    """Return the differences with p-values corrected by Holm."""
    present = [difference for difference in differences if difference is not None]
    corrected = iter(holm([difference.p for difference in present if difference.p is not None]))
    return tuple(
        difference if difference.p is None else replace(difference, p=next(corrected)) for difference in present
    )
