"""What the tests of the keyword context share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def schema_docs() -> Path:
    """The sample: the documentation of a sales table, with common queries."""
    return Path(__file__).parents[4] / "examples" / "schema_docs.txt"
