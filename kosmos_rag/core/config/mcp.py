"""The section of the configuration for the MCP server over stdio."""

from typing import Annotated

from pydantic import Field

from kosmos_rag.core.config.values import Section


class McpSettings(Section):
    """The identity of MCP over stdio.

    Over HTTP, tokens and keys identify the caller.
    """

    tenant: Annotated[str, Field(min_length=1)] = Field(default="default", description="Tenant of the documents.")
    principals: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = Field(
        default=("everyone",), description="All principals of the reader: everyone, department:hr."
    )
    subject: Annotated[str, Field(min_length=1, max_length=300)] = Field(
        default="local", description="Id or name of the reader, for the audit log."
    )
