"""What the tests of re-embedding share."""

from collections.abc import Iterator

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.engine.tenant import Tenant
from tests.integration.indexing.reembedding.moved import CHUNKS
from tests.integration.two_models import NEW, OLD, document
from tests.integration.variants import opened


@pytest.fixture
def moving(settings: Settings) -> Iterator[Engine]:
    """An engine with both models, and a tenant that was embedded by the first."""
    with opened(settings, {}, embedder=OLD, next_embedder=NEW) as engine:
        engine.tenant("acme").ingest(document(number) for number in range(CHUNKS))
        yield engine


@pytest.fixture
def acme(moving: Engine) -> Tenant:
    return moving.tenant("acme")
