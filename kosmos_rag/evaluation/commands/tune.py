"""kosmos-rag eval tune: tune settings on half of a set.

They are measured on the other half.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import console, print_json, progress
from kosmos_rag.apps.cli.options import command
from kosmos_rag.evaluation.commands.runner import (
    EvaluationOptions,
    EvaluationRunner,
    GridOption,
    OutputOption,
    SetArgument,
    base_file,
    require_new,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kosmos_rag.evaluation.offline import Evaluation, QuestionSet
    from kosmos_rag.evaluation.offline.tuning import TuningResult


@command
def tune(
    set_name: SetArgument,
    *,
    grid: GridOption = None,
    measure: Annotated[str, typer.Option("--measure", metavar="NAME", help="Measure to maximise.")] = "nDCG@10",
    output: OutputOption = Path("tuned.yaml"),
    options: EvaluationOptions,
) -> None:
    """Tune settings, and write improvements to a file.

    Without --grid it tunes fusion, weights, candidates, thresholds and the number of reranked passages.
    """
    from kosmos_rag.evaluation.offline.grid import parse_grid
    from kosmos_rag.evaluation.offline.tuning import TEST, TuningStage, default_stages, render_configuration, tune

    require_new(output)
    runner = EvaluationRunner.create(set_name, options)
    stages = [TuningStage(alternatives=parse_grid(grid))] if grid else default_stages(runner.settings({}))

    def evaluate_configuration(changes: "Mapping[str, Any]", questions: "QuestionSet") -> "Evaluation":
        # Only the two evaluations of the final comparison are stored.
        runner.store = questions.name.endswith(TEST)
        return runner.evaluate_configuration(dict(changes), questions)

    with progress(visible=not options.as_json) as runner.on_progress:
        result = tune(runner.questions, stages, measure, evaluate_configuration)
    if result.changes:
        base = base_file(options.config, output)
        write(output, render_configuration(result, runner.describe_changes(result.changes), base))
    if options.as_json:
        print_json(_serialize_result(result, output))
    else:
        _print(result, output)


def _serialize_result(result: "TuningResult", output: Path) -> dict[str, Any]:
    return {
        "changes": dict(result.changes),
        "written": str(output) if result.changes else None,
        "measure": result.measure,
        "train": {"before": result.trained_before, "chosen": result.trained},
        "test": asdict(result.difference),
        "evaluations": [result.baseline.name, result.chosen.name],
    }


def _print(result: "TuningResult", output: Path) -> None:
    from kosmos_rag.evaluation.offline.grid import label

    out = console()
    if not result.changes:
        out.print(
            f"nothing was better than {result.trained_before:.4f} {result.measure} as configured; nothing is written"
        )
        return
    difference = result.difference
    chance = "significant" if difference.significant else "not significant"
    out.print(f"chosen: {label(result.changes)}")
    out.print(
        f"  on the half it was chosen on: {result.measure} {result.trained_before:.4f} before, {result.trained:.4f} now"
    )
    out.print(
        f"  on the other half ({difference.questions} questions): {difference.baseline_mean:.4f} before, "
        f"{difference.mean:.4f} now, 95 % interval {difference.low:+.4f} to {difference.high:+.4f}, "
        f"p {difference.p:.4f}: {chance}"
    )
    out.print(f"  stored: {result.baseline.name} {result.chosen.name}")
    out.print(f"written: {output}; use it with --config {output}")
