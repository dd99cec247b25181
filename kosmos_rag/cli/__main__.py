"""`python -m kosmos_rag.cli` is `kosmos-rag`."""

from kosmos_rag.cli.app import main

main()
