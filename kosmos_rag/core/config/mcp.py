"""The section of the configuration that is about the MCP server over stdio."""

from typing import Annotated

from pydantic import Field

from kosmos_rag.core.config.values import Section


class McpSettings(Section):
    """The identity of MCP over stdio.

    Over HTTP, tokens and keys identify the caller.
    """

    tenant: Annotated[str, Field(min_length=1)] = Field(default="default", description="Whose documents are asked.")
    principals: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = Field(
        default=("everyone",), description="What the reader holds, all of it: everyone, department:hr."
    )
    subject: Annotated[str, Field(min_length=1, max_length=300)] = Field(
        default="local", description="Who that is, for the audit log."
    )
