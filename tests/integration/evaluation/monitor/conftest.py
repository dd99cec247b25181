"""The world of the tests of vector indexes: a tenant with an index over it."""

from tests.integration.indexing.ann.conftest import (
    database,
    engine,
    exact,
    indexed,
    indexed_template,
    settings,
    template,
)

__all__ = ["database", "engine", "exact", "indexed", "indexed_template", "settings", "template"]
