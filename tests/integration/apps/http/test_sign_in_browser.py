"""Sign-in by OpenID Connect in a browser, at a provider of another site."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.identity_provider import IdentityProvider, providing_elsewhere
from tests.integration.apps.http.serving import Running, Signer, listen, serving, with_tokens
from tests.integration.variants import changed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with providing_elsewhere(anna={"groups": ["hr-team"]}) as started:
        yield started


@pytest.fixture
def served(
    loaded_settings: Settings,
    shared_database: DatabaseSettings,
    signer: Signer,
    provider: IdentityProvider,
    tenant_name: str,
) -> Iterator[Running]:
    listening = listen()
    openid = provider.settings(
        f"http://127.0.0.1:{listening.getsockname()[1]}", tenant=tenant_name, label="the company"
    )
    settings = with_tokens(loaded_settings.model_copy(update={"database": shared_database}), signer)
    with Engine(changed(settings, {"service.openid": openid}), embedder=HashingEmbedder()) as engine:
        tenant = engine.tenant(tenant_name)
        tenant.ingest([SourceDocument(source="leave.md", data=b"# Leave\n", acl=("department:hr",))])
        with serving(engine, signer, listening=listening) as started:
            yield started


def test_sign_in__comes_back_to_the_page_and_out_again(
    browser: "Browser", served: Running, provider: IdentityProvider
) -> None:

    def is_fault(message: "ConsoleMessage") -> bool:
        # The provider's page loads a style sheet that is not there.
        return message.type == "error" and message.location["url"].startswith(served.url)

    context = browser.new_context(base_url=served.url)
    page = context.new_page()
    page.set_default_timeout(15_000)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if is_fault(message) else None)
    page.goto("/documents?sort=bytes")
    page.click("text=Sign in with the company")
    page.wait_for_url(f"{provider.url}/**")
    page.click("button:has-text('anna')")
    page.wait_for_url(f"{served.url}/documents?sort=bytes")
    assert page.locator("text=leave.md").count() == 1
    assert page.locator("[title='Signed in as anna']").count() == 1
    page.click("text=Sign out")
    page.wait_for_url(f"{provider.url}/**")
    page.goto(f"{served.url}/documents")
    assert page.locator("text=Sign in with the company").count() == 1
    assert [cookie["name"] for cookie in context.cookies(served.url)] == []
    context.close()
    assert errors == []
