"""Measures of rankings, computed by ir-measures."""

from collections.abc import Iterable, Sequence
from typing import Any

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.evaluation.offline.types import QuestionResult


def _ir_measures() -> Any:
    require_extra("eval", "an evaluation", "ir_measures")
    import ir_measures

    return ir_measures


def parse_measures(names: Sequence[str]) -> list[Any]:
    """Parse names of measures.

    Raises ConfigError on one that ir-measures does not know or cannot compute here.
    """
    library = _ir_measures()
    parsed = []
    for name in names:
        try:
            measure = library.parse_measure(name)
            supported = library.DefaultPipeline.supports(measure)
        except (ValueError, NameError, SyntaxError, KeyError) as error:
            raise ConfigError(
                f"evaluation.measures contains {name!r}, which ir-measures does not know ({error}); "
                "name nDCG@10, R@10, RR@10, AP@10, Success@1 or P@5"
            ) from None
        if not supported:
            raise ConfigError(
                f"evaluation.measures contains {name!r}, which is not installed; name nDCG@10, R@10 or RR@10"
            )
        parsed.append(measure)
    return parsed


def compute_measures(names: Sequence[str], results: Iterable[QuestionResult]) -> dict[str, dict[str, float]]:
    """Return the measures of each judged question, by its id.

    A question without hits counts 0.
    """
    measures = parse_measures(names)
    judged_results = [result for result in results if result.judged]
    if not judged_results:
        return {}
    grades = {result.question_id: dict(result.judged) for result in judged_results}
    # Negative ranks as scores: ir-measures breaks ties by name.
    run = {
        result.question_id: {name: float(-rank) for rank, name in enumerate(result.ranking)}
        for result in judged_results
    }
    computed: dict[str, dict[str, float]] = {}
    for metric in _ir_measures().iter_calc(measures, grades, run):
        computed.setdefault(metric.query_id, {})[str(metric.measure)] = float(metric.value)
    # ir-measures normalises names (MRR becomes RR); the result has the configured ones.
    canonical = dict(zip(names, map(str, measures), strict=True))
    return {key: {name: values[measure] for name, measure in canonical.items()} for key, values in computed.items()}
