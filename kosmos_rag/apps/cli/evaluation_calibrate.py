"""kosmos-rag eval calibrate: choose the threshold of refusals by an evaluation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json, table, to_plain
from kosmos_rag.apps.cli.evaluation_runner import (
    OutputOption,
    ReferenceArgument,
    base_file,
    load_evaluation,
    require_new,
    write,
)
from kosmos_rag.apps.cli.options import TenantOptions, command

if TYPE_CHECKING:
    from kosmos_rag.evaluation.calibration import Calibration


@command
def calibrate(
    evaluation: ReferenceArgument,
    *,
    wrongly_refused: Annotated[
        float,
        typer.Option("--wrongly-refused", metavar="SHARE", help="Share of answerable questions that may be refused."),
    ] = 0.15,
    output: OutputOption = Path("calibrated.yaml"),
    common: TenantOptions,
) -> None:
    """Choose the confidence below which answers are refused.

    The evaluation needs answers (eval run --answers). It prints the reliability of the confidence too.
    """
    from kosmos_rag.evaluation.calibration import calibrate, render_threshold

    require_new(output)
    with common.open_engine() as engine:
        stored = load_evaluation(engine, common.tenant, evaluation)
    result = calibrate(stored, wrongly_refused)
    write(output, render_threshold(result, base_file(common.config, output)))
    if common.as_json:
        print_json({**to_plain(result), "written": str(output)})
    else:
        _print(result)
        console().print(f"written: {output}; use it with --config {output}")


def _print(result: "Calibration") -> None:
    out = console()
    out.print(
        f"{result.evaluation}: {result.answerable} questions with an answer, {result.unanswerable} without, "
        f"AUC of the confidence {result.auc:.3f}"
    )
    rows = table("threshold", "", "refused without an answer", "refused with one", right={"threshold"})
    for name, refusals in (("configured", result.configured), ("chosen", result.chosen)):
        rows.add_row(f"{refusals.threshold:.3f}", name, f"{refusals.refused:.2f}", f"{refusals.wrongly_refused:.2f}")
    out.print(rows)
    curve = table("confidence", "questions", "mean confidence", "have an answer", right={"questions"})
    for one in result.reliability:
        curve.add_row(
            f"{one.low:.1f} to {one.high:.1f}", str(one.questions), f"{one.confidence:.2f}", f"{one.answerable:.2f}"
        )
    out.print(curve)
