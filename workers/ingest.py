"""The ingestion worker: works on the queue of all tenants, and puts into it what it is told to mirror.

Argument parsing only; what it does is `run_worker`. Run it as `python -m workers.ingest --help`.
"""

import argparse
import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from kosmos_rag import Engine, KosmosError, Settings
from kosmos_rag.apps.worker import run_worker
from kosmos_rag.core.telemetry.logging import set_up_logging

log = logging.getLogger("kosmos_rag.apps.worker")

KINDS = ("document", "sync", "schema")


def _pause(text: str) -> timedelta:
    try:
        return timedelta(seconds=float(text))
    except (OverflowError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from error


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers.ingest", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="folders and files to mirror")
    parser.add_argument("--tenant", default="default", help="whose documents they are")
    parser.add_argument("--collection", help="which collection of theirs; else the one named default")
    parser.add_argument("--every", type=_pause, default="60", metavar="SECONDS", help="pause between two looks at them")
    parser.add_argument("--until-idle", action="store_true", help="look once, and exit when no job is left")
    parser.add_argument("--config", type=Path, help="settings file")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the worker. Returns 0, or 1 where it could not work, or was to work until idle and a job failed."""
    arguments = _arguments(argv)
    try:
        settings = Settings.load(arguments.config)
        set_up_logging(settings.observability)
        with Engine.open(settings) as engine:
            jobs = engine.tenant(arguments.tenant, collection=arguments.collection).jobs
            for path in arguments.paths:
                jobs.enqueue(path, every=None if arguments.until_idle else arguments.every)
            done = run_worker(settings, kinds=KINDS, until_idle=arguments.until_idle)
    except KosmosError as error:
        log.error("%s", error, extra={"action": "worker_failed"})
        return 1
    return int(arguments.until_idle and done.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
