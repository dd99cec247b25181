"""Settings chosen on one half of the questions, and what they are worth on the other."""

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
"""Changes of which one is chosen, before the next stage is looked at."""
Asking = Callable[[Changes, QuestionSet], Evaluation]
"""Asks questions under the settings with these changes."""

TEST = " (test)"
"""The end of the name of the half that nothing is chosen on."""
_FEWEST = 20
"""Questions below which halves say nothing."""
_WEIGHTS = (0.2, 0.35, 0.5, 0.65, 0.8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """What tuning chose, and what it is worth."""

    changes: Changes
    """Empty where nothing was better than what there was."""
    measure: str
    trained: float
    """Mean of the measure on the half that it was chosen on."""
    trained_before: float
    baseline: Evaluation
    """The settings as they were, on the other half."""
    chosen: Evaluation
    differences: tuple[Difference, ...]
    """Between both, on the other half."""

    @property
    def difference(self) -> Difference:
        """The one in the measure that was tuned for."""
        return next(one for one in self.differences if one.measure == self.measure)


def usual_stages(settings: Settings) -> list[Stage]:
    """Return what is tried where nothing is named: fusion with its weights, depth, thresholds."""
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
    stages: list[Stage] = [
        fusion,
        [{"rag.retrieval.depth": depth} for depth in (50, 100, 200) if depth >= retrieval.top_k],
        [{"rag.retrieval.similarity_threshold": value} for value in (0.0, 0.1, 0.2, 0.3)],
    ]
    if reranking.enabled:
        stages.append([{"rag.reranking.threshold": value} for value in (0.0, 0.1, 0.3, 0.5)])
    return stages


def halves(asked: QuestionSet) -> tuple[QuestionSet, QuestionSet]:
    """Split a set in two by a hash of the ids: always the same split. Raises RequestError on a small set."""
    if len(asked.questions) < _FEWEST:
        raise RequestError(
            f"the set {asked.name!r} has {len(asked.questions)} questions, and choosing on a half of so few says "
            f"nothing; use {_FEWEST} or more"
        )
    ordered = sorted((hashlib.sha256(question.id.encode()).hexdigest(), question.id) for question in asked.questions)
    train = {key for _, key in ordered[::2]}

    def in_train(question: Question) -> bool:
        return question.id in train

    return (
        asked.part(f"{asked.name} (train)", in_train),
        asked.part(f"{asked.name}{TEST}", lambda question: not in_train(question)),
    )


def tune(asked: QuestionSet, stages: Sequence[Stage], measure: str, asking: Asking) -> Tuned:
    """Choose changes stage by stage on one half, each on top of those before, and measure both on the other half.

    Changes are chosen only where the mean is higher; of equals the first. Raises RequestError where the set is small or
    its evaluations lack the measure, and what `asking` raises.
    """
    train, test = halves(asked)
    before = best = _mean(asking({}, train), measure)
    chosen: Changes = {}
    for stage in stages:
        tried = [{**chosen, **changes} for changes in stage]
        for changes, mean in [(changes, _mean(asking(changes, train), measure)) for changes in tried]:
            if _better(mean, best, measure):
                chosen, best = changes, mean
    baseline = asking({}, test)
    after = asking(chosen, test) if chosen else baseline
    return Tuned(
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


def configuration(tuned: Tuned, changes: Changes, base: str | None) -> str:
    """Return a configuration file with what was chosen, laid over `base`; what it is worth stands above.

    `changes` are those, with what else was asked under and stands in no file.
    """
    one = tuned.difference
    verdict = "more than chance" if one.significant else "NOT more than chance"
    asked = tuned.baseline.set_name.removesuffix(TEST)
    head = f"""\
Tuned for {tuned.measure} on one half of {asked!r}: {tuned.trained_before:.4f} before, {tuned.trained:.4f} with this.
On the other half, {one.questions} questions: {one.baseline_mean:.4f} before, {one.mean:.4f} with this;
95 % interval of the difference {one.low:+.4f} to {one.high:+.4f}, p {one.p:.4f}: {verdict}.
To take it away again, name the file that it extends."""
    values = ({"extends": base} if base is not None else {}) | nest(dict(changes))
    return "".join(f"# {line}\n" for line in head.splitlines()) + yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True
    )
