"""The maintenance worker: indexes, leftovers, old jobs, seals, and what does not add up, of all tenants.

A tenant's maintenance is in the queue from its first job on; `kosmos-rag worker` does it too. A worker of its own keeps
long index builds from holding up documents. Run it as `python -m workers.maintenance --help`.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from kosmos_rag import KosmosError, Settings
from kosmos_rag.apps.worker import run_worker
from kosmos_rag.core.telemetry.logging import set_up_logging

log = logging.getLogger("kosmos_rag.apps.worker")

KINDS = ("maintain", "reconcile", "audit")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the worker. Returns 0, or 1 where it could not work."""
    parser = argparse.ArgumentParser(prog="workers.maintenance", description=__doc__)
    parser.add_argument("--until-idle", action="store_true", help="exit when nothing is due")
    parser.add_argument("--config", type=Path, help="settings file")
    arguments = parser.parse_args(argv)
    try:
        settings = Settings.load(arguments.config)
        set_up_logging(settings.observability)
        run_worker(settings, kinds=KINDS, until_idle=arguments.until_idle)
    except KosmosError as error:
        log.error("%s", error, extra={"action": "worker_failed"})
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
