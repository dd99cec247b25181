"""A service over a test's database, with tokens signed here."""

from collections.abc import Iterator

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture
def running(settings: Settings, signer: Signer) -> Iterator[Running]:
    """A service whose vectors are made of words."""
    with (
        Engine(with_tokens(settings, signer), embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as started,
    ):
        yield started
