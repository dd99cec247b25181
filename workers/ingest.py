"""Entry point of the ingestion worker: `python -m workers.ingest --help`."""

from kosmos_rag.wings import load_wing_jobs
from kosmos_rag.worker.commands.ingest import main

if __name__ == "__main__":
    raise SystemExit(main(wings=load_wing_jobs()))
