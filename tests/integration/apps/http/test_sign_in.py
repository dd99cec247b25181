"""Sign-in by OpenID Connect: at a provider that is strict, at one that is hostile, and at one of PyPI."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.responses import JSONResponse, Response, StreamingResponse

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.auth.openid import OpenIdClient
from kosmos_rag.apps.http.toolkit.rate_limit import RateLimiter
from kosmos_rag.apps.http.toolkit.service import create_service
from kosmos_rag.core.config import DatabaseSettings, ServiceSettings
from kosmos_rag.core.config.service import RateSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.engine.aio import AsyncEngine
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.console_visits import OWN
from tests.integration.apps.http.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    providing,
    providing_elsewhere,
)
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.variants import changed

METADATA = "/.well-known/openid-configuration"
CONSOLE = "http://localhost:1"
"""The address that the provider sends browsers back to; a test takes path and query of it."""


@pytest.fixture(scope="module")
def signed_service(loaded_settings: Settings, shared_database: DatabaseSettings, signer: Signer) -> Iterator[Running]:
    """A service with a provider of its own."""
    settings = with_tokens(loaded_settings.model_copy(update={"database": shared_database}), signer)
    with (
        providing() as provider,
        Engine(
            changed(settings, {"service.openid": provider.settings(CONSOLE), "service.rates.refused_per_minute": 0}),
            embedder=HashingEmbedder(),
        ) as engine,
        serving(engine, signer) as started,
    ):
        yield started


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with providing() as started:
        yield started


@pytest.fixture
def served(signed_service: Running, provider: IdentityProvider, tenant_name: str) -> Running:
    """The service of the module, with the provider and the tenant of a test."""
    return use_provider(signed_service, provider, tenant_name)


@pytest.fixture
def limit_refusals(signed_service: Running) -> Iterator[Callable[..., None]]:
    """Count refusals from now on, with the rates of the settings or others."""
    service = signed_service.service
    unlimited = service.rate_limiter

    def start(**rates: int) -> None:
        limiter = RateLimiter(ServiceSettings(rates=RateSettings(**rates)))
        object.__setattr__(service, "rate_limiter", limiter)

    yield start
    object.__setattr__(service, "rate_limiter", unlimited)


def use_provider(service: Running, provider: IdentityProvider, tenant_name: str, **values: Any) -> Running:
    settings = provider.settings(CONSOLE, **({"tenant": tenant_name} | values))
    client = OpenIdClient(changed(service.service.settings, {"service.openid": settings}))
    object.__setattr__(service.service, "openid", client)
    return replace(service, tenant_name=tenant_name)


class Visitor:
    """A browser without scripts, which begins at the console and goes where it is sent."""

    def __init__(self, served: Running) -> None:
        self.client = httpx.Client(base_url=served.url, headers=OWN, timeout=30, trust_env=False, verify=False)

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def begin(self, path: str = "") -> str:
        """Begin to sign in. Returns the address at the provider."""
        response = self.client.get("/sign-in/openid", params={"next": path} if path else {})
        assert response.status_code == 303, response.text
        return response.headers["location"]

    def authorize(self, url: str) -> str:
        """Return the path and query with which the provider sends the browser back."""
        with httpx.Client(trust_env=False, verify=False) as client:
            response = client.get(url)
        assert response.status_code == 303, response.text
        location = urlsplit(response.headers["location"])
        assert f"{location.scheme}://{location.netloc}" == CONSOLE
        return f"{location.path}?{location.query}"

    def sign_in(self, path: str = "") -> httpx.Response:
        return self.client.get(self.authorize(self.begin(path)))

    @property
    def attempts(self) -> dict[str, str]:
        """The cookies of sign-ins that have begun."""
        return {name: value for name, value in self.client.cookies.items() if name.startswith("kosmos-sign-in-")}


def forward_url(page: httpx.Response) -> str:
    """Return where a page goes on by itself."""
    return unescape(re.findall(r'http-equiv="refresh" content="0; url=([^"]*)"', page.text)[0])


def test_sign_in__has_the_principals_and_scopes_of_the_groups(served: Running, provider: IdentityProvider) -> None:
    documents = {
        "leave.md": ("department:hr",),
        "space.md": ("space:handbook",),
        "notes.md": ("user:anna",),
        "board.md": ("department:board",),
    }
    served.tenant().ingest(
        [SourceDocument(source=name, data=f"# {name}\n".encode(), acl=acl) for name, acl in documents.items()]
    )
    with Visitor(served) as visitor:
        assert "Sign in with single sign-on" in visitor.client.get("/sign-in").text
        page = visitor.sign_in("/documents?sort=bytes")
        assert forward_url(page) == "/documents?sort=bytes"
        listing = visitor.client.get("/documents").text
        assert [name for name in documents if name in listing] == ["leave.md", "notes.md"]
        assert 'title="Signed in as anna"' in listing
        assert "Upload" not in listing
        assert visitor.client.get("/jobs").status_code == 403
    provider.user = {"sub": "ben", "groups": ["editors", "unknown"]}
    with Visitor(served) as visitor:
        assert forward_url(visitor.sign_in()) == "/"
        listing = visitor.client.get("/documents").text
        assert [name for name in documents if name in listing] == ["space.md"]
        assert "Upload" in listing
        assert visitor.client.get("/jobs").status_code == 200
        assert visitor.client.get("/inspector").status_code == 403


def test_cookies__are_for_the_console_alone_and_no_script_reads_them(served: Running) -> None:
    with Visitor(served) as visitor:
        first = visitor.client.get("/sign-in/openid").headers["set-cookie"].lower()
        assert {"httponly", "samesite=lax", "path=/"} <= set(first.split("; "))
        page = visitor.sign_in()
        cookies = page.headers.get_list("set-cookie")
        (session,) = [cookie for cookie in cookies if cookie.startswith("kosmos-session=g")]
        assert {"httponly", "samesite=strict", "path=/"} <= set(session.lower().split("; "))
        assert any(re.match('kosmos-sign-in-[0-9a-f]{16}="";', cookie) for cookie in cookies)
        assert page.headers["cache-control"] == "no-store"
        assert visitor.client.post("/v1/search", json={"question": "?"}).status_code == 401
        beyond = visitor.client.get("/sign-in/openid", headers={"host": "kosmos.example"}).headers["set-cookie"]
        assert beyond.startswith("__Host-kosmos-sign-in-")
        assert "; secure" in beyond.lower()


def test_sign_out__ends_the_session_here_and_at_the_provider(served: Running, provider: IdentityProvider) -> None:
    with Visitor(served) as visitor:
        visitor.sign_in()
        url = urlsplit(forward_url(visitor.client.post("/sign-out")))
        assert f"{url.scheme}://{url.netloc}{url.path}" == f"{provider.url}/end"
        assert parse_qs(url.query) == {
            "realm": ["1"],
            "client_id": [CLIENT_ID],
            "post_logout_redirect_uri": [f"{CONSOLE}/sign-in"],
        }
        assert visitor.client.get("/documents").headers["location"] == "/sign-in?next=%2Fdocuments"
        key = served.key("mine", "read")
        assert visitor.client.post("/sign-in", data={"credentials": key}).headers["location"] == "/"
        assert visitor.client.post("/sign-out").headers["location"] == "/sign-in"


def test_keys__lead_to_the_page_that_was_asked_for(served: Running) -> None:
    key = served.key("mine", "read")
    with Visitor(served) as visitor:
        page = visitor.client.get(visitor.client.get("/documents?words=a%20b").headers["location"])
        path = unescape(re.findall(r'name="next" value="([^"]*)"', page.text)[0])
        assert path == "/documents?words=a%20b"
        response = visitor.client.post("/sign-in", data={"credentials": key, "next": path})
        assert response.headers["location"] == path


@pytest.mark.parametrize(
    "path",
    [
        "//elsewhere.example",
        "/\\elsewhere.example",
        "/\t/elsewhere.example",
        "https://elsewhere.example",
        "javascript:alert(1)",
        "elsewhere.example",
        "\\\\elsewhere.example",
        "/documents\r\nset-cookie: a=b",
        "/sign-in",
        "/sign-in/openid?next=/documents",
        "/documents/../%73ign-in/openid",
    ],
)
def test_next__leads_to_no_other_host(served: Running, path: str) -> None:
    """After a sign-in the console leads to its own pages only."""
    key = served.key("mine", "read")
    with Visitor(served) as visitor:
        assert 'name="next"' not in visitor.client.get("/sign-in", params={"next": path}).text
        assert forward_url(visitor.sign_in(path)) == "/"
        response = visitor.client.post("/sign-in", data={"credentials": key, "next": path})
        assert response.headers["location"] == "/"


HOSTILE_CLAIMS = {
    "wrong issuer": {"iss": "https://elsewhere.example"},
    "no issuer": {"iss": None},
    "wrong audience": {"aud": "another-client"},
    "several audiences": {"aud": [CLIENT_ID, "another-client"]},
    "for another party": {"azp": "another-client"},
    "wrong nonce": {"nonce": "another"},
    "nonce that is no text": {"nonce": "\ud800"},
    "no nonce": {"nonce": None},
    "expired": {"exp": int(time.time()) - 120},
    "no expiry": {"exp": None},
    "of the future": {"iat": int(time.time()) + 3600},
    "subject of a key": {"sub": "key:mine"},
    "no subject": {"sub": None},
    "groups of a wrong type": {"groups": {"operators": True}},
}


@pytest.mark.parametrize("claims", HOSTILE_CLAIMS.values(), ids=HOSTILE_CLAIMS)
def test_id_token__with_wrong_claims_is_refused(
    served: Running, provider: IdentityProvider, claims: dict[str, Any]
) -> None:
    """An ID token of another issuer, audience, nonce or time signs nobody in."""
    provider.claims = claims
    with Visitor(served) as visitor:
        page = visitor.sign_in()
        assert page.status_code == 401
        assert "The sign-in did not succeed" in page.text
        assert "kosmos-session" not in visitor.client.cookies
        provider.claims = {}
        assert visitor.sign_in().status_code == 200, "the same browser may try again"


@pytest.mark.parametrize("forgery", ["none", "another key", "the public key as a secret", "the secret of the client"])
def test_id_token__with_a_wrong_signature_is_refused(
    served: Running, provider: IdentityProvider, forgery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ID token without a signature, or with that of another key, signs nobody in."""
    if forgery == "none":
        provider.algorithm = "none"
    elif forgery == "another key":
        provider.signing_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    else:
        # The library refuses to sign so; an attacker does not.
        monkeypatch.setattr("jwt.algorithms.is_pem_format", lambda _: False)
        pem = provider.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        provider.algorithm = "HS256"
        provider.signing_key = pem if "public" in forgery else CLIENT_SECRET.encode() * 2
    with Visitor(served) as visitor:
        assert visitor.sign_in().status_code == 401


def test_code__counts_once(served: Running) -> None:
    with Visitor(served) as visitor:
        response = visitor.authorize(visitor.begin())
        assert visitor.client.get(response).status_code == 200
        assert visitor.client.get(response).status_code == 401
        code = parse_qs(urlsplit(response).query)["code"][0]
        (state,) = parse_qs(urlsplit(visitor.begin()).query)["state"]
        again = "/sign-in/callback?" + urlencode({"code": code, "state": state})
        assert visitor.client.get(again).status_code == 401


def test_state__is_of_one_browser(served: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The response of the identity provider counts only in the browser that began the sign-in."""

    def refuse(path: str) -> str:
        caplog.clear()
        assert victim.client.get(path).status_code == 401
        (message,) = [record.getMessage() for record in caplog.records if record.name.endswith("auth.openid")]
        return message.removeprefix("a sign-in was refused: ")

    nothing, another = "this browser did not begin it, or too long ago", "the state is of another sign-in"
    with Visitor(served) as visitor, Visitor(served) as victim:
        response = visitor.authorize(visitor.begin())
        assert refuse(response) == nothing
        victim.begin()
        assert refuse(response) == nothing
        assert refuse("/sign-in/callback") == nothing
        ((own_name, own_attempt),) = victim.attempts.items()
        (name,) = visitor.attempts
        assert name != own_name
        victim.client.cookies.set(name, own_attempt, domain="127.0.0.1")
        assert refuse(response) == another
        assert visitor.client.get(response).status_code == 200


def test_callback__without_an_attempt_counts_for_nobody(served: Running, limit_refusals: Callable[..., None]) -> None:
    """A response that no browser has asked for locks nobody out: any page can send it."""
    limit_refusals()
    key = served.key("mine", "read")
    with Visitor(served) as visitor:
        for _ in range(62):
            assert visitor.client.get("/sign-in/callback").status_code == 401
        assert visitor.client.post("/sign-in", data={"credentials": key}).status_code == 303
        assert visitor.sign_in().status_code == 200


def test_callback__that_the_provider_refuses_counts_for_sign_ins_alone(
    served: Running, limit_refusals: Callable[..., None]
) -> None:
    limit_refusals(refused_per_minute=3)
    key = served.key("mine", "read")
    with Visitor(served) as visitor:
        for _ in range(3):
            (state,) = parse_qs(urlsplit(visitor.begin()).query)["state"]
            wrong = "/sign-in/callback?" + urlencode({"code": "wrong", "state": state})
            assert visitor.client.get(wrong).status_code == 401
        page = visitor.client.get("/sign-in/openid")
        assert page.status_code == 429
        assert int(page.headers["retry-after"]) <= 60
        assert visitor.client.post("/sign-in", data={"credentials": key}).status_code == 303


def test_sign_in__of_two_tabs_succeeds_in_both(served: Running) -> None:
    with Visitor(served) as visitor:
        first, second = visitor.begin("/documents"), visitor.begin("/health")
        assert visitor.client.get("/sign-in/callback?state=of-another-site").status_code == 401
        assert forward_url(visitor.client.get(visitor.authorize(second))) == "/health"
        assert forward_url(visitor.client.get(visitor.authorize(first))) == "/documents"
        assert visitor.attempts == {}


def test_sign_in__that_is_begun_often_leaves_room_for_other_headers(served: Running) -> None:
    with Visitor(served) as visitor:
        urls = [visitor.begin("/documents?" + "x" * 1900) for _ in range(12)]
        assert sum(map(len, visitor.attempts.values())) < 8_000
        assert visitor.client.get(visitor.authorize(urls[-1])).status_code == 200


def test_page__without_the_cookies_of_the_browser_ends_nothing(served: Running) -> None:
    """A link from another site brings no strict cookies, and the other tabs stay signed in."""
    with Visitor(served) as visitor, Visitor(served) as stranger:
        visitor.begin()
        stranger.client.cookies.update(visitor.attempts)
        page = stranger.client.get("/documents")
        assert page.status_code == 303
        assert "set-cookie" not in page.headers
        stranger.client.cookies.set("kosmos-session", "over", domain="127.0.0.1")
        (cleared,) = stranger.client.get("/documents").headers.get_list("set-cookie")
        assert cleared.startswith('kosmos-session="";')


def test_response__of_another_issuer_or_with_an_error_is_refused(served: Running, provider: IdentityProvider) -> None:
    with Visitor(served) as visitor:
        provider.response = {"iss": "https://elsewhere.example"}
        assert visitor.sign_in().status_code == 401
        provider.response = {"iss": provider.url}
        assert visitor.sign_in().status_code == 200
        provider.response = {}
        assert visitor.sign_in().status_code == 200, "a provider that does not say so names no issuer"
        (state,) = parse_qs(urlsplit(visitor.begin()).query)["state"]
        denied = "/sign-in/callback?" + urlencode({"error": "access_denied", "state": state})
        assert visitor.client.get(denied).status_code == 401


def test_session__of_another_secret_or_purpose_or_time_is_none(
    served: Running, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Visitor(served) as visitor:
        visitor.sign_in()
        session = visitor.client.cookies["kosmos-session"]
        visitor.begin()
        (attempt,) = visitor.attempts.values()
        forged = use_provider(served, provider, served.tenant_name, session_secret="t" * 32).service.openid
        assert forged is not None
        identity = OpenIdClient(served.service.settings).open_session(session)
        assert identity is not None
        use_provider(served, provider, served.tenant_name)
        for value in (
            attempt,
            forged.seal_session(identity),
            session[:-8] + "AAAAAAA=",
            "gAAAA",
            "é".encode().decode(),
        ):
            headers = httpx.Headers({"cookie": f"kosmos-session={value}"}, encoding="utf-8")
            with Visitor(served) as other:
                assert other.client.get("/documents", headers=headers).status_code == 303, value
        assert visitor.client.get("/documents").status_code == 200
        now = time.time()
        monkeypatch.setattr("time.time", lambda: now + 61 * 60)
        assert visitor.client.get("/documents").headers["location"].startswith("/sign-in?ended=1")


def test_users__without_a_grant_do_not_enter(served: Running, provider: IdentityProvider) -> None:
    grants = {"operators": {"scopes": ["read"]}}
    with Visitor(use_provider(served, provider, served.tenant_name, groups=grants)) as visitor:
        page = visitor.sign_in()
        assert page.status_code == 403
        assert "no group of yours" in page.text
        assert "kosmos-session" not in visitor.client.cookies


def test_claims__come_from_the_endpoint_of_the_user_where_the_token_lacks_them(
    served: Running, provider: IdentityProvider
) -> None:
    provider.user = {"sub": "anna"}
    with Visitor(served) as visitor:
        provider.user_info = {"sub": "ben", "groups": ["operators"]}
        assert visitor.sign_in().status_code == 401, "claims of another user"
        provider.user_info = {"sub": "anna", "groups": ["operators"], "iss": "https://elsewhere.example"}
        visitor.sign_in()
        assert visitor.client.get("/inspector").status_code == 200


def test_subject__may_be_a_verified_email_and_the_tenant_a_claim(served: Running, provider: IdentityProvider) -> None:
    values = {"tenant": None, "tenant_claim": "org", "subject_claim": "email"}
    provider.user = {"sub": "1", "email": "anna@acme.example", "org": served.tenant_name, "groups": []}
    provider.user_info = {"sub": "1"}
    with Visitor(use_provider(served, provider, served.tenant_name, **values)) as visitor:
        assert visitor.sign_in().status_code == 401
        provider.user_info = {"sub": "1", "email": "ben@acme.example", "email_verified": True}
        assert visitor.sign_in().status_code == 401, "the verification is of another email"
        provider.user_info = {"sub": "1", "email_verified": True}
        assert visitor.sign_in().status_code == 401, "the verification is of no email"
        provider.user_info["email"] = "anna@acme.example"
        visitor.sign_in()
        assert 'title="Signed in as anna@acme.example"' in visitor.client.get("/").text
        provider.user["email_verified"] = True
        visitor.sign_in()
        assert 'title="Signed in as anna@acme.example"' in visitor.client.get("/").text
        provider.user["org"] = "../other"
        assert visitor.sign_in().status_code == 401


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://elsewhere.example"},
        {"token_endpoint": "http://elsewhere.example/token"},
        {"token_endpoint": "https://["},
        {"authorization_endpoint": None},
        {"jwks_uri": "http://127.0.0.1:1/keys"},
    ],
    ids=["another issuer", "no TLS", "no URL", "no page", "no keys"],
)
def test_provider__that_describes_itself_wrongly_is_not_used(
    served: Running, provider: IdentityProvider, metadata: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kosmos_rag.apps.auth.openid._COOLDOWN_S", 0.0)
    provider.metadata = metadata
    with Visitor(served) as visitor:
        page = visitor.client.get("/sign-in/openid")
        assert page.status_code == 502
        assert "sign in with a key" in page.text
        provider.metadata = {}
        assert visitor.sign_in().status_code == 200, "nothing of the wrong description was kept"


def test_response__without_the_issuer_of_a_provider_that_names_it_is_refused(
    served: Running, provider: IdentityProvider
) -> None:
    provider.metadata = {"authorization_response_iss_parameter_supported": True}
    with Visitor(served) as visitor:
        assert visitor.sign_in().status_code == 401
        provider.response = {"iss": provider.url}
        assert visitor.sign_in().status_code == 200


def test_provider__that_does_not_answer_is_asked_once(served: Running, provider: IdentityProvider) -> None:
    async def wait() -> Response:
        await asyncio.sleep(1)
        return JSONResponse({}, 503)

    def begin(_: int) -> int:
        with Visitor(served) as visitor:
            return visitor.client.get("/sign-in/openid").status_code

    provider.answers[METADATA] = wait
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(begin, range(16))) == {502}
    assert provider.calls == [METADATA]


@pytest.mark.parametrize("path", ["/token", METADATA])
@pytest.mark.parametrize(("status", "error"), [(401, "invalid_client"), (404, "none"), (429, "slow_down")])
def test_provider__that_fails_does_not_refuse_the_user(
    served: Running, provider: IdentityProvider, path: str, status: int, error: str
) -> None:
    with Visitor(served) as visitor:
        visitor.client.post("/sign-in", data={"credentials": served.key("mine", "read")})
        url = visitor.authorize(visitor.begin()) if path == "/token" else "/sign-in/openid"
        provider.answers[path] = JSONResponse({"error": error}, status)
        page = visitor.client.get(url)
        assert page.status_code == 502
        assert "set-cookie" not in page.headers
        assert visitor.client.get("/documents").status_code == 200, "the key still counts"


def test_provider__that_answers_slowly_or_without_end_is_left(
    served: Running,
    provider: IdentityProvider,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("kosmos_rag.apps.auth.openid._TIMEOUT_S", 1.0)
    monkeypatch.setattr("kosmos_rag.apps.auth.openid._COOLDOWN_S", 0.0)
    monkeypatch.setattr("kosmos_rag.apps.auth.jwt._FETCH_TIMEOUT_S", 1.0)

    async def drip() -> AsyncIterator[bytes]:
        for _ in range(60):
            yield b" "
            await asyncio.sleep(0.2)

    async def pour() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b" " * 100_000

    async def answer_slowly() -> Response:
        return StreamingResponse(drip())

    async def answer_without_end() -> Response:
        return StreamingResponse(pour())

    with Visitor(served) as visitor:
        for path in (METADATA, "/keys"):
            for answer, reason in (
                (answer_slowly, "no complete answer within 1 s"),
                (answer_without_end, "an answer of more than 1000000 bytes"),
            ):
                provider.answers = {path: answer}
                caplog.clear()
                assert visitor.client.get("/sign-in/openid").status_code == 502
                assert reason in caplog.text


def test_provider__that_nests_too_deep_is_not_used(served: Running, provider: IdentityProvider) -> None:
    provider.answers[METADATA] = Response("[" * 200_000, media_type="application/json")
    with Visitor(served) as visitor:
        assert visitor.client.get("/sign-in/openid").status_code == 502


def test_sign_out__does_not_ask_a_provider_that_is_not_known_yet(served: Running, provider: IdentityProvider) -> None:
    with Visitor(served) as visitor:
        visitor.sign_in()
        use_provider(served, provider, served.tenant_name)
        provider.calls.clear()
        assert visitor.client.post("/sign-out").headers["location"] == "/sign-in"
        assert provider.calls == []
        assert "kosmos-session" not in visitor.client.cookies


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/token", "https://localhost/token", "https://[::1]/token"])
def test_endpoints__of_this_machine_are_refused_from_a_provider_elsewhere(provider: IdentityProvider, url: str) -> None:
    assert provider.settings(CONSOLE).allows_endpoint(url)
    elsewhere = provider.settings(CONSOLE, issuer="https://id.example")
    assert not elsewhere.allows_endpoint(url)
    assert elsewhere.allows_endpoint("https://id.example/token")


def test_sign_in__is_in_the_log(served: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="kosmos_rag.apps.auth.openid"), Visitor(served) as visitor:
        visitor.sign_in()
    (record,) = [vars(record) for record in caplog.records if vars(record).get("action") == "sign_in"]
    assert (record["tenant"], record["texts"]) == (served.tenant_name, {"subject": "anna", "scopes": "read"})


def test_cookies__need_tls_where_browsers_use_it(served: Running, provider: IdentityProvider) -> None:
    """A proxy that ends TLS may send a host name of this machine."""
    service = served.service
    before = service.settings
    openid = provider.settings("https://rag.example")
    object.__setattr__(service, "settings", changed(before, {"service.openid": openid}))
    try:
        with Visitor(served) as visitor:
            cookie = visitor.client.get("/sign-in/openid").headers["set-cookie"]
    finally:
        object.__setattr__(service, "settings", before)
    assert cookie.startswith("__Host-kosmos-sign-in-")
    assert "; secure" in cookie.lower()


def test_secret__goes_into_the_body_where_the_provider_reads_it_there(
    served: Running, provider: IdentityProvider
) -> None:
    provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    with Visitor(served) as visitor:
        assert visitor.sign_in().status_code == 200


def test_settings__name_what_is_missing(tmp_path: Any) -> None:
    for values, key in (
        ({"issuer": "https://id.example"}, "client_id"),
        ({"issuer": "http://id.example"}, "https"),
        ({"session_secret": "short"}, "session_secret"),
    ):
        with pytest.raises(ConfigError, match=key):
            Settings.load(overrides={f"service.openid.{name}": value for name, value in values.items()})


def test_secrets__are_needed_by_the_console_alone(settings: Settings) -> None:
    values = {"issuer": "https://id.example", "client_id": "console", "url": "https://rag.example", "tenant": "acme"}
    openid = Settings.load(overrides={f"service.openid.{name}": value for name, value in values.items()}).service.openid
    with Engine(changed(settings, {"service.openid": openid}), embedder=HashingEmbedder()) as engine:
        shared = AsyncEngine(engine)
        with pytest.raises(ConfigError, match="KOSMOS_SERVICE__OPENID__CLIENT_SECRET"):
            create_service(shared)
        assert create_service(shared, console=False).openid is None
        shared._threads.shutdown()


@pytest.mark.parametrize("key", ["service.tokens.keys", "service.openid.issuer"])
def test_settings__refuse_an_address_that_names_a_user(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        Settings.load(overrides={key: "http://localhost:x@evil.example/"})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sign_in__works_with_the_provider_of_another_project(served: Running, tenant_name: str) -> None:
    with (
        providing_elsewhere(anna={"groups": ["editors"]}) as provider,
        Visitor(use_provider(served, provider, tenant_name)) as visitor,
    ):
        url = visitor.begin("/documents")
        with httpx.Client(trust_env=False, verify=False) as client:
            location = client.post(url, data={"sub": "anna"}).headers["location"]
        assert forward_url(visitor.client.get(location.removeprefix(CONSOLE))) == "/documents"
        assert "Upload" in visitor.client.get("/documents").text
        assert forward_url(visitor.client.post("/sign-out")).startswith(f"{provider.url}/oauth2/end_session?")
