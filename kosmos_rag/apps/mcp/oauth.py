"""The MCP server as a resource server of OAuth 2.0.

The MCP specification requires it.

The metadata of the protected resource (RFC 9728) name the authorization server, and challenges (RFC 6750) name the
metadata. A token must be issued for this server (RFC 8707). The authorization server is another program: this package
issues no tokens.
"""

from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from mcp.server.auth.handlers.metadata import ProtectedResourceMetadataHandler
from mcp.server.auth.routes import cors_middleware
from mcp.shared.auth import ProtectedResourceMetadata
from starlette.routing import Route

from kosmos_rag.apps.errors import NotPermitted
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.engine.api_keys import READ

WELL_KNOWN = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtectedResource:
    """The public URL of the server, and its authorization server."""

    url: str
    issuer: str

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        """Return the resource of the settings; None without `mcp.url`.

        Raises ConfigError where no tokens are accepted, or where the issuer is no URL.
        """
        url, tokens = settings.mcp.url, settings.service.tokens
        if url is None:
            return None
        if tokens.keys is None or tokens.issuer is None:
            raise ConfigError(
                f"mcp.url is {url} and service.tokens.keys is null: set the keys and the issuer of the authorization "
                "server, or leave mcp.url out"
            )
        if urlsplit(tokens.issuer).scheme not in ("https", "http"):
            raise ConfigError(
                f"mcp.url is {url} and service.tokens.issuer is {tokens.issuer}: agents find the authorization server "
                "by its URL; set the issuer to one, or leave mcp.url out"
            )
        return cls(url=url, issuer=tokens.issuer)

    @property
    def metadata_url(self) -> str:
        """The public URL of the metadata.

        The well-known path goes before the path of the resource.
        """
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"

    def routes(self) -> list[Route]:
        """Return the routes of the metadata.

        One is for the path of the resource, the other one for clients that know the root only.
        """
        metadata = ProtectedResourceMetadata.model_validate(
            {
                "resource": self.url,
                "authorization_servers": [self.issuer],
                "scopes_supported": [READ],
                "resource_name": "kosmos_rag",
            }
        )
        endpoint = cors_middleware(ProtectedResourceMetadataHandler(metadata).handle, ["GET", "OPTIONS"])
        paths = dict.fromkeys([urlsplit(self.metadata_url).path, WELL_KNOWN])
        return [Route(path, endpoint, methods=["GET", "OPTIONS"]) for path in paths]


def challenge(resource: ProtectedResource | None, error: Exception, *, anonymous: bool) -> str:
    """Return the value of WWW-Authenticate.

    Args:
        resource: the protected resource; None where agents cannot log in by OAuth.
        error: NotAuthenticated or NotPermitted.
        anonymous: whether the request has no credentials: the response does not say that they are invalid.
    """
    parameters = {}
    if isinstance(error, NotPermitted):
        parameters["error"] = "insufficient_scope"
    elif resource is not None and not anonymous:
        parameters["error"] = "invalid_token"
    if resource is not None:
        parameters |= {"scope": READ, "resource_metadata": resource.metadata_url}
    attributes = ", ".join(f'{name}="{value}"' for name, value in parameters.items())
    return f"Bearer {attributes}".strip()
