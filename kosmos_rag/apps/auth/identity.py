"""Who asks: a tenant, a subject, the principals that it holds, and what it may do."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kosmos_rag.apps.auth.api_keys import ADMIN, READ, SCOPES, ApiKeys
from kosmos_rag.apps.auth.jwt import TokenVerifier
from kosmos_rag.apps.http.concurrency import ConcurrencyLimiter
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import ConfigError, NotAuthenticated, NotPermitted
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.tenants import validate_name

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

_CREDENTIALS = "no valid credentials; send a token or a key: Authorization: Bearer …"


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Who asks. Nothing of it comes from the request itself, but from what vouches for it."""

    tenant: str
    subject: str
    principals: tuple[str, ...]
    scopes: frozenset[str]

    def has(self, scope: str) -> bool:
        """Whether this identity has a scope; `admin` has all."""
        return scope in self.scopes or ADMIN in self.scopes

    def require(self, scope: str) -> None:
        """Raise NotPermitted unless this identity has a scope."""
        if not self.has(scope):
            raise NotPermitted(f"this needs the scope {scope}; ask for a token or a key that has it")


def principals_of(subject: str, departments: Iterable[str], roles: Iterable[str], *, department_key: str) -> list[str]:
    """Return what a subject holds; the kind in front keeps a role of any name from being a department."""
    held = {f"{department_key}:{name}" for name in departments} | {f"role:{name}" for name in roles}
    return [EVERYONE, f"user:{subject}", *sorted(held)]


class Authenticator:
    """Finds out who asks: by API key, by token, or, in development, by nothing."""

    def __init__(self, settings: Settings, keys: ApiKeys, limiter: ConcurrencyLimiter) -> None:
        """Read the public keys, where tokens are taken. Raises ConfigError, also on development beyond loopback."""
        self._settings = settings
        self._keys = keys
        self._limiter = limiter
        tokens = settings.service.tokens
        self._tokens = TokenVerifier(tokens) if tokens.keys is not None else None
        self._development = _development(settings)

    async def identify(self, authorization: str | None) -> Identity:
        """Return who sent a request with this header. Raises NotAuthenticated, with one message for every reason."""
        if authorization is None:
            if self._development is None:
                raise NotAuthenticated(_CREDENTIALS)
            return self._development
        scheme, _, credentials = authorization.partition(" ")
        identity = None
        if scheme.lower() == "bearer":
            if ApiKeys.looks_like_one(credentials):
                identity = await self._by_key(credentials)
            elif self._tokens is not None:
                identity = await self._by_token(self._tokens, credentials)
        if identity is None:
            raise NotAuthenticated(_CREDENTIALS)
        return identity

    async def _by_key(self, credentials: str) -> Identity | None:
        if (parsed := ApiKeys.parsed(credentials)) is None:
            return None
        key = await self._limiter.run(self._keys.find, parsed)
        if key is None:
            return None
        return Identity(
            tenant=key.tenant,
            subject=f"key:{key.name}",
            principals=(EVERYONE, *key.principals),
            scopes=frozenset(key.scopes),
        )

    async def _by_token(self, tokens: TokenVerifier, credentials: str) -> Identity | None:
        claims = await tokens.verify(credentials)
        if claims is None:
            return None
        held = principals_of(
            claims.subject, claims.departments, claims.roles, department_key=self._settings.rag.access.key
        )
        return Identity(
            tenant=claims.tenant,
            subject=claims.subject,
            principals=tuple(held),
            scopes=_known(claims.scopes),
        )


def _known(scopes: Collection[str] | None) -> frozenset[str]:
    return frozenset({READ}) if scopes is None else frozenset(scopes) & frozenset(SCOPES)


def _development(settings: Settings) -> Identity | None:
    given = settings.service.development
    if given.tenant is None:
        return None
    if settings.service.host not in LOOPBACK:
        raise ConfigError(
            f"service.development.tenant lets anybody in and service.host is {settings.service.host}, which is no "
            "loopback address; set service.host to 127.0.0.1, or take tokens or keys"
        )
    subject = "development"
    held = principals_of(subject, given.departments, given.roles, department_key=settings.rag.access.key)
    return Identity(
        tenant=validate_name("tenant", given.tenant),
        subject=subject,
        principals=tuple(held),
        scopes=frozenset(SCOPES),
    )
