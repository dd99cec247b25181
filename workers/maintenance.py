"""Entry point of the maintenance worker: `python -m workers.maintenance --help`."""

from kosmos_rag.worker.commands.maintenance import main

if __name__ == "__main__":
    raise SystemExit(main())
