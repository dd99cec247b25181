"""Mount the tools of the wings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from kosmos_rag.apps.http.toolkit.service import Service
from kosmos_rag.apps.mcp.registry import Tool
from kosmos_rag.core.mounting import import_present
from kosmos_rag.core.types import CollectionInfo

_MODULES = ("kosmos_rag.text2sql.tools",)
"""Modules whose `MCP` is what a wing adds, in the order of the tools."""


@dataclass(frozen=True, kw_only=True, slots=True)
class McpWing:
    """What a wing adds to the MCP server."""

    build_tools: Callable[[Service], Sequence[Tool]]
    owns: Callable[[CollectionInfo], bool]
    """Whether the documents of a collection are for the wing alone, and no answers to questions."""


@cache
def load_mcp_wings() -> tuple[McpWing, ...]:
    """Return what the present wings add to the server."""
    return tuple(module.MCP for module in import_present(_MODULES))
