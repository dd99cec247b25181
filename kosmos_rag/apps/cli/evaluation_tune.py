"""kosmos-rag eval tune: settings chosen on one half of a set, and measured on the other."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import console, print_json, progress
from kosmos_rag.apps.cli.evaluation_runner import (
    Asking,
    AskingOptions,
    GridOption,
    OutputOption,
    SetArgument,
    require_new,
    write,
)
from kosmos_rag.apps.cli.options import command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kosmos_rag.evaluation import Evaluation, QuestionSet
    from kosmos_rag.evaluation.tuning import TuningResult


@command
def tune(
    set_name: SetArgument,
    *,
    grid: GridOption = None,
    measure: Annotated[str, typer.Option("--measure", metavar="NAME", help="What is to be best.")] = "nDCG@10",
    output: OutputOption = Path("tuned.yaml"),
    options: AskingOptions,
) -> None:
    """Choose fusion, weights, candidates and thresholds, or what --grid names, and write what is better into a file."""
    from kosmos_rag.evaluation.grid import parse_grid
    from kosmos_rag.evaluation.tuning import TEST, default_stages, render_configuration, tune

    require_new(output)
    asking = Asking.of(set_name, options)
    stages = [parse_grid(grid)] if grid else default_stages(asking.settings({}))

    def ask(changes: "Mapping[str, Any]", asked: "QuestionSet") -> "Evaluation":
        # Of all that is tried, only what is held against each other in the end is worth keeping.
        asking.store = asked.name.endswith(TEST)
        return asking.ask(dict(changes), asked)

    with progress(shown=not options.as_json) as asking.tell:
        tuned = tune(asking.asked, stages, measure, ask)
    if tuned.changes:
        write(output, render_configuration(tuned, asking.told(tuned.changes), _base(options.config, output)))
    if options.as_json:
        print_json(_as_object(tuned, output))
    else:
        _print(tuned, output)


def _base(config: Path | None, output: Path) -> str | None:
    """Return the path of the file in use as the new one is to name it, None where there is none."""
    import os

    from kosmos_rag.core.config.loading import used_file

    used = used_file(config)
    return None if used is None else os.path.relpath(used.absolute(), output.absolute().parent)


def _as_object(tuned: "TuningResult", output: Path) -> dict[str, Any]:
    return {
        "changes": dict(tuned.changes),
        "written": str(output) if tuned.changes else None,
        "measure": tuned.measure,
        "train": {"before": tuned.trained_before, "chosen": tuned.trained},
        "test": asdict(tuned.difference),
        "evaluations": [tuned.baseline.name, tuned.chosen.name],
    }


def _print(tuned: "TuningResult", output: Path) -> None:
    from kosmos_rag.evaluation.grid import label

    out = console()
    if not tuned.changes:
        out.print(
            f"nothing was better than {tuned.trained_before:.4f} {tuned.measure} as configured; nothing is written"
        )
        return
    one = tuned.difference
    chance = "more than chance" if one.significant else "not more than chance"
    out.print(f"chosen: {label(tuned.changes)}")
    out.print(
        f"  on the half it was chosen on: {tuned.measure} {tuned.trained_before:.4f} before, {tuned.trained:.4f} now"
    )
    out.print(
        f"  on the other half ({one.questions} questions): {one.baseline_mean:.4f} before, {one.mean:.4f} now, "
        f"95 % interval {one.low:+.4f} to {one.high:+.4f}, p {one.p:.4f}: {chance}"
    )
    out.print(f"  stored: {tuned.baseline.name} {tuned.chosen.name}")
    out.print(f"written: {output}; --config {output} goes by it, and without it everything is as before")
