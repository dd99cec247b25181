"""kosmos-rag guard: whether questions find what they should, and no more."""

from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    console,
    plain,
    print_json,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kosmos_rag.core.types import MonitorRun

app = typer.Typer(help="Measure live questions again, ask what has known answers, and try to read others' secrets.")


@app.command("run")
@command
def run(*, common: TenantOptions) -> None:
    """Look at everything now, due or not, and act as guard.act says. Exits with 1 on an alarm."""
    with common.open_engine() as engine:
        from kosmos_rag.evaluation.monitor.monitor import RecallMonitor

        found = RecallMonitor(engine).run(
            common.tenant, progress=None if common.as_json else lambda step: typer.echo(f"{step} …", err=True)
        )
    if common.as_json:
        print_json({"tenant": common.tenant, "runs": [plain(one) for one in found]})
    else:
        _print(found)
    if any(one.state == "alarm" for one in found):
        raise typer.Exit(1)


@app.command("status")
@command
def status(
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many runs, the latest first.")] = 20,
    *,
    common: TenantOptions,
) -> None:
    """Show what the latest runs came to, and how many samples wait for the next."""
    with common.open_engine() as engine:
        from kosmos_rag.evaluation.monitor.monitor import RecallMonitor

        guard = RecallMonitor(engine)
        found, waiting = guard.status(common.tenant, limit=limit), guard.waiting(common.tenant)
    if common.as_json:
        print_json({"tenant": common.tenant, "waiting": waiting, "runs": [plain(one) for one in found]})
        return
    _print(found)
    console().print(f"{waiting} samples wait")


def _print(found: "Sequence[MonitorRun]") -> None:
    if not found:
        console().print("nothing was measured: no vector index, and no question file")
        return
    shown = table("at", "kind", "state", "reason", "done", "ms", right={"ms"})
    for one in found:
        done = str(one.figures.get("action", ""))
        shown.add_row(f"{one.at:%Y-%m-%d %H:%M:%S}", one.kind, one.state, one.reason, done, f"{one.milliseconds:,.0f}")
    console().print(shown)
