"""Ingestion worker: runs document and sync jobs, and those of wings.

It serves all tenants, and mirrors the given paths.
"""

import argparse
import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.core.telemetry.logging import set_up_logging
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.job_kinds import NO_WINGS, WingJobs
from kosmos_rag.storage.queue import kinds
from kosmos_rag.worker.supervisor import run_worker

log = logging.getLogger("kosmos_rag.worker")


def _parse_interval(text: str) -> timedelta:
    try:
        return timedelta(seconds=float(text))
    except (OverflowError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from error


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers.ingest", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="folders and files to mirror")
    parser.add_argument("--tenant", default="default", help="tenant of the documents")
    parser.add_argument("--collection", help="collection of the documents; else the one named default")
    parser.add_argument(
        "--every", type=_parse_interval, default="60", metavar="SECONDS", help="interval between two syncs of the paths"
    )
    parser.add_argument("--until-idle", action="store_true", help="sync once, and exit when the queue is empty")
    parser.add_argument("--config", type=Path, help="settings file")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None, *, wings: WingJobs = NO_WINGS) -> int:
    """Run the worker, with what wings add.

    Returns 1 where it could not run, or where a job failed with --until-idle; else 0.
    """
    arguments = _parse_arguments(argv)
    try:
        settings = Settings.load(arguments.config)
        set_up_logging(settings.observability)
        with Engine.open(settings) as engine:
            jobs = engine.tenant(arguments.tenant, collection=arguments.collection).jobs
            for path in arguments.paths:
                jobs.enqueue(path, every=None if arguments.until_idle else arguments.every)
            supervisor = run_worker(settings, kinds=kinds.INGESTION, wings=wings, until_idle=arguments.until_idle)
    except KosmosError as error:
        log.error("%s", error, extra={"action": "worker_failed"})
        return 1
    return int(arguments.until_idle and supervisor.failed > 0)
