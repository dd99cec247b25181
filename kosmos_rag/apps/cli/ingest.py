"""kosmos-rag ingest: ingest files and folders into a collection."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from kosmos_rag.apps.cli.common import (
    RootOption,
    console,
    print_json,
    require_not_blank,
)
from kosmos_rag.apps.cli.options import WriteOptions, command
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import IngestInterrupted, KosmosError
from kosmos_rag.core.telemetry.metrics import INGESTION_EMBEDDED_CHUNKS, INGESTION_STAGE_SECONDS, Metric
from kosmos_rag.core.text.counts import count

if TYPE_CHECKING:
    from kosmos_rag.core.types import IngestReport
    from kosmos_rag.engine.tenant import Tenant

_INTERRUPTED = 130
"""Exit status of shells after Ctrl-C."""


@command
def ingest(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files and folders.")],
    keep_missing: Annotated[
        bool, typer.Option("--keep-missing", help="Keep documents whose file is missing from a named folder.")
    ] = False,
    root: RootOption = None,
    *,
    common: WriteOptions,
) -> None:
    """Ingest files and folders. Unchanged files are skipped; folders are mirrored.

    Exits with 1 when a document failed; all others are ingested. Exits with 130 when it is interrupted (Ctrl-C): what
    is stored stays, and the same command continues.
    """
    require_not_blank(paths, "PATH")
    with common.open_engine() as engine:
        tenant = engine.tenant(common.tenant, collection=common.collection)
        interruption: IngestInterrupted | None = None
        try:
            if common.as_json:
                report = tenant.ingest(paths, prune=not keep_missing, root=root)
            else:
                with _ProgressBar() as progress:
                    engine.observe(progress)
                    report = tenant.ingest(paths, prune=not keep_missing, root=root, on_progress=progress.advance)
        except IngestInterrupted as error:
            interruption, report = error, error.report
        if common.as_json:
            print_json(_serialize_report(report))
        else:
            _print(report)
            _print_due_indexes(tenant)
    if interruption:
        typer.echo(str(interruption), err=True)
        raise typer.Exit(_INTERRUPTED)
    if report.failed:
        raise typer.Exit(1)


class _ProgressBar:
    """A progress bar on standard error; the result goes to standard output.

    It observes the engine: a batch of documents is stored at once, and its chunks are embedded one after another.
    """

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("documents"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("loading the model", total=None)
        self._read = self._embedded = 0
        return self

    def advance(self, completed: int, total: int, source: str) -> None:
        """Show the documents that are done."""
        self._bar.update(self._task, completed=completed, total=total, description=Path(source).name[:40])

    def record(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        """Show the stage of the present batch, as an Observer."""
        if metric is INGESTION_EMBEDDED_CHUNKS:
            self._embedded += int(value)
            self._bar.update(self._task, description=f"{count(self._embedded, 'chunk')} embedded")
        elif metric is INGESTION_STAGE_SECONDS and labels == ("chunk",):
            self._read += 1
            self._bar.update(self._task, description=f"{count(self._read, 'document')} read")

    def gauge(self, metric: Metric, read: Callable[[], float], *labels: str) -> None:
        """Ignore values that are read later, as an Observer."""

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _print_due_indexes(tenant: "Tenant") -> None:
    """Print a note if indexes are due.

    A failure to check is ignored.
    """
    with suppress(KosmosError):
        if any(info.due for info in tenant.indexes.status()):
            console().print(
                f"indexes are due; without them questions are slow: kosmos-rag index build -t {tenant.name}"
            )


def _serialize_report(report: "IngestReport") -> dict[str, object]:
    return {
        "new": report.new,
        "changed": report.changed,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "failed": [
            {"source": failure.source, "code": failure.code, "message": failure.message} for failure in report.failed
        ],
        "chunks": report.chunks,
        "reused": report.reused,
        "fallbacks": dict(report.fallbacks),
        "empty": report.empty,
        "seconds": report.seconds,
    }


def _print(report: "IngestReport") -> None:
    out = console()
    empty = f", {report.empty} empty" if report.empty else ""
    reused = f", {report.reused} of them embedded before" if report.reused else ""
    out.print(
        f"{report.new} new, {report.changed} changed, {report.unchanged} unchanged, {report.removed} removed, "
        f"{len(report.failed)} failed{empty}; {count(report.chunks, 'chunk')} in {report.seconds:.1f} s{reused}"
    )
    for reason, chunks in sorted(report.fallbacks.items()):
        out.print(f"  {count(chunks, 'chunk')} by the fallback chunker: {reason}")
    for failure in report.failed:
        out.print(f"  failed [{failure.code}] {one_line(failure.source)}: {failure.message}")
