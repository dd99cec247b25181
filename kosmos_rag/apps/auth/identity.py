"""The identity of a caller: tenant, subject, principals and scopes."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kosmos_rag.apps.auth.jwt import TokenVerifier
from kosmos_rag.apps.auth.key_verifier import KeyVerifier
from kosmos_rag.apps.errors import NotAuthenticated, NotPermitted
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.api_keys import ADMIN, KEY_SUBJECT, READ, SCOPES, is_api_key, parse_key

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

_INVALID_CREDENTIALS = "no valid credentials; send a token or a key: Authorization: Bearer …"


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """A caller.

    It comes from verified credentials or the configuration, never from the request itself; an administrator chooses the
    principals of a view.
    """

    tenant: str
    subject: str
    principals: tuple[str, ...]
    scopes: frozenset[str]
    default_collection: str | None = None
    """Collection of requests that name none; None for all."""
    viewed_reader: str | None = None
    """The reader as whom this administrator looks at the console; None outside it."""

    def has(self, *scopes: str) -> bool:
        """Whether this identity has one of the scopes; `admin` has all."""
        return ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)

    def require(self, *scopes: str) -> None:
        """Raise NotPermitted unless this identity has one of the scopes."""
        if self.has(*scopes):
            return
        remedy = "ask for a key, a token or a group that has it"
        if self.viewed_reader is not None:
            remedy = f"you look as {self.viewed_reader}: end the view first"
        raise NotPermitted(f"this needs the scope {' or '.join(scopes)}; {remedy}")


def build_principals(
    subject: str, departments: Iterable[str], roles: Iterable[str], *, department_key: str
) -> list[str]:
    """Build the principals of a subject.

    The prefix separates roles from departments of the same name.

    Args:
        subject: name of the subject, for `user:NAME`.
        department_key: prefix of department principals, `rag.access.key`.
    """
    principals = {f"{department_key}:{name}" for name in departments} | {f"role:{name}" for name in roles}
    return [EVERYONE, f"user:{subject}", *sorted(principals)]


def view_as(administrator: Identity, reader: str, principals: Iterable[str]) -> Identity:
    """Return an administrator who sees what a reader may read, and may change nothing.

    The subject stays: the audit log has who looked. Raises NotPermitted without the scope admin.

    Args:
        administrator: who looks; the subject of the audit log.
        reader: gives the principal `user:NAME`.
        principals: those of the reader, without `everyone` and `user:NAME`.
    """
    administrator.require(ADMIN)
    return Identity(
        tenant=administrator.tenant,
        subject=administrator.subject,
        principals=tuple(dict.fromkeys((EVERYONE, f"user:{reader}", *principals))),
        scopes=frozenset({READ}),
        viewed_reader=reader,
    )


class Authenticator:
    """Identifies callers by API key, by token or, in development, without credentials."""

    def __init__(self, settings: Settings, keys: KeyVerifier, *, audience: str | None = None) -> None:
        """Load the public keys of tokens.

        Raises ConfigError, also for development on a public host.

        Args:
            keys: verifies API keys.
            audience: required audience of tokens; None for `service.tokens.audience`.
        """
        self._settings = settings
        self._keys = keys
        tokens = settings.service.tokens
        if audience is not None:
            tokens = tokens.model_copy(update={"audience": audience})
        self._tokens = TokenVerifier(tokens) if tokens.keys is not None else None
        self._development = _development_identity(settings)

    async def identify(self, authorization: str | None) -> Identity:
        """Identify the sender of an Authorization header.

        Raises NotAuthenticated with one message for every reason: a reason would help nobody but a forger.
        """
        if authorization is None:
            if self._development is None:
                raise NotAuthenticated(_INVALID_CREDENTIALS)
            return self._development
        scheme, _, credentials = authorization.partition(" ")
        identity = None
        if scheme.lower() == "bearer":
            if is_api_key(credentials):
                identity = await self._identify_key(credentials)
            elif self._tokens is not None:
                identity = await self._identify_token(self._tokens, credentials)
        if identity is None:
            raise NotAuthenticated(_INVALID_CREDENTIALS)
        return identity

    def needs_lookup(self, authorization: str | None) -> bool:
        """Whether a key in the header requires a database lookup."""
        scheme, _, credentials = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not is_api_key(credentials):
            return False
        parsed = parse_key(credentials)
        return parsed is None or not self._keys.is_known(parsed)

    def close(self) -> None:
        """Close the connections for lookups of keys."""
        self._keys.close()

    async def _identify_key(self, credentials: str) -> Identity | None:
        if (parsed := parse_key(credentials)) is None:
            return None
        key = await self._keys.verify(parsed)
        if key is None:
            return None
        return Identity(
            tenant=key.tenant,
            subject=f"{KEY_SUBJECT}{key.name}",
            principals=(EVERYONE, *key.principals),
            scopes=frozenset(key.scopes),
            default_collection=key.default_collection,
        )

    async def _identify_token(self, tokens: TokenVerifier, credentials: str) -> Identity | None:
        claims = await tokens.verify(credentials)
        if claims is None:
            return None
        principals = build_principals(
            claims.subject, claims.departments, claims.roles, department_key=self._settings.rag.access.key
        )
        return Identity(
            tenant=claims.tenant,
            subject=claims.subject,
            principals=tuple(principals),
            scopes=_grant_scopes(claims.scopes),
        )


def _grant_scopes(scopes: Collection[str] | None) -> frozenset[str]:
    return frozenset({READ}) if scopes is None else frozenset(scopes) & frozenset(SCOPES)


def _development_identity(settings: Settings) -> Identity | None:
    development = settings.service.development
    if development.tenant is None:
        return None
    if settings.service.host not in LOOPBACK:
        raise ConfigError(
            f"service.development.tenant needs no credentials and service.host is {settings.service.host}, which "
            "is not a loopback address; set service.host to 127.0.0.1, or use tokens or keys"
        )
    subject = "development"
    principals = build_principals(
        subject, development.departments, development.roles, department_key=settings.rag.access.key
    )
    return Identity(
        tenant=validate_name("tenant", development.tenant),
        subject=subject,
        principals=tuple(principals),
        scopes=frozenset(SCOPES),
    )
