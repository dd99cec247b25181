"""Mount the calls of the wings."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kosmos_rag.apps.client.transport import Call
from kosmos_rag.core.mounting import import_present

_MODULES = (
    "kosmos_rag.text2sql.client",
    "kosmos_rag.metering.client",
    "kosmos_rag.webhooks.client",
    "kosmos_rag.evaluation.client",
)
"""Modules whose `CALLS` are the methods that a wing adds to the clients, by name."""


@cache
def load_client_calls() -> Mapping[str, Callable[..., Call[Any]]]:
    """Return the calls of the present wings by name."""
    return {name: call for module in import_present(_MODULES) for name, call in module.CALLS.items()}
