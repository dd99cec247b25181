"""The threshold of refusals, by stored answers."""

import uuid
from dataclasses import replace

import pytest
import yaml

from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.offline import Evaluation
from kosmos_rag.evaluation.offline.calibration import Refusals, calibrate_evaluation, render_threshold
from kosmos_rag.evaluation.offline.report import report
from tests.unit.evaluation.making import make_evaluation


def _answered(yes: list[float], no: list[float], *, threshold: float = 0.5) -> Evaluation:
    """Return an evaluation whose questions with and without an answer have these confidences."""
    outcome = make_evaluation("abstention", [0.0] * (len(yes) + len(no)))
    results = tuple(
        replace(
            result, confidence=confidence, refused=confidence < threshold, judged={"a": 1} if place < len(yes) else {}
        )
        for place, (result, confidence) in enumerate(zip(outcome.results, [*yes, *no], strict=True))
    )
    return replace(outcome, answered=True, settings={"answer": {"threshold": threshold}}, results=results)


def test_calibrate__refuses_as_much_as_the_share_allows() -> None:
    result = calibrate_evaluation(_answered([0.4] * 10 + [0.9] * 30, [0.35] * 20), wrongly_refused=0.0)
    assert result.chosen == Refusals(threshold=0.4, refused=1.0, wrongly_refused=0.0)
    assert result.configured.wrongly_refused > 0
    assert (result.answerable, result.unanswerable, result.auc) == (40, 20, 1.0)
    mixed = calibrate_evaluation(
        _answered([i / 100 for i in range(100)], [i / 100 for i in range(100)]), wrongly_refused=0.2
    )
    assert mixed.chosen.threshold == pytest.approx(0.2, abs=0.06)
    assert mixed.auc == pytest.approx(0.5)


def test_calibrate__compares_confidence_with_the_share_of_answers() -> None:
    result = calibrate_evaluation(_answered([0.95] * 15 + [1.0] * 15, [0.95] * 10 + [0.05] * 5), wrongly_refused=0.1)
    assert [(item.low, item.questions) for item in result.reliability] == [(0.0, 5), (0.9, 40)]
    assert [item.answerable for item in result.reliability] == [0.0, 0.75]
    assert result.reliability[1].confidence == pytest.approx((25 * 0.95 + 15) / 40)


def test_render_threshold__is_a_configuration_file() -> None:
    result = calibrate_evaluation(_answered([0.9] * 10, [0.1] * 10), wrongly_refused=0.0)
    text = render_threshold(result, "rag-config.yaml")
    assert text.startswith(f"# Calibrated with acme/{str(uuid.UUID(int=1 << 96))[:8]}, on half of")
    assert yaml.safe_load(text) == {"extends": "rag-config.yaml", "rag": {"answer": {"threshold": 0.9}}}


def test_report__plots_the_reliability_of_answers_alone() -> None:
    answered = _answered([0.9] * 10, [0.1] * 10)
    assert "<h2>Reliability of the confidence</h2>" in report([answered])
    assert "Reliability" not in report([replace(answered, answered=False)])


@pytest.mark.parametrize(
    ("evaluation", "share", "message"),
    [
        (replace(_answered([0.9] * 10, [0.1] * 10), answered=False), 0.1, "eval run --answers"),
        (_answered([0.9] * 10, [0.1] * 9), 0.1, "9 without"),
        (_answered([0.9] * 10, [0.1] * 10), 1.0, "give one from 0 to below 1"),
    ],
)
def test_calibrate__names_what_is_missing(evaluation: Evaluation, share: float, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        calibrate_evaluation(evaluation, wrongly_refused=share)
