"""Entry point of the maintenance worker: `python -m workers.maintenance --help`."""

from kosmos_rag.wings import load_wing_jobs
from kosmos_rag.worker.commands.maintenance import main

if __name__ == "__main__":
    raise SystemExit(main(wings=load_wing_jobs()))
