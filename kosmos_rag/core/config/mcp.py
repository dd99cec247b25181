"""The section of the configuration for the MCP server."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from kosmos_rag.core.section import Count, Section
from kosmos_rag.core.secure_urls import is_secure_url


def _resource_url(text: str) -> str:
    """Return the URL of a protected resource (RFC 9728, section 1.2)."""
    parts = urlsplit(text)
    if not is_secure_url(text) or parts.query or parts.fragment or "@" in text:
        raise ValueError("give an https URL without user, query and fragment, such as https://rag.example/mcp")
    return text


class McpSettings(Section):
    """The MCP server: public URL, budget of results, identity over stdio.

    Over HTTP, tokens and keys identify the caller.
    """

    url: Annotated[str, AfterValidator(_resource_url)] | None = Field(
        default=None,
        description="Public URL of the MCP server, the audience of its tokens: agents log in by OAuth; null: no OAuth.",
    )
    max_tokens: Count = Field(default=20_000, description="Budget of a result in tokens, where a call names none.")

    tenant: Annotated[str, Field(min_length=1)] = Field(default="default", description="Tenant of the documents.")
    principals: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = Field(
        default=("everyone",), description="All principals of the reader: everyone, department:hr."
    )
    subject: Annotated[str, Field(min_length=1, max_length=300)] = Field(
        default="local", description="Id or name of the reader, for the audit log."
    )
