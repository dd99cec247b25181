"""kosmos-rag worker: run jobs of the queue."""

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.text.counts import count

if TYPE_CHECKING:
    from kosmos_rag.engine.job_kinds import WingJobs
    from kosmos_rag.worker.supervisor import Supervisor


@command
def worker(
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when the queue is empty.")] = False,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Number of processes; default: worker.processes.")
    ] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            "--kinds",
            metavar="KIND,…",
            help="Kinds of jobs, such as document and sync, or the groups ingestion and maintenance; default: all.",
        ),
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Run the jobs of all tenants: documents, sources, maintenance.

    On SIGTERM running jobs have worker.drain_s seconds to finish.

    With --until-idle, exits with 1 where a job failed.
    """
    settings = common.load_settings(*([f"worker.processes={processes}"] if processes else ()))
    from kosmos_rag.core.extras import require_extra

    require_extra("worker", "kosmos-rag worker", "prometheus_client", "psutil")
    from kosmos_rag.worker.supervisor import run_worker

    kernel_kinds, wings = _choose_kinds(kinds)
    run = partial(run_worker, settings, kinds=kernel_kinds, wings=wings, until_idle=until_idle)
    if common.as_json or not sys.stderr.isatty():
        supervisor = run()
    else:
        with _Display() as display:
            supervisor = run(on_progress=display.show)
    failed = _report(supervisor, as_json=common.as_json)
    if until_idle and failed:
        raise typer.Exit(1)


def _choose_kinds(names: str | None) -> "tuple[tuple[str, ...], WingJobs]":
    """Return the named kinds of the kernel, and those of the wings. Raises RequestError."""
    from kosmos_rag.engine.job_kinds import KERNEL, UPKEEP, WingJobs
    from kosmos_rag.wings import load_wing_jobs

    wings = load_wing_jobs()
    if names is None:
        return KERNEL, wings
    wing_kinds = [kind.name for kind in wings.kinds]
    groups = {"ingestion": (*(kind for kind in KERNEL if kind not in UPKEEP), *wing_kinds), "maintenance": UPKEEP}
    chosen = [kind for name in names.split(",") for kind in groups.get(name.strip(), (name.strip(),))]
    if unknown := [kind for kind in chosen if kind not in {*KERNEL, *wing_kinds}]:
        choices = ", ".join((*KERNEL, *wing_kinds, *groups))
        raise RequestError(f"--kinds has {unknown[0]!r}; choose from {choices}")
    kinds = tuple(kind for kind in wings.kinds if kind.name in chosen)
    maintenance = wings.maintenance if set(UPKEEP) & set(chosen) else ()
    return tuple(kind for kind in KERNEL if kind in chosen), WingJobs(kinds=kinds, maintenance=maintenance)


class _Display:
    """A progress bar of finished and unfinished jobs on standard error."""

    def __enter__(self) -> "_Display":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar: Progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task("documents", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, supervisor: "Supervisor") -> None:
        """Show the progress of a supervisor."""
        finished = supervisor.metrics.total("documents") + supervisor.metrics.total("failures")
        self._bar.update(self._task, completed=finished, total=finished + supervisor.count_unfinished())


def _report(supervisor: "Supervisor", *, as_json: bool) -> int:
    metrics = supervisor.metrics
    outcomes = ("new", "changed", "unchanged", "removed")
    documents = {outcome: int(metrics.total("documents", outcome)) for outcome in outcomes}
    failed, chunks = supervisor.failed, int(metrics.total("chunks"))
    if as_json:
        print_json({**documents, "failed": failed, "chunks": chunks})
    else:
        counts = ", ".join(f"{number} {outcome}" for outcome, number in documents.items())
        console().print(f"{counts}, {failed} failed; {count(chunks, 'chunk')}")
    return failed
