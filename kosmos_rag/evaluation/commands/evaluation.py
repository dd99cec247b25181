"""kosmos-rag eval: measure retrieval quality, compare evaluations, check targets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import (
    LimitOption,
    console,
    cut,
    print_json,
    print_truncated,
    progress,
    table,
    to_plain,
)
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.commands.calibrate import calibrate
from kosmos_rag.evaluation.commands.candidates import app as candidates_app
from kosmos_rag.evaluation.commands.questions import questions
from kosmos_rag.evaluation.commands.runner import (
    EvaluationOptions,
    EvaluationRunner,
    GridOption,
    OutputOption,
    ReferenceArgument,
    SetArgument,
    load_evaluation,
    write,
)
from kosmos_rag.evaluation.commands.tune import tune

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.evaluation.offline import Difference, Evaluation, Evaluations, GateResult

app = typer.Typer(help="Measure retrieval with judged questions, compare evaluations, check targets.")

ReferencesArgument = Annotated[
    list[str],
    typer.Argument(metavar="EVALUATION...", help="Prefixes of ids, labels, or latest; of another tenant: TENANT/ID."),
]


@app.command("run")
@command
def run(set_name: SetArgument, *, grid: GridOption = None, options: EvaluationOptions) -> None:
    """Evaluate a set of questions and store the results.

    A BEIR set is ingested into a tenant of its own.
    """
    from kosmos_rag.evaluation.offline.grid import parse_grid

    configurations = parse_grid(grid or ())
    runner = EvaluationRunner.create(set_name, options)
    for changes in configurations:
        runner.settings(dict(changes))  # invalid settings fail before the first question
    with progress(visible=not options.as_json) as runner.on_progress:
        evaluations = [runner.evaluate_configuration(dict(changes)) for changes in configurations]
    if options.as_json:
        values = [_serialize_evaluation(evaluation) for evaluation in evaluations]
        print_json({"evaluations": values, "gone_labels": runner.gone_labels})
        return
    _print_evaluations(evaluations)
    if labels := runner.gone_labels:
        first = ", ".join(labels[:3])
        console().print(
            f"note: no readable document has the place of {len(labels):,} labels, which count as not "
            f"found: {first}; check source, section and lines"
        )


@app.command("list")
@command
def list_(limit: LimitOption = 20, *, common: TenantOptions) -> None:
    """List the evaluations of a tenant, the newest first."""
    with common.open_engine() as engine:
        evaluations, truncated = cut(_open_store(engine, common.tenant).recent(limit + 1), limit)
    if common.as_json:
        values = [_serialize_evaluation(evaluation) for evaluation in evaluations]
        print_json({"tenant": common.tenant, "evaluations": values, "truncated": truncated})
    elif evaluations:
        _print_evaluations(evaluations)
    else:
        console().print(f"tenant {common.tenant} has no evaluations")
    if truncated and not common.as_json:
        print_truncated(limit)


@app.command("compare")
@command
def compare(evaluations: ReferencesArgument, *, common: TenantOptions) -> None:
    """Compare evaluations with a baseline, the first one.

    Differences are tested for significance.
    """
    from dataclasses import asdict

    from kosmos_rag.evaluation.offline import compare, list_changes

    if len(evaluations) < 2:
        raise RequestError("name two or more evaluations to compare, the baseline first")
    with common.open_engine() as engine:
        baseline, *others = [load_evaluation(engine, common.tenant, reference) for reference in evaluations]
    differences = compare(baseline, others)
    changed = [(other.name, *change) for other in others for change in list_changes(baseline, other)]
    if common.as_json:
        names = ("evaluation", "what", "baseline", "here")
        changes = [dict(zip(names, change, strict=True)) for change in changed]
        print_json(
            {
                "baseline": baseline.name,
                "changed": changes,
                "differences": [asdict(difference) for difference in differences],
            }
        )
    else:
        _print_differences(baseline, differences)
        for name, setting, before, after in changed:
            console().print(f"{name}: {setting} is {after}, {before} in the baseline")


@app.command("gate")
@command
def gate(
    evaluation: Annotated[
        str, typer.Argument(metavar="[EVALUATION]", help="As for compare; default: the newest.")
    ] = "latest",
    alert: Annotated[bool, typer.Option("--alert", help="Check evaluation.alerts, not the targets.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="EVALUATION", help="Fail also if significantly worse than this one."),
    ] = None,
    *,
    common: TenantOptions,
) -> None:
    """Exit with 1 where a measure is below evaluation.targets.

    For CI and scheduled checks.
    """
    from kosmos_rag.evaluation.offline import check_thresholds, compare
    from kosmos_rag.evaluation.settings import EvaluationSettings

    with common.open_engine() as engine:
        measured = load_evaluation(engine, common.tenant, evaluation)
        verdicts = check_thresholds(measured, engine.settings.section(EvaluationSettings), alerts_only=alert)
        baseline_evaluation = load_evaluation(engine, common.tenant, baseline) if baseline is not None else None
        worse = (
            [difference for difference in compare(baseline_evaluation, [measured]) if difference.worse]
            if baseline_evaluation
            else []
        )
    failed = [verdict for verdict in verdicts if verdict.state == "alert" or (verdict.state != "reached" and not alert)]
    if common.as_json:
        print_json(
            {
                "evaluation": measured.name,
                "passed": not (failed or worse),
                "measures": [{**to_plain(verdict), "state": verdict.state} for verdict in verdicts],
                "worse": [to_plain(difference) for difference in worse],
            }
        )
    else:
        _print_verdicts(measured, verdicts)
        if baseline_evaluation and worse:
            _print_differences(baseline_evaluation, worse)
    if failed or worse:
        raise typer.Exit(1)


@app.command("report")
@command
def report(
    evaluations: ReferencesArgument, output: OutputOption = Path("evaluation.html"), *, common: TenantOptions
) -> None:
    """Write an HTML report of evaluations.

    It shows quality, time by stage, and questions that are better or worse than in the baseline.
    """
    from kosmos_rag.evaluation.offline.report import report

    with common.open_engine() as engine:
        loaded = [load_evaluation(engine, common.tenant, reference) for reference in evaluations]
    write(output, report(loaded))
    if common.as_json:
        print_json({"report": str(output), "evaluations": [evaluation.name for evaluation in loaded]})
    else:
        console().print(f"written: {output}")


@app.command("delete")
@command
def delete(evaluation: ReferenceArgument, *, common: TenantOptions) -> None:
    """Delete an evaluation with its results."""
    with common.open_engine() as engine:
        stored = load_evaluation(engine, common.tenant, evaluation)
        _open_store(engine, stored.tenant).delete(stored)
    if common.as_json:
        print_json({"deleted": stored.name})
    else:
        console().print(f"deleted: {stored.name} ({stored.label})")


app.add_typer(candidates_app, name="candidates")
app.command("calibrate")(calibrate)
app.command("tune")(tune)
app.command("questions")(questions)


def _open_store(engine: "Engine", name: str) -> "Evaluations":
    from kosmos_rag.evaluation.offline import Evaluations

    return Evaluations(engine.tenant(name))


def _serialize_evaluation(evaluation: "Evaluation") -> dict[str, Any]:
    from kosmos_rag.evaluation.offline.types import percentile

    fields = to_plain(evaluation)
    del fields["results"]
    stages = {
        stage: {"p50": round(percentile(times, 0.5), 3), "p95": round(percentile(times, 0.95), 3)}
        for stage, times in evaluation.timings().items()
    }
    return {"name": evaluation.name, **fields, "timings_ms": stages}


def _print_evaluations(evaluations: "Sequence[Evaluation]") -> None:
    from kosmos_rag.evaluation.offline.types import percentile

    measures = list(
        dict.fromkeys(
            name
            for evaluation in evaluations
            for name, value in evaluation.measures.items()
            if _is_informative(name, value)
        )
    )
    has_timings = any(evaluation.results for evaluation in evaluations)
    columns = [
        "evaluation",
        "at",
        "set",
        "questions",
        "configuration",
        *measures,
        *(["p50 ms", "p95 ms"] * has_timings),
        "s",
    ]
    rows = table(*columns, right={"questions", *measures, "p50 ms", "p95 ms", "s"})
    for evaluation in evaluations:
        times = evaluation.timings().get("total", [])
        rows.add_row(
            evaluation.name,
            f"{evaluation.at:%Y-%m-%d %H:%M}",
            evaluation.set_name,
            str(evaluation.questions),
            evaluation.label,
            *(f"{evaluation.measures[name]:.4f}" if name in evaluation.measures else "" for name in measures),
            *([f"{percentile(times, share):.1f}" if times else "" for share in (0.5, 0.95)] * has_timings),
            f"{evaluation.seconds:.1f}",
        )
    console().print(rows)


def _is_informative(measure: str, value: float) -> bool:
    """Whether to show a measure.

    A share of 0 degraded results is expected and not shown.
    """
    from kosmos_rag.evaluation.offline.types import DEGRADED

    return measure != DEGRADED or value > 0


def _print_differences(baseline: "Evaluation", differences: "Sequence[Difference]") -> None:
    columns = ("measure", "evaluation", "baseline", "here", "difference", "95 %", "p", "corrected p", "won", "lost", "")
    rows = table(*columns, right=set(columns) - {"measure", "evaluation", ""})
    for difference in differences:
        rows.add_row(
            difference.measure,
            difference.evaluation,
            f"{difference.baseline_mean:.4f}",
            f"{difference.mean:.4f}",
            f"{difference.difference:+.4f}",
            f"{difference.low:+.4f} to {difference.high:+.4f}",
            f"{difference.p:.4f}",
            f"{difference.corrected_p:.4f}",
            str(difference.wins),
            str(difference.losses),
            ("worse" if difference.worse else "better") if difference.significant else "",
        )
    out = console()
    out.print(f"baseline {baseline.name} ({baseline.label}), {baseline.questions} questions of {baseline.set_name}")
    out.print(rows)


def _print_verdicts(evaluation: "Evaluation", verdicts: "Sequence[GateResult]") -> None:
    rows = table("measure", "value", "target", "alert", "state", right={"value", "target", "alert"})
    for verdict in verdicts:
        bounds = ["" if bound is None else f"{bound:g}" for bound in (verdict.target, verdict.alert)]
        rows.add_row(verdict.measure, f"{verdict.value:.4f}", *bounds, verdict.state)
    out = console()
    out.print(f"{evaluation.name} ({evaluation.label}), {evaluation.questions} questions of {evaluation.set_name}")
    out.print(rows)
