"""Mount the routes and pages of the wings."""

from functools import cache

from kosmos_rag.apps.http.toolkit.wing import HttpWing
from kosmos_rag.core.mounting import import_present

_MODULES = (
    "kosmos_rag.openai.routes",
    "kosmos_rag.evaluation.pages",
    "kosmos_rag.text2sql.routes",
    "kosmos_rag.metering.routes",
    "kosmos_rag.webhooks.routes",
    "kosmos_rag.scim.routes",
)
"""Modules whose `HTTP` is what a wing adds, in the order of the routes."""


@cache
def load_http_wings() -> tuple[HttpWing, ...]:
    """Return what the present wings add to the service."""
    return tuple(module.HTTP for module in import_present(_MODULES))
