"""Command lines of workers for some kinds of jobs.

`python -m workers.ingest` and `python -m workers.maintenance` run them in a checkout, where `kosmos-rag worker --kinds`
runs the same jobs.
"""
