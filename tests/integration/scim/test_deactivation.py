"""A deactivated user at each face: HTTP, MCP, the console, and a session of OpenID Connect."""

from collections.abc import Iterator

import httpx
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.scim.store import EnterpriseAccount, ScimStore
from tests.integration.apps.http.console_visits import OWN
from tests.integration.apps.http.identity_provider import providing
from tests.integration.apps.http.serving import Signer, serving, with_tokens
from tests.integration.apps.http.test_sign_in import CONSOLE, Visitor
from tests.integration.apps.mcp.running import read_data
from tests.integration.apps.mcp.running import serving as serving_mcp
from tests.integration.variants import changed

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def scim_settings(settings: Settings, signer: Signer) -> Settings:
    return with_tokens(changed(settings, {"scim.enabled": True}), signer)


@pytest.fixture
def engine(scim_settings: Settings) -> Iterator[Engine]:
    with Engine(scim_settings, embedder=HashingEmbedder()) as engine:
        yield engine


def _create_user(engine: Engine) -> EnterpriseAccount:
    return ScimStore(engine.tenant("acme"), "http://localhost").create(EnterpriseAccount(user_name="anna"))


def _deactivate(engine: Engine, user: EnterpriseAccount) -> None:
    def apply(current: EnterpriseAccount) -> EnterpriseAccount:
        current.active = False
        return current

    ScimStore(engine.tenant("acme"), "http://localhost").change(EnterpriseAccount, str(user.id), None, apply)


def test_mcp__refuses_a_deactivated_user(engine: Engine, signer: Signer) -> None:
    user = _create_user(engine)
    with serving_mcp(engine, signer) as running:
        assert read_data(running.call("search", {"question": "leave"}))["hits"] == []
        _deactivate(engine, user)
        headers = {"authorization": f"Bearer {running.token()}", "accept": "application/json, text/event-stream"}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert httpx.post(running.url, json=request, headers=headers, trust_env=False).status_code == 401


def test_console__ends_the_session_of_a_deactivated_user(engine: Engine, signer: Signer) -> None:
    user = _create_user(engine)
    with (
        serving(engine, signer) as served,
        httpx.Client(base_url=served.url, headers=OWN, timeout=30, trust_env=False) as visitor,
    ):
        assert visitor.post("/sign-in", data={"credentials": served.token(scope="read")}).status_code == 303
        assert visitor.get("/documents").status_code == 200
        _deactivate(engine, user)
        assert visitor.get("/documents").status_code in (303, 401)


def test_openid__ends_the_session_of_a_deactivated_user(scim_settings: Settings, signer: Signer) -> None:
    with providing() as provider:
        values = {"service.openid": provider.settings(CONSOLE, tenant="acme")}
        with (
            Engine(changed(scim_settings, values), embedder=HashingEmbedder()) as engine,
            serving(engine, signer) as served,
            Visitor(served) as visitor,
        ):
            user = _create_user(engine)
            assert visitor.sign_in().status_code == 200
            assert visitor.client.get("/documents").status_code == 200
            _deactivate(engine, user)
            assert visitor.client.get("/documents").status_code in (303, 401)
