"""The command line: one file a command, each a thin face of the library. `main` is what `kosmos-rag` runs."""

from kosmos_rag.apps.cli.app import main

__all__ = ["main"]
