"""Command lines of workers for some kinds of jobs: `python -m workers.ingest`, `python -m workers.maintenance`."""
