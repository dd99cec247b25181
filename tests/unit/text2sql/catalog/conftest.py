"""The example schema."""

import pytest

from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import from_models
from tests.unit.text2sql.catalog.worlds import EXAMPLE


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> DatabaseSchema:
    """The example schema, from its models."""
    monkeypatch.syspath_prepend(EXAMPLE)
    return from_models("programs:Base")
