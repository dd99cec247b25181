"""The command line: one file for each command, thin over the library.

`main` is what `kosmos-rag` runs.
"""

from kosmos_rag.apps.cli.app import main

__all__ = ["main"]
