"""Mount the commands of the wings."""

from collections.abc import Iterator
from importlib import import_module

import typer

from kosmos_rag.core.mounting import is_present

_GROUPS = (("Questions", "schema", "kosmos_rag.text2sql.commands"),)
"""Heading of the help, name, and the module whose `app` is the group. Modules import heavy ones in their functions."""


def load_command_groups() -> Iterator[tuple[str, str, typer.Typer]]:
    """Yield heading, name and commands of each group of a present wing."""
    for heading, name, module in _GROUPS:
        if is_present(module):
            yield heading, name, import_module(module).app
