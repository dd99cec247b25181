"""Tune settings on one half of the questions, measure the other."""

import hashlib
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import yaml

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.keys import nest
from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.offline.compare import Difference, compare
from kosmos_rag.evaluation.offline.grid import Changes
from kosmos_rag.evaluation.offline.questions import Question, QuestionSet
from kosmos_rag.evaluation.offline.types import LOWER_IS_BETTER, Evaluation

Runner = Callable[[Changes, QuestionSet], Evaluation]
"""Evaluates a question set under the settings with these changes."""

TEST = " (test)"
"""Suffix of the name of the test half."""
_MIN_QUESTIONS = 20
"""Minimum number of questions: smaller halves have no significance."""
_WEIGHTS = (0.2, 0.35, 0.5, 0.65, 0.8)
_RERANKED = (5, 10, 15, 20, 30, 50)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningStage:
    """Alternatives: one is chosen before the next stage."""

    alternatives: Sequence[Changes]
    deadline_ms: float | None = None
    """None: the best mean is chosen. A number: the fastest as good one of those whose median search ends within it.

    As good as the best: its mean is at most one standard error of the difference lower.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningResult:
    """The chosen changes, measured on both halves."""

    changes: Changes
    """Empty if nothing was better than the settings."""
    measure: str
    trained: float
    """Mean of the measure on the training half."""
    trained_before: float
    baseline: Evaluation
    """The unchanged settings on the test half."""
    chosen: Evaluation
    differences: tuple[Difference, ...]
    """Between both, on the test half."""

    @property
    def difference(self) -> Difference:
        """The difference in the tuned measure."""
        return next(difference for difference in self.differences if difference.measure == self.measure)


def default_stages(settings: Settings) -> list[TuningStage]:
    """Return the stages without a grid: fusion and weights, candidates, thresholds, reranking."""
    retrieval, reranking = settings.rag.retrieval, settings.rag.reranking
    fusion = [
        {
            "rag.retrieval.fusion": fusion,
            "rag.retrieval.semantic_weight": weight,
            "rag.retrieval.keyword_weight": round(1 - weight, 2),
        }
        for fusion in ("rrf", "score")
        for weight in _WEIGHTS
    ]
    stages = [
        TuningStage(alternatives=fusion),
        TuningStage(
            alternatives=[{"rag.retrieval.candidates": count} for count in (50, 100, 200) if count >= retrieval.top_k]
        ),
        TuningStage(alternatives=[{"rag.retrieval.similarity_threshold": value} for value in (0.0, 0.1, 0.2, 0.3)]),
    ]
    if reranking.enabled:
        counts = sorted({retrieval.top_k, *(count for count in _RERANKED if count <= retrieval.candidates)})
        stages += [
            TuningStage(alternatives=[{"rag.reranking.weight": value} for value in (0.3, 0.5, 0.7, 0.85, 1.0)]),
            TuningStage(alternatives=[{"rag.reranking.threshold": value} for value in (0.0, 0.1, 0.3, 0.5)]),
            TuningStage(
                alternatives=[{"rag.retrieval.top_k": count} for count in counts],
                deadline_ms=reranking.milliseconds_to_deadline,
            ),
        ]
    return stages


def split_questions(question_set: QuestionSet) -> tuple[QuestionSet, QuestionSet]:
    """Split a set into training and test half by hashed ids.

    Raises RequestError on a small set.
    """
    if len(question_set.questions) < _MIN_QUESTIONS:
        raise RequestError(
            f"the set {question_set.name!r} has {len(question_set.questions)} questions, and half of them is too "
            f"few; use {_MIN_QUESTIONS} or more"
        )
    hashes = sorted(
        (hashlib.sha256(question.id.encode()).hexdigest(), question.id) for question in question_set.questions
    )
    train = {key for _, key in hashes[::2]}

    def is_in_train(question: Question) -> bool:
        return question.id in train

    return (
        question_set.part(f"{question_set.name} (train)", is_in_train),
        question_set.part(f"{question_set.name}{TEST}", lambda question: not is_in_train(question)),
    )


def tune(question_set: QuestionSet, stages: Sequence[TuningStage], measure: str, run: Runner) -> TuningResult:
    """Choose changes in stages on the training half, and test them.

    A stage adds to the changes of the stages before. Changes are chosen only if the mean improves, of equals the first,
    or if they are faster in a stage with a deadline.

    Raises RequestError if the set is small or its evaluations lack the measure, and what `run` raises.

    Args:
        stages: Alternatives to try, in order.
        measure: Name of the measure to improve.
        run: Evaluates questions under changes.
    """
    train, test = split_questions(question_set)
    chosen: Changes = {}
    best = before = run(chosen, train)
    _mean(before, measure)
    for stage in stages:
        runs = [(chosen, best)]
        runs += [
            (configuration, run(configuration, train))
            for configuration in ({**chosen, **changes} for changes in stage.alternatives)
        ]
        chosen, best = _choose(runs, measure, stage.deadline_ms)
    baseline = run({}, test)
    after = run(chosen, test) if chosen else baseline
    return TuningResult(
        changes=chosen,
        measure=measure,
        trained=_mean(best, measure),
        trained_before=_mean(before, measure),
        baseline=baseline,
        chosen=after,
        differences=tuple(compare(baseline, [after])),
    )


def _mean(evaluation: Evaluation, measure: str) -> float:
    if measure not in evaluation.measures:
        raise RequestError(
            f"{measure} is not measured; name one of {', '.join(evaluation.measures)}, "
            "or put it into evaluation.measures"
        )
    return evaluation.measures[measure]


def _choose(
    runs: Sequence[tuple[Changes, Evaluation]], measure: str, deadline_ms: float | None
) -> tuple[Changes, Evaluation]:
    """Return the best run, the first of equals.

    With a deadline it is the fastest of those that are as good.
    """
    sign = -1 if measure in LOWER_IS_BETTER else 1
    if deadline_ms is not None:
        runs = [run for run in runs if _median_ms(run[1]) <= deadline_ms] or runs[:1]
    best = max(runs, key=lambda run: round(sign * _mean(run[1], measure), 9))
    if deadline_ms is None:
        return best
    return min((run for run in runs if _is_as_good(run[1], best[1], measure)), key=lambda run: _median_ms(run[1]))


def _is_as_good(evaluation: Evaluation, best: Evaluation, measure: str) -> bool:
    before, after = best.values(measure), evaluation.values(measure)
    differences = [after[key] - before[key] for key in before]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return abs(statistics.fmean(differences)) <= error


def _median_ms(evaluation: Evaluation) -> float:
    return statistics.median(result.timings_ms.get("total", 0.0) for result in evaluation.results)


def render_configuration(tuned: TuningResult, changes: Changes, base: str | None) -> str:
    """Render a configuration file with the chosen changes.

    Their measures are a comment.

    Args:
        changes: The chosen changes, and other overrides that are in no file.
        base: Path of the file that it extends; None without one.
    """
    gain = tuned.difference
    verdict = "significant" if gain.significant else "NOT significant"
    set_name = tuned.baseline.set_name.removesuffix(TEST)
    head = f"""\
Tuned for {tuned.measure} on one half of {set_name!r}: {tuned.trained_before:.4f} before, {tuned.trained:.4f} with this.
On the other half, {gain.questions} questions: {gain.baseline_mean:.4f} before, {gain.mean:.4f} with this;
95 % interval of the difference {gain.low:+.4f} to {gain.high:+.4f}, p {gain.p:.4f}: {verdict}.
To take it away again, name the file that it extends."""
    values = ({"extends": base} if base is not None else {}) | nest(dict(changes))
    return "".join(f"# {line}\n" for line in head.splitlines()) + yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True
    )
