"""kosmos-rag eval: how good retrieval is, what a change is worth, and whether it is good enough."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli import evaluation_questions, evaluation_tune
from kosmos_rag.apps.cli.common import (
    LimitOption,
    console,
    plain,
    print_json,
    progress,
    table,
)
from kosmos_rag.apps.cli.evaluation_runner import Asking, AskingOptions, GridOption, OutputOption, SetArgument, write
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.evaluation import Difference, Evaluation, Evaluations, Verdict

app = typer.Typer(help="Measure retrieval with questions whose answers are known, compare, and hold it to targets.")

ReferencesArgument = Annotated[
    list[str],
    typer.Argument(metavar="EVALUATION...", help="Beginnings of ids, labels, or latest; of another tenant: TENANT/ID."),
]
ReferenceArgument = Annotated[str, typer.Argument(metavar="EVALUATION", help="As for compare.")]


@app.command("run")
@command
def run(set_name: SetArgument, *, grid: GridOption = None, options: AskingOptions) -> None:
    """Ask a set of questions, and store what was found. A BEIR set is ingested into a tenant of its own, once."""
    from kosmos_rag.evaluation.grid import parse_grid

    tried = parse_grid(grid or ())
    asking = Asking.of(set_name, options)
    for changes in tried:
        asking.settings(dict(changes))  # what cannot be is refused before the first question
    with progress(shown=not options.as_json) as asking.tell:
        done = [asking.ask(dict(changes)) for changes in tried]
    if options.as_json:
        print_json({"evaluations": [_as_object(one) for one in done]})
    else:
        _print_evaluations(done)


@app.command("list")
@command
def list_(limit: LimitOption = 20, *, common: TenantOptions) -> None:
    """List the evaluations of a tenant, the newest first."""
    with common.open_engine() as engine:
        found = _stored(engine, common.tenant).recent(limit)
    if common.as_json:
        print_json({"tenant": common.tenant, "evaluations": [_as_object(one) for one in found]})
    elif found:
        _print_evaluations(found)
    else:
        console().print(f"tenant {common.tenant} has no evaluations")


@app.command("compare")
@command
def compare(evaluations: ReferencesArgument, *, common: TenantOptions) -> None:
    """Compare evaluations of the same questions with the first of them, and say what is more than chance."""
    from dataclasses import asdict

    from kosmos_rag.evaluation import compare, list_changes

    if len(evaluations) < 2:
        raise RequestError("one evaluation has nothing to be compared with; name two or more, the baseline first")
    with common.open_engine() as engine:
        baseline, *others = [_get(engine, common.tenant, reference) for reference in evaluations]
    found = compare(baseline, others)
    of = [(other.name, *change) for other in others for change in list_changes(baseline, other)]
    if common.as_json:
        names = ("evaluation", "what", "baseline", "here")
        changes = [dict(zip(names, change, strict=True)) for change in of]
        print_json({"baseline": baseline.name, "changed": changes, "differences": [asdict(one) for one in found]})
    else:
        _print_differences(baseline, found)
        for name, what, before, after in of:
            console().print(f"{name}: {what} is {after}, {before} in the baseline")


@app.command("gate")
@command
def gate(
    evaluation: Annotated[
        str, typer.Argument(metavar="[EVALUATION]", help="As for compare; else the newest.")
    ] = "latest",
    alert: Annotated[bool, typer.Option("--alert", help="Hold it to evaluation.alerts, not to the targets.")] = False,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="EVALUATION", help="Fail, too, where it is worse than this one.")
    ] = None,
    *,
    common: TenantOptions,
) -> None:
    """Exit with 1 where a measure is below evaluation.targets: for a build or a clock that is to notice."""
    from kosmos_rag.evaluation import check_thresholds, compare

    with common.open_engine() as engine:
        one = _get(engine, common.tenant, evaluation)
        judged = check_thresholds(one, engine.settings.evaluation, alerts_only=alert)
        before = _get(engine, common.tenant, baseline) if baseline is not None else None
        lost = [difference for difference in compare(before, [one]) if difference.worse] if before else []
    missed = [verdict for verdict in judged if verdict.state == "alert" or (verdict.state != "reached" and not alert)]
    if common.as_json:
        print_json(
            {
                "evaluation": one.name,
                "passed": not (missed or lost),
                "measures": [{**plain(verdict), "state": verdict.state} for verdict in judged],
                "worse": [plain(difference) for difference in lost],
            }
        )
    else:
        _print_verdicts(one, judged)
        if before and lost:
            _print_differences(before, lost)
    if missed or lost:
        raise typer.Exit(1)


@app.command("report")
@command
def report(
    evaluations: ReferencesArgument, output: OutputOption = Path("evaluation.html"), *, common: TenantOptions
) -> None:
    """Write a report as one HTML file: quality, time by stage, and questions that are won or lost against the first."""
    from kosmos_rag.evaluation.report import report

    with common.open_engine() as engine:
        found = [_get(engine, common.tenant, reference) for reference in evaluations]
    write(output, report(found))
    if common.as_json:
        print_json({"report": str(output), "evaluations": [one.name for one in found]})
    else:
        console().print(f"written: {output}")


@app.command("delete")
@command
def delete(evaluation: ReferenceArgument, *, common: TenantOptions) -> None:
    """Remove an evaluation with its results."""
    with common.open_engine() as engine:
        one = _get(engine, common.tenant, evaluation)
        _stored(engine, one.tenant).delete(one)
    if common.as_json:
        print_json({"deleted": one.name})
    else:
        console().print(f"deleted: {one.name} ({one.label})")


app.command("tune")(evaluation_tune.tune)
app.command("questions")(evaluation_questions.questions)


def _stored(engine: "Engine", name: str) -> "Evaluations":
    from kosmos_rag.evaluation import Evaluations
    from kosmos_rag.storage.tenants import tenant

    return Evaluations(engine.parts.database, tenant(name))


def _get(engine: "Engine", tenant: str, reference: str) -> "Evaluation":
    of_tenant, slash, rest = reference.partition("/")
    return _stored(engine, of_tenant if slash else tenant).get(rest if slash else reference)


def _as_object(evaluation: "Evaluation") -> dict[str, Any]:
    from kosmos_rag.evaluation.types import percentile

    fields = plain(evaluation)
    del fields["results"]
    stages = {
        stage: {"p50": round(percentile(times, 0.5), 3), "p95": round(percentile(times, 0.95), 3)}
        for stage, times in evaluation.timings().items()
    }
    return {"name": evaluation.name, **fields, "timings_ms": stages}


def _print_evaluations(listed: "Sequence[Evaluation]") -> None:
    from kosmos_rag.evaluation.types import percentile

    measures = list(dict.fromkeys(name for one in listed for name, value in one.measures.items() if _told(name, value)))
    timed = any(one.results for one in listed)
    columns = ["evaluation", "at", "set", "questions", "configuration", *measures, *(["p50 ms", "p95 ms"] * timed), "s"]
    rows = table(*columns, right={"questions", *measures, "p50 ms", "p95 ms", "s"})
    for one in listed:
        times = one.timings().get("total", [])
        rows.add_row(
            one.name,
            f"{one.at:%Y-%m-%d %H:%M}",
            one.set_name,
            str(one.questions),
            one.label,
            *(f"{one.measures[name]:.4f}" if name in one.measures else "" for name in measures),
            *([f"{percentile(times, share):.1f}" if times else "" for share in (0.5, 0.95)] * timed),
            f"{one.seconds:.1f}",
        )
    console().print(rows)


def _told(measure: str, value: float) -> bool:
    """Whether a measure has something to say: that no stage was left out is what is expected."""
    from kosmos_rag.evaluation.types import DEGRADED

    return measure != DEGRADED or value > 0


def _print_differences(baseline: "Evaluation", found: "Sequence[Difference]") -> None:
    columns = ("measure", "evaluation", "baseline", "here", "difference", "95 %", "p", "corrected p", "won", "lost", "")
    rows = table(*columns, right=set(columns) - {"measure", "evaluation", ""})
    for one in found:
        rows.add_row(
            one.measure,
            one.evaluation,
            f"{one.baseline_mean:.4f}",
            f"{one.mean:.4f}",
            f"{one.difference:+.4f}",
            f"{one.low:+.4f} to {one.high:+.4f}",
            f"{one.p:.4f}",
            f"{one.corrected_p:.4f}",
            str(one.wins),
            str(one.losses),
            ("worse" if one.worse else "better") if one.significant else "",
        )
    out = console()
    out.print(f"baseline {baseline.name} ({baseline.label}), {baseline.questions} questions of {baseline.set_name}")
    out.print(rows)


def _print_verdicts(evaluation: "Evaluation", judged: "Sequence[Verdict]") -> None:
    rows = table("measure", "value", "target", "alert", "state", right={"value", "target", "alert"})
    for one in judged:
        bounds = ["" if bound is None else f"{bound:g}" for bound in (one.target, one.alert)]
        rows.add_row(one.measure, f"{one.value:.4f}", *bounds, one.state)
    out = console()
    out.print(f"{evaluation.name} ({evaluation.label}), {evaluation.questions} questions of {evaluation.set_name}")
    out.print(rows)
