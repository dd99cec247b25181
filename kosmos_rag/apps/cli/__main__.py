"""`python -m kosmos_rag.apps.cli` is `kosmos-rag`."""

from kosmos_rag.apps.cli.app import main

main()
