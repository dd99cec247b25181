"""The ingestion worker: mirrors folders into a collection of a tenant, again and again, until it is told to stop.

Argument parsing and signals only; what it does is `TenantScope.ingest`, and `index_build` after it. Run it as
`python -m workers.ingest --help`.
"""

import argparse
import logging
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from kosmos_rag import Engine, IngestReport, KosmosError, Settings, TenantScope
from kosmos_rag.logs import set_up_logging

log = logging.getLogger("kosmos_rag.worker")


class _StoppedError(Exception):
    """Raised between two batches: what was published stays, the rest is for the next start."""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers.ingest", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="folders and files to mirror")
    parser.add_argument("--tenant", default="default", help="whose documents they are")
    parser.add_argument("--collection", help="which collection of theirs; else the one named default")
    parser.add_argument("--config", type=Path, help="settings file")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS", help="pause between two rounds")
    parser.add_argument("--once", action="store_true", help="stop after one round")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the worker. Returns 0, or 1 where it could not start or its last round failed."""
    arguments = _arguments(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = Settings.load(arguments.config)
        set_up_logging(settings.observability)
        with Engine.open(settings) as engine:
            scope = engine.tenant(arguments.tenant, collection=arguments.collection)
            return int(not _rounds(scope, arguments, stop))
    except KosmosError as error:
        log.error("%s", error, extra={"action": "worker_failed"})
        return 1


def _rounds(scope: TenantScope, arguments: argparse.Namespace, stop: threading.Event) -> bool:
    """Ingest until stopped. Returns whether the last round had no failure."""
    succeeded, indexes_owed = True, True
    while not stop.is_set():
        try:
            report = _round(scope, arguments.paths, stop)
            succeeded = not report.failed
            if indexes_owed or report.new or report.changed or report.removed:
                indexes_owed = not _look_after_indexes(scope, stop)
        except _StoppedError:
            break
        except KosmosError as error:
            # The database may be back in the next round.
            log.error("%s", error, extra={"action": "ingest_failed", "tenant": scope.name})
            succeeded = False
        if arguments.once:
            break
        stop.wait(arguments.every)
    return succeeded


def _round(scope: TenantScope, paths: Sequence[Path], stop: threading.Event) -> IngestReport:
    def stop_here(_done: int, _total: int, _source: str) -> None:
        if stop.is_set():
            raise _StoppedError

    report = scope.ingest(paths, on_progress=stop_here)
    log.info(
        "%d new, %d changed, %d unchanged, %d removed, %d failed in %.1f s",
        report.new, report.changed, report.unchanged, report.removed, len(report.failed), report.seconds,
        extra={"action": "ingest_done", "tenant": scope.name},
    )  # fmt: skip
    for failure in report.failed:
        log.warning("%s [%s]: %s", failure.source, failure.code, failure.message, extra={"action": "document_failed"})
    return report


def _look_after_indexes(scope: TenantScope, stop: threading.Event) -> bool:
    """Build what has become due; returns whether nothing is owed. Until then questions are answered by a scan."""

    def stop_here(step: str) -> None:
        if stop.is_set():
            raise _StoppedError
        log.info("%s", step, extra={"action": "index_build", "tenant": scope.name})

    try:
        scope.index_build(stop_here)
    except KosmosError as error:
        log.warning("%s", error, extra={"action": "index_build_left", "tenant": scope.name})
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
