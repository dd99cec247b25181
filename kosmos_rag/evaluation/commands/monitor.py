"""kosmos-rag monitor: recall of live queries, known answers, isolation of tenants."""

from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    console,
    cut,
    print_json,
    print_truncated,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kosmos_rag.evaluation.monitor.records import MonitorRun

app = typer.Typer(help="Measure the recall of live queries and of questions with known answers, and tenant isolation.")


@app.command("run")
@command
def run(*, common: TenantOptions) -> None:
    """Measure now, due or not, and repair as monitor.auto_repair says.

    Exit with 1 on an alarm.
    """
    with common.open_engine() as engine:
        from kosmos_rag.evaluation.monitor.monitor import RecallMonitor

        runs = RecallMonitor(engine).run(common.tenant, progress=common.on_step)
    if common.as_json:
        print_json({"tenant": common.tenant, "runs": [run.to_dict() for run in runs]})
    else:
        _print(runs)
    if any(run.state == "alarm" for run in runs):
        raise typer.Exit(1)


@app.command("status")
@command
def status(
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of runs, the newest first.")] = 20,
    *,
    common: TenantOptions,
) -> None:
    """Show the latest runs, and the number of samples for the next."""
    with common.open_engine() as engine:
        from kosmos_rag.evaluation.monitor.monitor import RecallMonitor

        monitor = RecallMonitor(engine)
        runs, truncated = cut(monitor.status(common.tenant, limit=limit + 1), limit)
        samples = monitor.count_samples(common.tenant)
    if common.as_json:
        values = [run.to_dict() for run in runs]
        print_json({"tenant": common.tenant, "samples": samples, "runs": values, "truncated": truncated})
        return
    _print(runs)
    if truncated:
        print_truncated(limit)
    console().print(f"{samples} samples for the next run")


def _print(runs: "Sequence[MonitorRun]") -> None:
    if not runs:
        console().print("nothing was measured: no vector index, and no question file")
        return
    rows = table("at", "kind", "state", "reason", "repair", "ms", right={"ms"})
    for run in runs:
        repair = str(run.figures.get("action", ""))
        rows.add_row(f"{run.at:%Y-%m-%d %H:%M:%S}", run.kind, run.state, run.reason, repair, f"{run.milliseconds:,.0f}")
    console().print(rows)
