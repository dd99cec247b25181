"""Maintenance worker: runs maintain, reconcile and audit jobs of all tenants.

`kosmos-rag worker` runs them too; a worker of its own keeps long index builds from delaying documents.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.core.telemetry.logging import set_up_logging
from kosmos_rag.engine.job_kinds import NO_WINGS, WingJobs
from kosmos_rag.storage.queue import kinds
from kosmos_rag.worker.supervisor import run_worker

log = logging.getLogger("kosmos_rag.worker")


def main(argv: Sequence[str] | None = None, *, wings: WingJobs = NO_WINGS) -> int:
    """Run the worker, with the maintenance that wings add.

    Returns 0, or 1 where it could not run.
    """
    parser = argparse.ArgumentParser(prog="workers.maintenance", description=__doc__)
    parser.add_argument("--until-idle", action="store_true", help="exit when nothing is due")
    parser.add_argument("--config", type=Path, help="settings file")
    arguments = parser.parse_args(argv)
    try:
        settings = Settings.load(arguments.config)
        set_up_logging(settings.observability)
        maintenance = WingJobs(maintenance=wings.maintenance)
        run_worker(settings, kinds=kinds.UPKEEP, wings=maintenance, until_idle=arguments.until_idle)
    except KosmosError as error:
        log.error("%s", error, extra={"action": "worker_failed"})
        return 1
    return 0
