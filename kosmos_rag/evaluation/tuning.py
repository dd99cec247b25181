"""Tune settings on one half of the questions, measure the other."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import yaml

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.keys import nest
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types.questions import Question, QuestionSet
from kosmos_rag.evaluation.compare import Difference, compare
from kosmos_rag.evaluation.grid import Changes
from kosmos_rag.evaluation.types import LOWER_IS_BETTER, Evaluation

Stage = Sequence[Changes]
"""Alternatives: the best is chosen before the next stage."""
Runner = Callable[[Changes, QuestionSet], Evaluation]
"""Evaluates a question set under the settings with these changes."""

TEST = " (test)"
"""Suffix of the name of the test half."""
_MIN_QUESTIONS = 20
"""Minimum number of questions: smaller halves have no significance."""
_WEIGHTS = (0.2, 0.35, 0.5, 0.65, 0.8)


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
        return next(one for one in self.differences if one.measure == self.measure)


def default_stages(settings: Settings) -> list[Stage]:
    """Return the stages without a grid: fusion and weights, candidates, thresholds."""
    retrieval, reranking = settings.rag.retrieval, settings.rag.reranking
    fusion = [
        {
            "rag.retrieval.fusion": fusion,
            "rag.retrieval.semantic_weight": weight,
            "rag.retrieval.keyword_weight": round(1 - weight, 2),
        }
        for fusion in ("rrf", "score", "adaptive")
        for weight in _WEIGHTS
    ]
    stages: list[Stage] = [
        fusion,
        [{"rag.retrieval.candidates": count} for count in (50, 100, 200) if count >= retrieval.top_k],
        [{"rag.retrieval.similarity_threshold": value} for value in (0.0, 0.1, 0.2, 0.3)],
    ]
    if reranking.enabled:
        stages.append([{"rag.reranking.threshold": value} for value in (0.0, 0.1, 0.3, 0.5)])
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
    ordered = sorted(
        (hashlib.sha256(question.id.encode()).hexdigest(), question.id) for question in question_set.questions
    )
    train = {key for _, key in ordered[::2]}

    def in_train(question: Question) -> bool:
        return question.id in train

    return (
        question_set.part(f"{question_set.name} (train)", in_train),
        question_set.part(f"{question_set.name}{TEST}", lambda question: not in_train(question)),
    )


def tune(question_set: QuestionSet, stages: Sequence[Stage], measure: str, run: Runner) -> TuningResult:
    """Choose changes in stages on the training half, and test them.

    A stage adds to the changes of the stages before. Changes are chosen only if the mean improves; of equals the first.

    Raises RequestError if the set is small or its evaluations lack the measure, and what `run` raises.

    Args:
        question_set: The questions.
        stages: Alternatives to try, in order.
        measure: Name of the measure to improve.
        run: Evaluates questions under changes.
    """
    train, test = split_questions(question_set)
    before = best = _mean(run({}, train), measure)
    chosen: Changes = {}
    for stage in stages:
        candidates = [{**chosen, **changes} for changes in stage]
        for changes, mean in [(changes, _mean(run(changes, train), measure)) for changes in candidates]:
            if _better(mean, best, measure):
                chosen, best = changes, mean
    baseline = run({}, test)
    after = run(chosen, test) if chosen else baseline
    return TuningResult(
        changes=chosen,
        measure=measure,
        trained=best,
        trained_before=before,
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


def _better(mean: float, best: float, measure: str) -> bool:
    return mean < best - 1e-9 if measure in LOWER_IS_BETTER else mean > best + 1e-9


def render_configuration(tuned: TuningResult, changes: Changes, base: str | None) -> str:
    """Render a configuration file with the chosen changes.

    Their measures are a comment.

    Args:
        tuned: The result.
        changes: The chosen changes, and other overrides that are in no file.
        base: Path of the file that it extends; None without one.
    """
    one = tuned.difference
    verdict = "significant" if one.significant else "NOT significant"
    set_name = tuned.baseline.set_name.removesuffix(TEST)
    head = f"""\
Tuned for {tuned.measure} on one half of {set_name!r}: {tuned.trained_before:.4f} before, {tuned.trained:.4f} with this.
On the other half, {one.questions} questions: {one.baseline_mean:.4f} before, {one.mean:.4f} with this;
95 % interval of the difference {one.low:+.4f} to {one.high:+.4f}, p {one.p:.4f}: {verdict}.
To take it away again, name the file that it extends."""
    values = ({"extends": base} if base is not None else {}) | nest(dict(changes))
    return "".join(f"# {line}\n" for line in head.splitlines()) + yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True
    )
