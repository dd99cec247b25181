"""A tenant with the schema of a small database, on which queries are enabled, and a scripted language model."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.text2sql.catalog.sources import from_database
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from tests.integration.apps.http.serving import Signer, with_tokens
from tests.integration.variants import opened
from tests.unit.models.llm.chat_server import running as chat_running
from tests.unit.models.llm.chat_server import writes


@contextmanager
def opened_shop(settings: Settings, signer: Signer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Open an engine whose tenant acme has the database shop; the model writes `SELECT colour FROM goods`."""
    path = folder / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE goods (id INTEGER, colour TEXT); INSERT INTO goods VALUES (1, 'red')")
    monkeypatch.setenv("KOSMOS_TEST_GOODS_URL", f"sqlite:///{path}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with chat_running() as chat:
        chat.replies = [writes("SELECT colour FROM goods")]
        enabled = {
            "text2sql.databases": {"acme/schema/shop": "KOSMOS_TEST_GOODS_URL"},
            "language_model.url": chat.url(),
        }
        with opened(with_tokens(settings, signer), enabled) as engine:
            engine.tenant("acme").collections.create("schema", preset="schema")
            grounding = SchemaGrounding(engine.tenant("acme", collection="schema"))
            grounding.build(from_database(f"sqlite:///{path}", name="shop"))
            yield engine
