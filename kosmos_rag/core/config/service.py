"""The section of the configuration that is about the HTTP service."""

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Annotated, Literal, Self

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, Field, Strict, model_validator

from kosmos_rag.core.config.conflicts import Conflict, refuse
from kosmos_rag.core.config.openid import OpenIdSettings
from kosmos_rag.core.section import MAX_INTEGER, Amount, Count, Section
from kosmos_rag.core.secure_urls import is_secure_url

Port = Annotated[int, Strict(), Ge(1), Le(65535)]
Seconds = Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)]
ShareWeight = Annotated[float, Strict(), Gt(0), Le(1000)]
Claim = Annotated[str, Field(min_length=1)]


def _network(text: str) -> str:
    ip_network(text)
    return text


Network = Annotated[str, AfterValidator(_network)]


def _check_keys_location(location: str) -> str:
    if "://" in location and not is_secure_url(location):
        raise ValueError("it is no https URL without a user; keys are fetched by https only")
    return location


class TokenSettings(Section):
    """Accepted tokens (JWT), and the claims that identify the caller."""

    keys: Annotated[str, Field(min_length=1), AfterValidator(_check_keys_location)] | None = Field(
        default=None,
        description="Public keys: a file (JWKS or PEM) or the https URL of a JWKS; null accepts no tokens.",
    )
    algorithms: Annotated[tuple[Literal["RS256", "ES256", "EdDSA"], ...], Field(min_length=1)] = Field(
        default=("RS256", "ES256", "EdDSA"), description="Accepted signature algorithms."
    )
    issuer: Claim | None = Field(default=None, description="Required value of the claim iss; needed with keys.")
    audience: Claim | None = Field(default=None, description="Required value in the claim aud; needed with keys.")
    leeway_s: Amount = Field(default=30, description="Seconds that two clocks may differ.")
    tenant_claim: Claim = Field(default="tenant", description="Claim with the tenant's name.")
    departments_claim: Claim = Field(default="departments", description="Claim with the departments of a subject.")
    roles_claim: Claim = Field(default="roles", description="Claim with the roles of a subject.")
    scope_claim: Claim = Field(
        default="scope", description="Claim with the scopes: read, ingest, operate, admin; a token without it may read."
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        remedy = "without it, tokens of any issuer or audience would be accepted: set it"
        missing = [name for name in ("issuer", "audience") if self.keys is not None and getattr(self, name) is None]
        refuse(self, [Conflict((name, "keys"), remedy) for name in missing])
        return self


class DevelopmentSettings(Section):
    """An identity for requests without a token, on a loopback address only."""

    tenant: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Tenant of requests without a token or key; null refuses them."
    )
    departments: tuple[str, ...] = Field(default=(), description="Departments of that identity.")
    roles: tuple[str, ...] = Field(default=(), description="Roles of that identity.")


class RateSettings(Section):
    """Rate limits of requests, counted by each process."""

    tenant_per_minute: Amount = Field(default=3000, description="Requests a minute of one tenant; 0 is no limit.")
    subject_per_minute: Amount = Field(default=600, description="Requests a minute of one subject; 0 is no limit.")
    refused_per_minute: Amount = Field(
        default=60,
        description="Invalid credentials a minute of one address, after which unknown keys are refused; 0 is no limit.",
    )


class ServiceSettings(Section):
    """The HTTP service: address, authentication and limits."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 is all addresses.")
    port: Port = Field(default=8000, description="Port of the service.")
    trusted_proxies: tuple[Network, ...] = Field(
        default=(), description="Addresses or networks of proxies whose X-Forwarded-For and -Proto are trusted."
    )
    health_port: Port | None = Field(default=None, description="Port of /livez, /readyz and /metrics; null opens none.")
    max_connections: Count = Field(
        default=1000, description="Connections at once; a new one then replaces one that waits for its request."
    )
    header_timeout_s: Seconds = Field(
        default=10.0, description="Seconds in which the headers of a request must arrive."
    )
    tenant_weights: Mapping[str, ShareWeight] = Field(
        default={}, description="Weights of tenants that share the slots of questions; 1 for the others."
    )
    key_cache_s: Annotated[float, Strict(), Ge(0), Le(3600)] = Field(
        default=5.0,
        description="Seconds that the lookup of an API key is cached: a revoked key works for as long; 0 is no cache.",
    )
    max_body_kb: Count = Field(
        default=1024, description="Maximum kilobytes of a request's body; ingestion.max_file_mb applies to uploads."
    )
    body_wait_s: Seconds = Field(
        default=20.0,
        description="Seconds to wait for each chunk of a body, in or out, and for a body beyond 1 s for each KB.",
    )
    queue_timeout_s: Seconds = Field(
        default=2.0, description="Seconds that a request may queue; tenants share database.pool_size slots."
    )
    timeout_s: Seconds = Field(default=30.0, description="Time limit of a request in seconds, except for streams.")
    max_streams: Count = Field(
        default=100,
        description="Answers streamed at once, one thread each; tenants below their share get up to twice as many.",
    )
    max_uploads: Count = Field(
        default=16,
        description="Uploads received at once, some megabytes of memory each; as streams, up to twice as many.",
    )
    view_as: bool = Field(
        default=False,
        description="Whether administrators may look at the console as another reader; the audit log has each access.",
    )
    heartbeat_s: Seconds = Field(default=15.0, description="Seconds of silence after which a stream sends a comment.")
    drain_s: Seconds = Field(default=10.0, description="Seconds that streams may take to finish on SIGTERM.")
    tokens: TokenSettings = TokenSettings()
    openid: OpenIdSettings = OpenIdSettings()
    development: DevelopmentSettings = DevelopmentSettings()
    rates: RateSettings = RateSettings()
