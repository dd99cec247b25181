"""An identity provider, written from OpenID Connect Core 1.0 and RFC 7636: strict, or hostile on request."""

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote_plus, urlencode

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from kosmos_rag.core.config.openid import GroupGrant, OpenIdSettings
from tests.integration.apps.http.serving import listen
from tests.waiting import eventually

CLIENT_ID, CLIENT_SECRET = "console", "a secret: with / and +"
SESSION_SECRET = "s" * 32
GRANTS = {
    "*": GroupGrant(scopes=("read",)),
    "hr-team": GroupGrant(departments=("hr",)),
    "editors": GroupGrant(scopes=("ingest",), roles=("Editor",), principals=("space:handbook",)),
    "operators": GroupGrant(scopes=("admin",)),
}


@cache
def _generate_key() -> rsa.RSAPrivateKey:
    """One key for all providers of the process: to find one takes 50 ms."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class IdentityProvider:
    """Issues a code for `user` without asking, and tokens for a code once."""

    url: str
    user: dict[str, Any] = field(default_factory=lambda: {"sub": "anna", "groups": ["hr-team"]})
    key: rsa.RSAPrivateKey = field(default_factory=_generate_key)
    codes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    """Claims of ID tokens that differ from right ones; None removes one."""
    algorithm: str = "RS256"
    signing_key: Any = None
    """Key of other signatures."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata that differ from right ones."""
    user_info: dict[str, Any] | None = None
    """Claims that only the endpoint of the user has."""
    response: dict[str, str] = field(default_factory=dict)
    """Further parameters with which the browser is sent back."""
    answers: dict[str, Response | Callable[[], Awaitable[Response]]] = field(default_factory=dict)
    """By path: an answer that replaces the right one."""
    calls: list[str] = field(default_factory=list)
    """Paths of all requests."""

    def settings(self, console_url: str, **values: Any) -> OpenIdSettings:
        """Return settings of a console that signs in here."""
        defaults = {
            "issuer": self.url,
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "session_secret": SESSION_SECRET,
            "url": console_url,
            "tenant": "acme",
            "groups": GRANTS,
        }
        return OpenIdSettings.model_validate(defaults | values)

    def app(self) -> Starlette:
        """Return the application of the provider."""
        return Starlette(
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._replace)],
            routes=[
                Route("/.well-known/openid-configuration", self._describe),
                Route("/keys", self._publish_keys),
                Route("/authorize", self._authorize),
                Route("/token", self._issue, methods=["POST"]),
                Route("/user", self._show_user),
            ],
        )

    async def _replace(self, request: Request, answer: RequestResponseEndpoint) -> Response:
        self.calls.append(request.url.path)
        replacement = self.answers.get(request.url.path)
        if replacement is None:
            return await answer(request)
        return replacement if isinstance(replacement, Response) else await replacement()

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Sign an ID token."""
        key: Any = None if self.algorithm == "none" else self.signing_key or self.key
        return jwt.encode(dict(claims), key, self.algorithm, {"kid": "1"})

    async def _describe(self, request: Request) -> Response:
        metadata = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "userinfo_endpoint": f"{self.url}/user",
            "end_session_endpoint": f"{self.url}/end?realm=1",
        }
        return JSONResponse({name: value for name, value in (metadata | self.metadata).items() if value is not None})

    async def _publish_keys(self, request: Request) -> Response:
        key = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return JSONResponse({"keys": [key | {"kid": "1", "use": "sig"}]})

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        parameters = {name: query.get(name) for name in ("response_type", "client_id", "code_challenge_method")}
        if parameters != {"response_type": "code", "client_id": CLIENT_ID, "code_challenge_method": "S256"}:
            return JSONResponse(parameters, 400)
        code = secrets.token_urlsafe()
        self.codes[code] = query
        response = urlencode({"code": code, "state": query["state"], **self.response})
        return RedirectResponse(f"{query['redirect_uri']}?{response}", 303)

    async def _issue(self, request: Request) -> Response:
        fields = {name: str(value) for name, value in (await request.form()).items()}
        scheme, _, pair = request.headers.get("authorization", "").partition(" ")
        pair_of_header = (
            tuple(map(unquote_plus, base64.b64decode(pair).decode().split(":"))) if scheme == "Basic" else ()
        )
        if (pair_of_header or (fields.get("client_id"), fields.get("client_secret"))) != (CLIENT_ID, CLIENT_SECRET):
            return JSONResponse({"error": "invalid_client"}, 401)
        query = self.codes.pop(fields["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(fields["code_verifier"].encode()).digest()).decode()
        if query is None or query["code_challenge"] != challenge.rstrip("="):
            return JSONResponse({"error": "invalid_grant"}, 400)
        if query["redirect_uri"] != fields["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        times = {"iat": now, "exp": now + 60}
        claims = {"iss": self.url, "aud": CLIENT_ID, **times, "nonce": query["nonce"], **self.user, **self.claims}
        token = self.sign({name: value for name, value in claims.items() if value is not None})
        return JSONResponse({"token_type": "Bearer", "access_token": "of-the-user", "id_token": token})

    async def _show_user(self, request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer of-the-user" or self.user_info is None:
            return JSONResponse({"error": "invalid_token"}, 401)
        return JSONResponse(self.user_info)


@contextmanager
def providing() -> Iterator[IdentityProvider]:
    """Run a provider until the block ends."""
    listening = listen()
    provider = IdentityProvider(url=f"http://127.0.0.1:{listening.getsockname()[1]}")
    server = uvicorn.Server(uvicorn.Config(provider.app(), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="identity-provider")
    thread.start()
    eventually(lambda: server.started)
    try:
        yield provider
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def providing_elsewhere(**users: Mapping[str, Any]) -> Iterator[IdentityProvider]:
    """Run the provider of another project, oidc-provider-mock, where the users choose their names themselves.

    It does not verify PKCE. The result has its address and its settings.
    """
    # The import warns of a deprecation.
    import oidc_provider_mock

    accounts = [oidc_provider_mock.User(sub=name, claims=dict(claims)) for name, claims in users.items()]
    with oidc_provider_mock.run_server_in_thread(require_nonce=True, user_claims=accounts) as server:
        yield IdentityProvider(url=f"http://localhost:{server.server_port}")
