"""A small authorization server: metadata, registration, authorization with PKCE, tokens, keys.

It follows RFC 8414, 7591, 6749, 7636, 8707 and 9207 as far as a client of MCP needs them, and trusts every client.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import uvicorn
from jwt.algorithms import RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.integration.apps.http.serving import Signer, listen
from tests.waiting import eventually


@dataclass
class AuthorizationServer:
    """Issues tokens for the resources that clients name."""

    issuer: str
    signer: Signer
    grants: dict[str, str] = field(default_factory=dict)
    """Scopes that are granted instead of those that are asked for."""
    audience: str | None = None
    """Audience of the tokens; None for the resource that the client names."""
    authorizations: list[dict[str, str]] = field(default_factory=list)
    """Parameters of the authorization requests."""
    tokens: list[dict[str, str]] = field(default_factory=list)
    """Parameters of the token requests."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        return [
            Route("/.well-known/oauth-authorization-server", self.metadata),
            Route("/register", self.register, methods=["POST"]),
            Route("/authorize", self.authorize),
            Route("/token", self.token, methods=["POST"]),
            Route("/jwks", self.jwks),
        ]

    async def metadata(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "registration_endpoint": f"{self.issuer}/register",
                "jwks_uri": f"{self.issuer}/jwks",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    async def register(self, request: Request) -> Response:
        payload = await request.json()
        client = {**payload, "client_id": secrets.token_hex(8), "token_endpoint_auth_method": "none"}
        return JSONResponse(client, 201)

    async def authorize(self, request: Request) -> Response:
        parameters = dict(request.query_params)
        self.authorizations.append(parameters)
        code = secrets.token_urlsafe(16)
        self.codes[code] = parameters
        answer = urlencode({"code": code, "state": parameters["state"], "iss": self.issuer})
        return RedirectResponse(f"{parameters['redirect_uri']}?{answer}", 302)

    async def token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        self.tokens.append(form)
        requests = self.codes.pop(form["code"], None)
        verified = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(verified).decode().rstrip("=")
        if requests is None or requests["code_challenge"] != challenge or requests["code_challenge_method"] != "S256":
            return JSONResponse({"error": "invalid_grant"}, 400)
        scope = self.grants.get(requests["scope"], requests["scope"])
        audience = self.audience or form["resource"]
        claims = self.signer.claims(iss=self.issuer, aud=audience, scope=scope, sub="ada", departments=["hr"])
        access = jwt.encode(claims, self.signer.key, algorithm="RS256", headers={"kid": "1"})
        return JSONResponse({"access_token": access, "token_type": "Bearer", "expires_in": 300, "scope": scope})

    async def jwks(self, _: Request) -> Response:
        key: dict[str, Any] = json.loads(RSAAlgorithm.to_jwk(self.signer.key.public_key()))
        return JSONResponse({"keys": [key | {"kid": "1", "use": "sig", "alg": "RS256"}]})


@contextmanager
def authorizing(signer: Signer) -> Iterator[AuthorizationServer]:
    """Run an authorization server until the block ends."""
    listening = listen()
    issuer = f"http://127.0.0.1:{listening.getsockname()[1]}"
    authorization = AuthorizationServer(issuer, signer)
    config = uvicorn.Config(Starlette(routes=authorization.routes()), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="authorization")
    thread.start()
    eventually(lambda: server.started)
    try:
        yield authorization
    finally:
        server.should_exit = True
        thread.join(30)


def callback(location: str) -> dict[str, str]:
    """Return the parameters of a redirect."""
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
