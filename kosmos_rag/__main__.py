"""`python -m kosmos_rag` is `kosmos-rag`."""

from kosmos_rag.apps.cli import main

main()
