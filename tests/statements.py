"""The SQL statements of the kernel and of the wings, and those that a test runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import kosmos_rag
from kosmos_rag.core.statements import Statements
from kosmos_rag.storage.sql import statement

PACKAGE = Path(kosmos_rag.__file__).parent
STATEMENTS = {
    folder.parent: Statements(f"kosmos_rag.{folder.parent.name}.sql")
    for folder in sorted(PACKAGE.glob("*/sql"))
    if any(folder.glob("*.sql"))
}
"""By the package whose modules run them; `storage` has those of the kernel."""
TEXTS = {name: text for statements in STATEMENTS.values() for name, text in statements.texts.items()}
"""By name: no two packages have one name."""


@contextmanager
def recorded_statements() -> Iterator[list[Any]]:
    """Record what cursors execute within the block.

    What asks for the types of a new connection is left out: the pool may open one at any time.
    """
    statements: list[Any] = []
    execute = psycopg.Cursor.execute

    def record(self: psycopg.Cursor, query: Any, *args: Any, **kwargs: Any) -> psycopg.Cursor:
        if query != statement("vector_types"):
            statements.append(query)
        return execute(self, query, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", record)
        yield statements
