"""kosmos-rag experiment: a second configuration beside the first, in the shadow or in service."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import (
    console,
    overrides,
    plain,
    print_json,
    table,
)
from kosmos_rag.apps.cli.options import ReadOptions, TenantOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.types import ArmDifference, ArmReport, ExperimentInfo, ExperimentReport

app = typer.Typer(help="A second configuration of the questions: in the shadow, or for a share of them in service.")

NameArgument = Annotated[str, typer.Argument(help="Name of the experiment.")]


@app.command("start")
@command
def start(
    name: NameArgument,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--change", metavar="KEY=VALUE", help="A setting that the second one differs in; may be repeated."
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="Or a YAML file of them, like a preset.")
    ] = None,
    share: Annotated[float, typer.Option("--share", help="Of the questions, up to 1.")] = 0.1,
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="shadow, or serve: the second one answers the share.")
    ] = "shadow",
    *,
    common: ReadOptions,
) -> None:
    """Begin to ask a share of the questions of a second configuration, from the next question on."""
    if (change is None) == (settings is None):
        raise RequestError("name what differs: either --change rag.retrieval.fusion=score, or --settings FILE")
    wanted: Path | dict[str, Any] = overrides(change) if settings is None else settings
    with common.open_engine() as engine:
        made = engine.tenant(common.tenant, collection=common.collection).experiments.start(
            name, wanted, share=share, mode=mode
        )
    if common.as_json:
        print_json({"tenant": common.tenant, "experiment": plain(made)})
    else:
        console().print(
            f"{_title(made)} runs for tenant {common.tenant}; "
            f"`kosmos-rag experiment status {name} -t {common.tenant}` compares"
        )


@app.command("status")
@command
def status(
    name: Annotated[str | None, typer.Argument(help="Name of the experiment; else all of them are listed.")] = None,
    *,
    common: TenantOptions,
) -> None:
    """Compare the two configurations of an experiment, or list the experiments."""
    with common.open_tenant() as owner:
        experiments = owner.experiments
        report = None if name is None else experiments.status(name)
        infos = experiments.infos() if name is None else []
    if report is not None:
        _tell(report, common.tenant, as_json=common.as_json)
    elif common.as_json:
        print_json({"tenant": common.tenant, "experiments": [plain(info) for info in infos]})
    else:
        _print_infos(infos, common.tenant)


@app.command("stop")
@command
def stop(name: NameArgument, *, common: TenantOptions) -> None:
    """End an experiment, from the next question on, and show what came of it."""
    with common.open_tenant() as owner:
        report = owner.experiments.stop(name)
    _tell(report, common.tenant, as_json=common.as_json)


def _tell(report: "ExperimentReport", tenant: str, *, as_json: bool) -> None:
    if as_json:
        told = plain(report)
        for one, difference in zip(told["differences"], report.differences, strict=True):
            one["significant"] = difference.significant
        print_json({"tenant": tenant, **told, "experiment": plain(report.experiment)})
    else:
        _print_report(report)


def _title(info: "ExperimentInfo") -> str:
    where = "all collections" if info.collection is None else f"the collection {info.collection}"
    return f"the experiment {info.name} ({info.mode}, {info.share:.0%} of the questions to {where})"


def _print_infos(infos: "list[ExperimentInfo]", tenant: str) -> None:
    rows = table("name", "collection", "mode", "share", "started (UTC)", "stopped (UTC)")
    for info in infos:
        ended = f"{info.stopped_at:%Y-%m-%d %H:%M}" if info.stopped_at else "runs"
        what = (info.name, info.collection or "-", str(info.mode), f"{info.share:.0%}")
        rows.add_row(*what, f"{info.started_at:%Y-%m-%d %H:%M}", ended)
    console().print(rows if infos else f"no experiments of tenant {tenant}")


def _print_report(report: "ExperimentReport") -> None:
    out, info = console(), report.experiment
    ended = f"stopped {info.stopped_at:%Y-%m-%d %H:%M} UTC" if info.stopped_at else "runs"
    out.print(f"{_title(info)} {ended}", style="bold")
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
        out.print(f"too little to tell: {report.shortage}")


def _cells(arm: "ArmReport") -> tuple[str, ...]:
    times = ("-" if took is None else f"{took:.1f}" for took in (arm.p50_ms, arm.p95_ms))
    counts = (arm.short, arm.served, arm.up, arm.down, arm.clicked)
    return (str(arm.arm), str(arm.questions), *times, *map(str, counts))


def _line(difference: "ArmDifference") -> str:
    unit = " ms at the median" if difference.of == "latency" else ""
    told = f"{difference.of}: {difference.first:g} and {difference.second:g}{unit}"
    if difference.p is None:
        return f"{told}; {difference.reason}"
    verdict = "more than chance" if difference.significant else "no more than chance"
    return f"{told}; {verdict}, p {difference.p:.4f} ({difference.reason})"
