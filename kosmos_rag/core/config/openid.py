"""The section of the configuration that is about signing in to the console by OpenID Connect."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from kosmos_rag.core.config.conflicts import Conflict, refuse
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.section import Count, Section
from kosmos_rag.core.secure_urls import is_loopback_url, is_secure_url

_EVERY_USER = "*"
"""Among the groups: every user whom the provider signs in."""
_SECRET_CHARS = 32

Claim = Annotated[str, Field(min_length=1)]


def _check_url(url: str) -> str:
    if not is_secure_url(url):
        raise ValueError("it must start with https:// and name a host without a user")
    return url


def _check_tenant(name: str) -> str:
    try:
        return validate_name("tenant", name)
    except RequestError as error:
        raise ValueError(str(error)) from None


HttpsUrl = Annotated[str, AfterValidator(_check_url)]


class GroupGrant(BaseModel):
    """What the members of a group may do and read."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    scopes: tuple[Literal["read", "ingest", "operate", "admin"], ...] = ()
    departments: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    """Further principals, as they are in the acl of documents."""


class OpenIdSettings(Section):
    """Sign-in to the console by OpenID Connect; service.tokens.algorithms and leeway_s apply to ID tokens."""

    issuer: HttpsUrl | None = Field(
        default=None, description="Issuer of the provider, exactly as it calls itself; null offers no such sign-in."
    )
    client_id: Claim | None = Field(default=None, description="Id of the console at the provider; needed with issuer.")
    client_secret: SecretStr | None = Field(
        default=None, description="Secret of the console at the provider; set it in the environment."
    )
    session_secret: SecretStr | None = Field(
        default=None,
        min_length=_SECRET_CHARS,
        description="Secret of at least 32 characters that encrypts session cookies; the same in all processes.",
    )
    url: HttpsUrl | None = Field(
        default=None,
        description="Address of the console for browsers; the provider must allow URL/sign-in/callback.",
    )
    label: Claim = Field(default="single sign-on", description="What the button calls the provider: Sign in with …")
    scopes: tuple[Claim, ...] = Field(default=("openid",), description="Scopes that the provider is asked for.")
    session_minutes: Count = Field(
        default=60, description="Minutes until a user signs in again; changes of groups apply from then on."
    )
    tenant: Annotated[str, AfterValidator(_check_tenant)] | None = Field(
        default=None, description="Tenant of all users; null takes it from tenant_claim."
    )
    tenant_claim: Claim | None = Field(default=None, description="Claim with the tenant's name, where tenant is null.")
    subject_claim: Claim = Field(
        default="sub", description="Claim with the name of the user; email only counts with email_verified."
    )
    groups_claim: Claim = Field(default="groups", description="Claim with the groups of the user.")
    groups: Mapping[str, GroupGrant] = Field(
        default={},
        description="By group: scopes, departments, roles, principals; * is every user. Others may not sign in.",
    )

    @model_validator(mode="after")
    def _check_complete(self) -> Self:
        if self.issuer is None:
            return self
        # The secrets are checked where the console is served: workers and commands read this section too.
        needed = ("client_id", "url")
        remedy = "signing in by OpenID Connect needs it: set it, or set issuer to null"
        conflicts = [Conflict((name, "issuer"), remedy) for name in needed if getattr(self, name) is None]
        if (self.tenant is None) == (self.tenant_claim is None):
            conflicts.append(Conflict(("tenant", "tenant_claim"), "set one of both: it names the tenant of a user"))
        if "openid" not in self.scopes:
            conflicts.append(Conflict(("scopes", "issuer"), "without the scope openid there is no ID token: add it"))
        refuse(self, conflicts)
        return self

    def allows_endpoint(self, url: str) -> bool:
        """Whether the provider may have an endpoint at a URL: not on this machine from elsewhere."""
        return is_secure_url(url) and (not is_loopback_url(url) or is_loopback_url(self.issuer or ""))

    def list_grants(self, groups: Sequence[str]) -> list[GroupGrant]:
        """Return the grants of a user's groups, and those of every user."""
        return [self.groups[name] for name in dict.fromkeys((_EVERY_USER, *groups)) if name in self.groups]
