"""The ingestion worker: mirrors folders into a tenant, again and again, until it is told to stop.

Argument parsing and signals only; what it does is `TenantScope.ingest`. Run it as `python -m workers.ingest --help`.
"""

import argparse
import logging
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from kosmos_rag import Engine, KosmosError, Settings

log = logging.getLogger("kosmos_rag.worker")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers.ingest", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="folders and files to mirror")
    parser.add_argument("--tenant", default="default", help="whose documents they are")
    parser.add_argument("--config", type=Path, help="settings file")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS", help="pause between two rounds")
    parser.add_argument("--once", action="store_true", help="stop after one round")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the worker. Returns 0, or 1 where the last round failed."""
    arguments = _arguments(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    settings = Settings.load(arguments.config)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    failed = False
    with Engine.open(settings) as engine:
        scope = engine.tenant(arguments.tenant)
        while not stop.is_set():
            failed = False
            try:
                report = scope.ingest(arguments.paths)
            except KosmosError as error:
                # The database may be back in the next round; a supervisor sees the exit code with --once.
                log.error("%s", error, extra={"action": "ingest_failed", "tenant": scope.name})
                failed = True
            else:
                failed = bool(report.failed)
                log.info(
                    "%d new, %d changed, %d unchanged, %d removed, %d failed in %.1f s",
                    report.new, report.changed, report.unchanged, report.removed, len(report.failed), report.seconds,
                    extra={"action": "ingest_done", "tenant": scope.name},
                )  # fmt: skip
                for failure in report.failed:
                    log.warning(
                        "%s [%s]: %s",
                        failure.source,
                        failure.code,
                        failure.message,
                        extra={"action": "document_failed"},
                    )
            if arguments.once:
                break
            stop.wait(arguments.every)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
