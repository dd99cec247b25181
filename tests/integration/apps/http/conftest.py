"""A service over a test's database, with tokens signed here."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.conftest import shares_database
from tests.integration.apps.http.browsing import chromium
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def shared_service(loaded_settings: Settings, shared_database: DatabaseSettings, signer: Signer) -> Iterator[Running]:
    """A service over the database of this process, for the tests of a module that have a tenant each."""
    settings = loaded_settings.model_copy(update={"database": shared_database})
    with (
        Engine(with_tokens(settings, signer), embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as started,
    ):
        yield started


@pytest.fixture
def running(request: pytest.FixtureRequest, settings: Settings, signer: Signer) -> Iterator[Running]:
    """A service whose vectors are made of words.

    A test that asks for `tenant_name` has its tenant in the service of its module; another test has a service.
    """
    if shares_database(request):
        yield replace(request.getfixturevalue("shared_service"), tenant_name=request.getfixturevalue("tenant_name"))
    else:
        with (
            Engine(with_tokens(settings, signer), embedder=HashingEmbedder()) as engine,
            serving(engine, signer) as started,
        ):
            yield started


@pytest.fixture
def running_with_views(settings: Settings, signer: Signer, tenant_name: str) -> Iterator[Running]:
    """A service whose administrators may look as other readers."""
    allowed = with_tokens(settings, signer, view_as=True)
    with Engine(allowed, embedder=HashingEmbedder()) as engine, serving(engine, signer) as started:
        yield replace(started, tenant_name=tenant_name)
