"""The command line: one file for each command, thin over the library.

`main` is what `kosmos-rag` runs.
"""

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    # Here: each process of a worker imports this module again, as the main module of the one that started it.
    from kosmos_rag.apps.cli.app import main as run

    run()
