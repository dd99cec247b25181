"""kosmos-rag experiment: A/B-test a second configuration.

It runs in shadow mode or for a share of queries.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import (
    console,
    overrides,
    print_json,
    table,
)
from kosmos_rag.apps.cli.options import ReadOptions, TenantOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.evaluation.experiments.records import ArmDifference, ArmReport, ExperimentInfo, ExperimentReport

app = typer.Typer(help="A/B-test a second configuration, in shadow mode or for a share of the questions.")

NameArgument = Annotated[str, typer.Argument(help="Name of the experiment.")]


@app.command("start")
@command
def start(
    name: NameArgument,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--change", metavar="KEY=VALUE", help="A setting that differs in the second configuration; may be repeated."
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="YAML file of changed settings, like a preset.")
    ] = None,
    share: Annotated[float, typer.Option("--share", help="Share of the questions, up to 1.")] = 0.1,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="shadow: readers get the present results; serve: the second configuration answers its share.",
        ),
    ] = "shadow",
    *,
    common: ReadOptions,
) -> None:
    """Start an experiment, from the next question on."""
    if (change is None) == (settings is None):
        raise RequestError("name the changed settings: either --change rag.retrieval.fusion=score, or --settings FILE")
    from kosmos_rag.evaluation.experiments.experiments import Experiments

    settings_change: Path | dict[str, Any] = overrides(change) if settings is None else settings
    with common.open_engine() as engine:
        tenant = engine.tenant(common.tenant, collection=common.collection)
        info = Experiments(tenant).start(name, settings_change, share=share, mode=mode)
    if common.as_json:
        print_json({"tenant": common.tenant, "experiment": info.to_dict()})
    else:
        console().print(
            f"{_title(info)} runs for tenant {common.tenant}; "
            f"`kosmos-rag experiment status {name} -t {common.tenant}` compares"
        )


@app.command("status")
@command
def status(
    name: Annotated[str | None, typer.Argument(help="Name of the experiment; default: list all.")] = None,
    *,
    common: TenantOptions,
) -> None:
    """Compare the two configurations of an experiment, or list the experiments."""
    from kosmos_rag.evaluation.experiments.experiments import Experiments

    with common.open_tenant() as tenant:
        experiments = Experiments(tenant)
        report = None if name is None else experiments.status(name)
        infos = experiments.infos() if name is None else []
    if report is not None:
        _print_status(report, common.tenant, as_json=common.as_json)
    elif common.as_json:
        print_json({"tenant": common.tenant, "experiments": [info.to_dict() for info in infos]})
    else:
        _print_infos(infos, common.tenant)


@app.command("stop")
@command
def stop(name: NameArgument, *, common: TenantOptions) -> None:
    """Stop an experiment, from the next question on, and show its report."""
    from kosmos_rag.evaluation.experiments.experiments import Experiments

    with common.open_tenant() as tenant:
        report = Experiments(tenant).stop(name)
    _print_status(report, common.tenant, as_json=common.as_json)


def _print_status(report: "ExperimentReport", tenant: str, *, as_json: bool) -> None:
    if as_json:
        summary = report.to_dict()
        for entry, difference in zip(summary["differences"], report.differences, strict=True):
            entry["significant"] = difference.significant
        print_json({"tenant": tenant, **summary})
    else:
        _print_report(report)


def _title(info: "ExperimentInfo") -> str:
    where = "all collections" if info.collection is None else f"the collection {info.collection}"
    return f"the experiment {info.name} ({info.mode}, {info.share:.0%} of the questions to {where})"


def _print_infos(infos: "list[ExperimentInfo]", tenant: str) -> None:
    rows = table("name", "collection", "mode", "share", "started (UTC)", "stopped (UTC)")
    for info in infos:
        state = f"{info.stopped_at:%Y-%m-%d %H:%M}" if info.stopped_at else "runs"
        cells = (info.name, info.collection or "-", str(info.mode), f"{info.share:.0%}")
        rows.add_row(*cells, f"{info.started_at:%Y-%m-%d %H:%M}", state)
    console().print(rows if infos else f"no experiments of tenant {tenant}")


def _print_report(report: "ExperimentReport") -> None:
    out, info = console(), report.experiment
    state = f"stopped {info.stopped_at:%Y-%m-%d %H:%M} UTC" if info.stopped_at else "runs"
    out.print(f"{_title(info)} {state}", style="bold")
    out.print(
        f"{report.results} questions: {report.compared} compared, {report.failed} failed, {report.degraded} degraded"
    )
    if report.faults:
        out.print(f"failed with {', '.join(f'{name} ({times})' for name, times in report.faults.items())}")
    if report.overlap is not None and report.rbo is not None:
        out.print(
            f"overlap {report.overlap:.3f}, rank-biased overlap {report.rbo:.3f}, "
            f"{report.identical} of {report.compared} the same"
        )
    rows = table("configuration", "questions", "p50 ms", "p95 ms", "short of k", "served", "up", "down", "clicked")
    for arm in report.arms:
        rows.add_row(*_cells(arm))
    out.print(rows)
    for difference in report.differences:
        out.print(_line(difference))
    if report.shortage:
        out.print(f"no result yet: {report.shortage}")


def _cells(arm: "ArmReport") -> tuple[str, ...]:
    times = ("-" if value is None else f"{value:.1f}" for value in (arm.p50_ms, arm.p95_ms))
    counts = (arm.short, arm.served, arm.up, arm.down, arm.clicked)
    return (str(arm.arm), str(arm.questions), *times, *map(str, counts))


def _line(difference: "ArmDifference") -> str:
    unit = " ms at the median" if difference.of == "latency" else ""
    summary = f"{difference.of}: {difference.first:g} and {difference.second:g}{unit}"
    if difference.p is None:
        return f"{summary}; {difference.reason}"
    verdict = "significant" if difference.significant else "not significant"
    return f"{summary}; {verdict}, p {difference.p:.4f} ({difference.reason})"
