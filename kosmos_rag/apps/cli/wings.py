"""Mount the commands of the wings."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.mounting import import_present

if TYPE_CHECKING:
    from kosmos_rag.engine.spaces import MeasureSpaces
    from kosmos_rag.engine.tenant import Tenant

_GROUPS = (
    ("Questions", "schema", "kosmos_rag.text2sql.commands"),
    ("Quality", "eval", "kosmos_rag.evaluation.commands.evaluation"),
    ("Quality", "experiment", "kosmos_rag.evaluation.commands.experiment"),
    ("Quality", "monitor", "kosmos_rag.evaluation.commands.monitor"),
    ("Quality", "gaps", "kosmos_rag.evaluation.commands.gaps"),
    ("Tenants", "usage", "kosmos_rag.metering.commands"),
    ("Tenants", "webhooks", "kosmos_rag.webhooks.commands"),
    ("Tenants", "siem", "kosmos_rag.siem.commands"),
)
"""Heading of the help, name, and the module whose `app` is the group, or the one command. Modules import heavy ones in
their functions."""


_SPACES = "kosmos_rag.evaluation.offline.embedding_quality"
"""The module that compares two models by questions with known answers."""


def compare_spaces(
    tenant: "Tenant", questions: Path, on_progress: Callable[[int, int, str], None] | None
) -> "MeasureSpaces":
    """Return the comparison of two embedding spaces by a question file.

    Raises ConfigError where the wing that compares is absent, RequestError for the file.
    """
    if not (modules := import_present([_SPACES])):
        raise ConfigError("questions are compared by kosmos_rag.evaluation, which is not installed; omit --questions")
    compare: Callable[..., MeasureSpaces] = modules[0].compare_spaces
    return compare(tenant, questions, on_progress)


def load_command_groups() -> Iterator[tuple[str, str, Callable[..., None] | typer.Typer]]:
    """Yield heading, name and commands of each group of a present wing, or its one command."""
    for heading, name, path in _GROUPS:
        for module in import_present([path]):
            yield heading, name, module.app
