"""The example schema."""

import pytest

from kosmos_rag.schema.model import DatabaseSchema
from kosmos_rag.schema.sources import from_models
from tests.unit.schema.worlds import EXAMPLE


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> DatabaseSchema:
    """The example schema, from its models."""
    monkeypatch.syspath_prepend(EXAMPLE)
    return from_models("programs:Base")
