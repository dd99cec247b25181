"""kosmos-rag worker: work on the queue."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json
from kosmos_rag.apps.cli.options import CommonOptions, command

if TYPE_CHECKING:
    from kosmos_rag.apps.worker import Supervisor


@command
def worker(
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when no job is left.")] = False,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Processes that work; else worker.processes.")
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Work on the jobs of all tenants: documents, sources, maintenance. SIGTERM lets what runs end.

    With --until-idle exits with 1 where a job failed.
    """
    settings = common.load_settings(*([f"worker.processes={processes}"] if processes else ()))
    from kosmos_rag.apps.worker import run_worker

    if common.as_json or not sys.stderr.isatty():
        done = run_worker(settings, until_idle=until_idle)
    else:
        with _Display() as display:
            done = run_worker(settings, until_idle=until_idle, on_progress=display.show)
    failed = _report(done, as_json=common.as_json)
    if until_idle and failed:
        raise typer.Exit(1)


class _Display:
    """A line on standard error: what is done, and what waits."""

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
        """Show how far a supervisor has come."""
        done = supervisor.metrics.total("documents") + supervisor.metrics.total("failures")
        self._bar.update(self._task, completed=done, total=done + supervisor.count_unfinished())


def _report(done: "Supervisor", *, as_json: bool) -> int:
    metrics = done.metrics
    outcomes = ("new", "changed", "unchanged", "removed")
    documents = {outcome: int(metrics.total("documents", outcome)) for outcome in outcomes}
    failed, chunks = done.failed, int(metrics.total("chunks"))
    if as_json:
        print_json({**documents, "failed": failed, "chunks": chunks})
    else:
        counted = ", ".join(f"{count} {outcome}" for outcome, count in documents.items())
        console().print(f"{counted}, {failed} failed; {chunks} chunks")
    return failed
