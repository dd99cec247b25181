"""kosmos-rag eval calibrate: choose the threshold of refusals."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    LimitOption,
    PrincipalOption,
    console,
    print_json,
    progress,
    require_not_blank,
    table,
    to_plain,
)
from kosmos_rag.apps.cli.options import ReadOptions, command
from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.commands.runner import (
    OnProgress,
    OutputOption,
    base_file,
    load_evaluation,
    require_new,
    write,
)

if TYPE_CHECKING:
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.evaluation.offline.calibration import Calibration


@command
def calibrate(
    evaluation: Annotated[
        str | None,
        typer.Argument(
            metavar="[EVALUATION]",
            help="Prefix of an id, label, or latest; of another tenant: TENANT/ID.",
            show_default=False,
        ),
    ] = None,
    *,
    ratings: Annotated[
        bool, typer.Option("--ratings", help="Answer the questions that readers rated, instead of an evaluation.")
    ] = False,
    principal: PrincipalOption = None,
    limit: LimitOption = 500,
    wrongly_refused: Annotated[
        float,
        typer.Option("--wrongly-refused", metavar="SHARE", help="Share of answerable questions that may be refused."),
    ] = 0.15,
    output: OutputOption = Path("calibrated.yaml"),
    common: ReadOptions,
) -> None:
    """Choose the confidence below which answers are refused.

    It needs an evaluation with answers (eval run --answers), or ratings of readers (--ratings). It prints the
    reliability of the confidence too.
    """
    from kosmos_rag.evaluation.offline.calibration import calibrate_evaluation, render_threshold

    if (evaluation is None) is not ratings:
        raise RequestError("name an evaluation, or give --ratings; one of the two")
    require_new(output)
    principals = require_not_blank(principal, "--principal", remedy="name a principal, --principal department:sales")
    with common.open_engine() as engine, progress(visible=not common.as_json) as on_progress:
        if evaluation is None:
            result = _calibrate_ratings(engine, common, principals, limit, wrongly_refused, on_progress)
        else:
            result = calibrate_evaluation(load_evaluation(engine, common.tenant, evaluation), wrongly_refused)
    write(output, render_threshold(result, base_file(common.config, output)))
    if common.as_json:
        print_json({**to_plain(result), "written": str(output)})
    else:
        _print(result)
        console().print(f"written: {output}; use it with --config {output}")


def _calibrate_ratings(
    engine: "Engine",
    options: ReadOptions,
    principals: Sequence[str],
    limit: int,
    wrongly_refused: float,
    on_progress: OnProgress | None,
) -> "Calibration":
    from kosmos_rag.core.types import EVALUATOR, EVERYONE
    from kosmos_rag.evaluation.offline.calibration import calibrate
    from kosmos_rag.evaluation.offline.ratings import answer_rated_questions, read_rated_questions

    reader = engine.tenant(
        options.tenant, principals=principals or (EVERYONE,), collection=options.collection, subject=EVALUATOR
    )
    rated_questions = read_rated_questions(reader, limit=limit)
    return calibrate(
        answer_rated_questions(reader, rated_questions, on_progress),
        wrongly_refused,
        configured=reader.effective_settings.rag.answer.threshold,
    )


def _print(result: "Calibration") -> None:
    out = console()
    out.print(
        f"{result.evaluation or 'rated questions'}: {result.answerable} questions with an answer, "
        f"{result.unanswerable} without, AUC of the confidence {result.auc:.3f}"
    )
    rows = table("threshold", "", "refused without an answer", "refused with one", right={"threshold"})
    for name, refusals in (("configured", result.configured), ("chosen", result.chosen)):
        rows.add_row(f"{refusals.threshold:.3f}", name, f"{refusals.refused:.2f}", f"{refusals.wrongly_refused:.2f}")
    out.print(rows)
    curve = table("confidence", "questions", "mean confidence", "have an answer", right={"questions"})
    for bucket in result.reliability:
        curve.add_row(
            f"{bucket.low:.1f} to {bucket.high:.1f}",
            str(bucket.questions),
            f"{bucket.confidence:.2f}",
            f"{bucket.answerable:.2f}",
        )
    out.print(curve)
