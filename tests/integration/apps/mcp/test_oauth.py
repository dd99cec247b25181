"""Agents that log in: the OAuth flow of the SDK's own client against the server and an authorization server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import httpx2
import jwt
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp_types import CallToolResult

from kosmos_rag import Engine, Settings
from kosmos_rag.apps.mcp.oauth import ProtectedResource
from kosmos_rag.core.config import McpSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Signer, listen, with_tokens
from tests.integration.apps.mcp.authorization_server import AuthorizationServer, authorizing, callback
from tests.integration.apps.mcp.conftest import fill
from tests.integration.apps.mcp.running import Running, read_data, serving
from tests.integration.variants import changed

QUESTION = {"question": "How many days of paid annual leave do employees receive?", "k": 10}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def authorization(signer: Signer) -> Iterator[AuthorizationServer]:
    with authorizing(signer) as server:
        yield server


@pytest.fixture
def protected(settings: Settings, signer: Signer, authorization: AuthorizationServer) -> Iterator[Running]:
    """A server that takes the tokens of the authorization server."""
    listening = listen()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    tokens = {"issuer": authorization.issuer, "keys": f"{authorization.issuer}/jwks"}
    changes = {f"service.tokens.{name}": value for name, value in tokens.items()} | {"mcp.url": url}
    mine = changed(with_tokens(settings, signer, queue_timeout_s=60.0), changes)
    with Engine(mine, embedder=HashingEmbedder()) as engine:
        fill(engine)
        with serving(engine, signer, listening) as running:
            yield running


class Storage:
    """Keeps what a client has registered and got."""

    def __init__(self, tokens: OAuthToken | None = None) -> None:
        self.tokens = tokens
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def _logged_in(running: Running, storage: Storage) -> AsyncIterator[Client]:
    """Connect as an agent does that a person has just let in."""
    answers: list[dict[str, str]] = []

    async def redirect(url: str) -> None:
        async with httpx2.AsyncClient(trust_env=False) as browser:
            answers.append(callback((await browser.get(url)).headers["location"]))

    async def wait() -> AuthorizationCodeResult:
        answer = answers.pop()
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    metadata = OAuthClientMetadata.model_validate(
        {"client_name": "test", "redirect_uris": ["http://127.0.0.1:1/callback"], "grant_types": ["authorization_code"]}
    )
    provider = OAuthClientProvider(running.url, metadata, storage, redirect, wait)
    async with (
        httpx2.AsyncClient(auth=provider, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(running.url, http_client=http)) as client,
    ):
        yield client


def _search(running: Running, storage: Storage) -> CallToolResult:
    async def search() -> CallToolResult:
        async with _logged_in(running, storage) as client:
            return await client.call_tool("search", QUESTION)

    return asyncio.run(search())


def test_agent__finds_the_authorization_server_and_gets_a_token_for_this_server(
    protected: Running, authorization: AuthorizationServer
) -> None:
    storage = Storage()
    data = read_data(_search(protected, storage))
    assert {hit["source"] for hit in data["hits"]} == {"leave.md", "secret.md"}, "as a member of hr"
    (authorization_request,), (exchanged,) = authorization.authorizations, authorization.tokens
    assert authorization_request["resource"] == exchanged["resource"] == protected.url
    assert authorization_request["scope"] == "read"
    assert authorization_request["code_challenge_method"] == "S256"
    assert storage.client is not None
    assert read_data(_search(protected, storage))["hits"]
    assert len(authorization.tokens) == 1, "the token is used again"


def test_agent__with_a_token_of_too_few_scopes_asks_for_the_one_that_is_missing(
    protected: Running, authorization: AuthorizationServer
) -> None:
    claims = authorization.signer.claims(iss=authorization.issuer, aud=protected.url, scope="ingest", sub="ada")
    storage = Storage(OAuthToken(access_token=_sign(authorization, claims), scope="ingest"))
    assert read_data(_search(protected, storage))["hits"]
    (authorization_request,) = authorization.authorizations
    assert set(authorization_request["scope"].split()) == {"ingest", "read"}


def test_token__for_another_resource_is_refused(protected: Running, authorization: AuthorizationServer) -> None:
    """MCP refuses tokens that are issued for another resource."""
    for audience in ("kosmos", f"{protected.url}/other", protected.url.removesuffix("/mcp")):
        refused = _post(protected, authorization, aud=audience)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == (
            f'Bearer error="invalid_token", scope="read", resource_metadata="{_metadata_url(protected)}"'
        )
    assert _post(protected, authorization, aud=["other", protected.url]).status_code == 200
    assert _post(protected, authorization, aud=protected.url, iss="https://other.test").status_code == 401


def test_challenges__name_the_metadata_and_the_scope(protected: Running, authorization: AuthorizationServer) -> None:
    anonymous = httpx.post(protected.url, json=LIST, headers=ACCEPT, trust_env=False)
    assert anonymous.status_code == 401
    assert anonymous.headers["www-authenticate"] == (
        f'Bearer scope="read", resource_metadata="{_metadata_url(protected)}"'
    )
    forbidden = _post(protected, authorization, aud=protected.url, scope="ingest")
    assert forbidden.status_code == 403
    assert forbidden.headers["www-authenticate"] == (
        f'Bearer error="insufficient_scope", scope="read", resource_metadata="{_metadata_url(protected)}"'
    )
    assert forbidden.headers["content-type"] == "application/problem+json"


def test_metadata__are_at_the_path_of_the_resource_and_at_the_root(
    protected: Running, authorization: AuthorizationServer
) -> None:
    root = protected.url.removesuffix("/mcp")
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
        response = httpx.get(f"{root}{path}", headers={"origin": "https://inspector.test"}, trust_env=False)
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "*"
        assert response.json() == {
            "resource": protected.url,
            "authorization_servers": [authorization.issuer],
            "scopes_supported": ["read"],
            "bearer_methods_supported": ["header"],
            "resource_name": "kosmos_rag",
        }


def test_keys__still_work_where_agents_log_in(protected: Running) -> None:
    reader = protected.engine.tenant("acme").api_keys.create("agent", scopes=["read"])
    assert read_data(protected.call("search", QUESTION, credentials=reader))["hits"]


def test_server__without_a_public_url_has_no_metadata(running: Running) -> None:
    root = running.url.removesuffix("/mcp")
    assert httpx.get(f"{root}/.well-known/oauth-protected-resource/mcp", trust_env=False).status_code == 404
    anonymous = httpx.post(running.url, json=LIST, headers=ACCEPT, trust_env=False)
    assert anonymous.headers["www-authenticate"] == "Bearer"


def test_settings__that_agents_cannot_log_in_by_are_refused(loaded_settings: Settings, signer: Signer) -> None:
    url = {"mcp.url": "https://rag.example/kosmos/mcp"}
    with pytest.raises(ConfigError, match=r"service\.tokens\.keys is null"):
        ProtectedResource.from_settings(changed(loaded_settings, url))
    with_keys = changed(with_tokens(loaded_settings, signer), url)
    with pytest.raises(ConfigError, match=r"service\.tokens\.issuer is somebody"):
        ProtectedResource.from_settings(changed(with_keys, {"service.tokens.issuer": "somebody"}))
    resource = ProtectedResource.from_settings(with_keys)
    assert resource is not None
    assert resource.metadata_url == "https://rag.example/.well-known/oauth-protected-resource/kosmos/mcp"
    for wrong in ("http://rag.example/mcp", "rag.example/mcp", "https://rag.example/mcp?a=1", "https://u:p@x.test/"):
        with pytest.raises(ValueError, match="https"):
            McpSettings(url=wrong)
    assert McpSettings(url="http://127.0.0.1:8000/mcp").url


def _metadata_url(running: Running) -> str:
    return f"{running.url.removesuffix('/mcp')}/.well-known/oauth-protected-resource/mcp"


def _sign(authorization: AuthorizationServer, claims: dict[str, object]) -> str:
    return jwt.encode(claims, authorization.signer.key, algorithm="RS256", headers={"kid": "1"})


def _post(running: Running, authorization: AuthorizationServer, **claims: object) -> httpx.Response:
    token = _sign(authorization, authorization.signer.claims(**{"iss": authorization.issuer, **claims}))
    headers = {**ACCEPT, "authorization": f"Bearer {token}", "content-type": "application/json"}
    return httpx.post(running.url, json=LIST, headers=headers, trust_env=False)
