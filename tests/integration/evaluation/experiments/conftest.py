"""The tenant that most experiments are of."""

import pytest

from kosmos_rag import Engine
from kosmos_rag.engine.tenant import Tenant
from tests.integration.evaluation.experiments.asking import filled


@pytest.fixture
def acme(engine: Engine) -> Tenant:
    """A tenant with a dozen documents."""
    return filled(engine)
