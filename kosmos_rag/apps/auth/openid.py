"""Sign-in by OpenID Connect, and the identity of a user by groups.

The code flow with PKCE.

Sources: OpenID Connect Core 1.0 and Discovery 1.0; RFC 7636 (PKCE), RFC 9207 (`iss` in the response), RP-Initiated
Logout 1.0. A refusal has one message for users; its reason is in the log.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote_plus, urlencode

from kosmos_rag.apps.auth.fetching import FetchFailed, fetch
from kosmos_rag.apps.auth.identity import Identity, build_principals
from kosmos_rag.apps.auth.jwt import PublicKeys, parse_names, parse_subject, verify_token
from kosmos_rag.apps.auth.sealing import Sealer
from kosmos_rag.apps.errors import NotAuthenticated, NotPermitted, SignInUnavailable
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.names import validate_name

CALLBACK_PATH = "/sign-in/callback"
"""Path of the console to which the provider sends users back."""
ATTEMPT_S = 600
"""Seconds that a user may take to sign in at the provider."""
_TIMEOUT_S = 5.0
_COOLDOWN_S = 10.0
_MAX_COOKIE = 3800
_UNAVAILABLE = "the identity provider cannot be used now; try again, or sign in with a key"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignInAttempt:
    """What the browser of a user keeps, encrypted, until the provider sends it back."""

    state: str
    nonce: str
    verifier: str
    path: str
    """Page to show then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """Addresses and public keys of the provider."""

    authorization_url: str
    token_url: str
    userinfo_url: str | None
    end_session_url: str | None
    secret_in_body: bool
    """Whether the token endpoint reads the client's secret in the body only."""
    names_issuer: bool
    """Whether each response names its issuer."""
    keys: PublicKeys


class OpenIdClient:
    """Signs users in at the provider of the settings. One event loop uses it."""

    def __init__(self, settings: Settings) -> None:
        """Prepare the keys of the cookies; the provider is asked at the first sign-in.

        Raises ConfigError without the secrets.
        """
        import httpx

        openid = settings.service.openid
        assert openid.issuer is not None
        assert openid.client_id is not None
        assert openid.url is not None
        if openid.client_secret is None or openid.session_secret is None:
            raise ConfigError(
                "signing in by OpenID Connect needs two secrets: set KOSMOS_SERVICE__OPENID__CLIENT_SECRET and "
                "KOSMOS_SERVICE__OPENID__SESSION_SECRET, or set service.openid.issuer to null"
            )
        self._settings, self._openid = settings, openid
        self._issuer, self._client_id = openid.issuer, openid.client_id
        self._client_secret = openid.client_secret.get_secret_value()
        self._url = openid.url.rstrip("/")
        secret = openid.session_secret.get_secret_value()
        self._attempts, self._sessions = Sealer(secret, "sign-in"), Sealer(secret, "session")
        self._tls = httpx.create_ssl_context()
        self._provider: Provider | None = None
        self._discovery_lock, self._retry_at = asyncio.Lock(), 0.0

    @property
    def label(self) -> str:
        """What the sign-in page calls the provider."""
        return self._openid.label

    @property
    def _redirect_uri(self) -> str:
        return self._url + CALLBACK_PATH

    async def begin(self, path: str) -> tuple[str, SignInAttempt]:
        """Begin to sign a user in.

        Returns the provider's page, and the attempt for the browser. Raises SignInUnavailable.

        Args:
            path: page of the console to show afterwards.
        """
        provider = await self._find_provider()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        attempt = SignInAttempt(state=state, nonce=nonce, verifier=verifier, path=path)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self._openid.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return _add_query(provider.authorization_url, parameters), attempt

    def seal_attempt(self, attempt: SignInAttempt) -> str:
        """Return an attempt for a cookie."""
        return self._attempts.seal(asdict(attempt))

    def open_attempt(self, sealed: str | None, state: str) -> SignInAttempt:
        """Return the attempt of a state, which this browser has begun.

        Raises NotAuthenticated.

        Args:
            sealed: the attempt that the browser kept; None where it has none.
            state: with which the provider sent the browser back.
        """
        values = None if sealed is None else self._attempts.open(sealed, max_age_s=ATTEMPT_S)
        if values is None:
            raise _refuse("this browser did not begin it, or too long ago")
        attempt = SignInAttempt(**values)
        if not hmac.compare_digest(state.encode(), attempt.state.encode()):
            raise _refuse("the state is of another sign-in")
        return attempt

    async def complete(self, attempt: SignInAttempt, response: Mapping[str, str]) -> Identity:
        """Complete a sign-in. Returns the user.

        Raises NotAuthenticated, NotPermitted where no group of the user has a grant, SignInUnavailable.

        Args:
            attempt: what `open_attempt` returned.
            response: parameters with which the provider sent the browser back.
        """
        provider = await self._find_provider()
        issuer = response.get("iss", "" if provider.names_issuer else self._issuer)
        if issuer != self._issuer:
            raise _refuse(f"the response is of the issuer {issuer[:200]!r}")
        if "code" not in response:
            raise _refuse(f"the provider answered {response.get('error', 'without a code')[:200]!r}")
        tokens = await self._exchange(provider, response["code"], attempt.verifier)
        claims = await self._verify(provider, tokens, attempt.nonce)
        identity = self._identify(await self._complete_claims(provider, tokens, claims))
        scopes = " ".join(sorted(identity.scopes))
        logger.info(
            "a user signed in",
            extra={
                "action": "sign_in",
                "tenant": identity.tenant,
                "texts": {"subject": identity.subject, "scopes": scopes},
            },
        )
        return identity

    def seal_session(self, identity: Identity) -> str:
        """Return the session of a user for a cookie.

        Raises NotPermitted where it is too long for one.
        """
        sealed = self._sessions.seal(
            {
                "tenant": identity.tenant,
                "subject": identity.subject,
                "principals": identity.principals,
                "scopes": sorted(identity.scopes),
            }
        )
        if len(sealed) > _MAX_COOKIE:
            raise NotPermitted("you have too many departments and roles for a session; ask your administrator")
        return sealed

    def open_session(self, sealed: str) -> Identity | None:
        """Return the user of a session; None where it is not valid."""
        values = self._sessions.open(sealed, max_age_s=self._openid.session_minutes * 60)
        if values is None:
            return None
        return Identity(
            tenant=values["tenant"],
            subject=values["subject"],
            principals=tuple(values["principals"]),
            scopes=frozenset(values["scopes"]),
        )

    def end_session_url(self) -> str | None:
        """Return the provider's page that signs a user out.

        The page shows the console's sign-in page afterwards. The result is None where the provider has none, or its
        metadata have not been read yet: signing out waits for nobody.
        """
        provider = self._provider
        if provider is None or provider.end_session_url is None:
            return None
        return _add_query(
            provider.end_session_url, {"client_id": self._client_id, "post_logout_redirect_uri": f"{self._url}/sign-in"}
        )

    async def _find_provider(self) -> Provider:
        """Return the provider. Its metadata are read once, by one request at a time.

        After a failure the provider is left alone for `_COOLDOWN_S`. Raises SignInUnavailable.
        """
        if self._provider is None:
            async with self._discovery_lock:
                if self._provider is None:
                    if time.monotonic() < self._retry_at:
                        raise SignInUnavailable(_UNAVAILABLE)
                    try:
                        self._provider = await self._discover()
                    finally:
                        self._retry_at = time.monotonic() + _COOLDOWN_S
        return self._provider

    async def _discover(self) -> Provider:
        url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        metadata = _require_success(*await self._fetch_json("GET", url), url)
        if metadata.get("issuer") != self._issuer:
            raise _unavailable(f"calls itself {str(metadata.get('issuer'))[:200]!r}")
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return Provider(
            authorization_url=self._endpoint(metadata, "authorization_endpoint"),
            token_url=self._endpoint(metadata, "token_endpoint"),
            userinfo_url=self._find_endpoint(metadata, "userinfo_endpoint"),
            end_session_url=self._find_endpoint(metadata, "end_session_endpoint"),
            secret_in_body="client_secret_basic" not in methods and "client_secret_post" in methods,
            names_issuer=metadata.get("authorization_response_iss_parameter_supported") is True,
            keys=await self._load_keys(self._endpoint(metadata, "jwks_uri")),
        )

    def _find_endpoint(self, metadata: Mapping[str, Any], name: str) -> str | None:
        return self._endpoint(metadata, name) if name in metadata else None

    def _endpoint(self, metadata: Mapping[str, Any], name: str) -> str:
        url = metadata.get(name)
        if not isinstance(url, str) or not self._openid.allows_endpoint(url):
            raise _unavailable(f"has no https URL {name}, or one on this machine")
        return url

    async def _load_keys(self, url: str) -> PublicKeys:
        algorithms = self._settings.service.tokens.algorithms
        try:
            return await asyncio.to_thread(PublicKeys, url, algorithms, setting="service.openid.issuer")
        except ConfigError as error:
            raise _unavailable(f"has no keys: {error}") from error

    async def _exchange(self, provider: Provider, code: str, verifier: str) -> Mapping[str, Any]:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        headers = {}
        if provider.secret_in_body:
            fields |= {"client_id": self._client_id, "client_secret": self._client_secret}
        else:
            pair = f"{quote_plus(self._client_id)}:{quote_plus(self._client_secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        status, values = await self._fetch_json("POST", provider.token_url, data=fields, headers=headers)
        # RFC 6749, 5.2: the code was used before, for example. Other errors are not of this user.
        if status == HTTPStatus.BAD_REQUEST and values.get("error") == "invalid_grant":
            raise _refuse("the provider answered 'invalid_grant'")
        return _require_success(status, values, provider.token_url)

    async def _verify(self, provider: Provider, tokens: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        """Return the claims of a valid ID token."""
        token = tokens.get("id_token")
        claims = None
        if isinstance(token, str):
            leeway_s = self._settings.service.tokens.leeway_s
            claims = await verify_token(
                token, provider.keys, issuer=self._issuer, audience=self._client_id, leeway_s=leeway_s
            )
        if claims is None:
            raise _refuse("the ID token is not valid")
        claimed = claims.get("nonce")
        if not isinstance(claimed, str) or not claimed.isascii() or not hmac.compare_digest(claimed, nonce):
            raise _refuse("the ID token has the nonce of another sign-in")
        audience, party = claims["aud"], claims.get("azp")
        if audience not in (self._client_id, [self._client_id]) and party is None:
            raise _refuse("the ID token is for several clients and names none")
        if party not in (None, self._client_id):
            raise _refuse("the ID token is for another client")
        return claims

    async def _complete_claims(
        self, provider: Provider, tokens: Mapping[str, Any], claims: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Add claims of the user that are not in the ID token."""
        openid = self._openid
        email_claims = ("email", "email_verified") if openid.subject_claim == "email" else ()
        needed = {openid.subject_claim, openid.groups_claim, *email_claims, openid.tenant_claim or openid.subject_claim}
        access_token = tokens.get("access_token")
        if all(name in claims for name in needed) or provider.userinfo_url is None or not isinstance(access_token, str):
            return claims
        headers = {"authorization": f"Bearer {access_token}"}
        url = provider.userinfo_url
        user = _require_success(*await self._fetch_json("GET", url, headers=headers), url)
        if user.get("sub") != claims["sub"]:
            raise _refuse("the claims are of another user")
        completed = {**user, **claims}
        if email_claims:
            if "email" in claims and "email" in user and claims["email"] != user["email"]:
                raise _refuse("the ID token and the userinfo endpoint have different emails")
            # A verification counts for the email that it came with.
            source = claims if all(name in claims for name in email_claims) else user
            completed |= {name: source.get(name) for name in email_claims}
        return completed

    def _identify(self, claims: Mapping[str, Any]) -> Identity:
        """Return the identity of a user by the grants of the groups."""
        openid = self._openid
        if openid.subject_claim == "email" and claims.get("email_verified") is not True:
            raise _refuse("the provider has not verified the user's email")
        try:
            subject = parse_subject(claims.get(openid.subject_claim))
            groups = parse_names(claims.get(openid.groups_claim, []))
            tenant = openid.tenant or validate_name("tenant", claims.get(str(openid.tenant_claim), ""))
        except (ValueError, RequestError) as error:
            raise _refuse(f"a claim is missing or malformed: {error}") from error
        grants = openid.list_grants(groups)
        scopes = frozenset(scope for grant in grants for scope in grant.scopes)
        if not scopes:
            raise NotPermitted("no group of yours may use this console; ask your administrator for access")
        principals = build_principals(
            subject,
            (name for grant in grants for name in grant.departments),
            (name for grant in grants for name in grant.roles),
            department_key=self._settings.rag.access.key,
        )
        principals += [name for grant in grants for name in grant.principals]
        return Identity(tenant=tenant, subject=subject, principals=tuple(dict.fromkeys(principals)), scopes=scopes)

    async def _fetch_json(self, method: str, url: str, **request: Any) -> tuple[int, dict[str, Any]]:
        """Return status and object that the provider answers with."""
        try:
            status, content = await fetch(method, url, timeout_s=_TIMEOUT_S, verify=self._tls, **request)
            values = json.loads(content)
        except (FetchFailed, ValueError, RecursionError) as error:
            raise _unavailable(f"does not answer at {url}: {error}") from error
        if not isinstance(values, dict):
            raise _unavailable(f"answers without an object, status {status}, at {url}")
        return status, values


def _require_success(status: int, values: dict[str, Any], url: str) -> dict[str, Any]:
    if status != HTTPStatus.OK:
        raise _unavailable(f"answers with status {status} and {str(values.get('error'))[:200]!r} at {url}")
    return values


def _refuse(reason: str) -> NotAuthenticated:
    logger.warning("a sign-in was refused: %s", reason, extra={"action": "sign_in_refused"})
    return NotAuthenticated("the sign-in did not succeed; begin again")


def _unavailable(reason: str) -> SignInUnavailable:
    logger.warning("the identity provider %s", reason, extra={"action": "sign_in_unavailable"})
    return SignInUnavailable(_UNAVAILABLE)


def _add_query(url: str, parameters: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"
