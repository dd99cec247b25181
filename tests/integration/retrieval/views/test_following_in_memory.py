"""Blocks that follow the changes of their collections, and those that cannot."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Filter, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.retrieval.blocks import following
from kosmos_rag.storage import lexical_statistics
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import tenant
from tests.integration.retrieval.views.blocks import find_block_cache, opened_views
from tests.statements import recorded_statements

pytestmark = pytest.mark.usefixtures("early_blocks")
QUESTIONS = ("churn of revenue", "margin of customers and suppliers", "holiday", "the budget of invoices")
WORDS = ("revenue", "customer", "invoice", "contract", "supplier", "budget", "forecast", "salary", "holiday")
READER = (EVERYONE, "ann")
SETTINGS: dict[str, Any] = {
    "rag.retrieval.candidates": 20,
    "rag.retrieval.top_k": 8,
    "rag.retrieval.result_cache": 0,
    "indexes.vector": "none",
}


@pytest.fixture
def engines(settings: Settings) -> Iterator[tuple[Engine, Engine]]:
    """One with the view of the memory, and one without, which writes."""
    with opened_views(settings, SETTINGS) as engines:
        yield engines


def _document(number: int, acl: str = EVERYONE, words: int = 4) -> SourceDocument:
    dice = random.Random(number)
    text = f"churn margin number {number} {' '.join(dice.choices(WORDS, k=words))}"
    return SourceDocument(source=f"d{number}", data=text.encode(), acl=(acl,), metadata={"parity": number % 2})


def _fill(engines: tuple[Engine, Engine], name: str, where: Filter | None = None) -> tuple[Tenant, Tenant]:
    """Publish documents, and load the block of a reader."""
    writer = engines[1].tenant(name)
    writer.ingest([_document(number, (EVERYONE, "ann", "ben")[number % 3]) for number in range(60)])
    memory, database = (engine.tenant(name, principals=READER) for engine in engines)
    memory.search("load", filter=where)
    assert engines[0].background.drain(10)
    memory.search("churn", filter=where)
    return memory, database


def _hits(result: SearchResult) -> list[tuple[Any, ...]]:
    return [(hit.chunk_id, hit.score, hit.text, hit.metadata, hit.version) for hit in result.hits]


def _feed(folder: Path) -> dict[str, Any]:
    rows = [{"container": "c", "principals": ["ben"]}, *({"document": f"d{n}", "containers": ["c"]} for n in (0, 1, 2))]
    (folder / "feed.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {"kind": "json_lines", "name": "wiki", "path": str(folder / "feed.jsonl")}


CHANGES: dict[str, Callable[[Tenant, Path], object]] = {
    "publish": lambda writer, _: writer.ingest([_document(100), _document(101, "ann")], prune=False),
    "replace": lambda writer, _: writer.ingest([_document(0, words=9), _document(1, "ann", words=9)], prune=False),
    "hide": lambda writer, _: writer.ingest([_document(0, "ben")], prune=False),
    "show": lambda writer, _: writer.ingest([_document(2, EVERYONE)], prune=False),
    "delete": lambda writer, _: writer.delete(["d0", "d1", "d2"]),
    "metadata": lambda writer, _: writer.update_metadata(["d0", "d3", "d4"], {"parity": 1}),
    "permissions": lambda writer, folder: writer.sync_permissions(_feed(folder)),
    "erase": lambda writer, _: writer.erase(source="d1*"),
}


@pytest.mark.parametrize("where", [None, {"metadata.parity": 1}], ids=["all", "filtered"])
@pytest.mark.parametrize("change", CHANGES)
def test_change__is_followed(
    engines: tuple[Engine, Engine], tenant_name: str, tmp_path: Path, change: str, where: dict[str, Any] | None
) -> None:
    conditions = None if where is None else Filter(where=where)
    memory, database = _fill(engines, tenant_name, conditions)
    blocks = find_block_cache(engines[0])
    CHANGES[change](engines[1].tenant(tenant_name), tmp_path)
    misses = blocks.misses
    for question in QUESTIONS:
        outcome, expected = (scope.search(question, filter=conditions) for scope in (memory, database))
        assert _hits(outcome) == _hits(expected)
    assert (blocks.followed, blocks.misses, len(blocks._blocks)) == (1, misses, 1)


def test_passages__of_unchanged_chunks_are_not_read_again(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    memory, _ = _fill(engines, tenant_name)
    expected = memory.search(QUESTIONS[0])
    engines[1].tenant(tenant_name).ingest([SourceDocument(source="new", data=b"bread")], prune=False)
    with recorded_statements() as statements:
        outcome = memory.search(QUESTIONS[0])
    assert [hit.chunk_id for hit in outcome.hits] == [hit.chunk_id for hit in expected.hits]
    assert statement("changed_chunks") in statements
    assert statement("passages_of_reader") not in statements


def _forget_changes(database: DatabaseSettings, name: str) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("DELETE FROM kosmos.collection_changes WHERE tenant_id = %s", [tenant(name).id])


def _change_history(database: DatabaseSettings, name: str) -> None:
    """As after a restore: the last change has another identity and the same number."""
    with psycopg.connect(database.admin_url or "") as connection:
        for column in ("state", "previous"):
            connection.execute(
                f"UPDATE kosmos.collection_changes SET {column} = gen_random_uuid() WHERE tenant_id = %s",
                [tenant(name).id],
            )


def _publish(engine: Engine, name: str, count: int) -> None:
    engine.tenant(name).ingest([_document(number) for number in range(200, 200 + count)], prune=False)


@pytest.mark.parametrize("reason", ["gap", "other history", "too many chunks", "too many versions", "deleted"])
def test_block__that_cannot_follow_is_dropped(
    engines: tuple[Engine, Engine],
    database: DatabaseSettings,
    tenant_name: str,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
) -> None:
    memory, plain = _fill(engines, tenant_name)
    blocks = find_block_cache(engines[0])
    [state], hits = blocks._blocks, blocks.hits
    match reason:
        case "gap":
            _publish(engines[1], tenant_name, 2)
            _forget_changes(database, tenant_name)
        case "other history":
            _publish(engines[1], tenant_name, 2)
            _change_history(database, tenant_name)
        case "too many chunks":
            monkeypatch.setattr(following, "MAX_CHUNKS", 1)
            _publish(engines[1], tenant_name, 2)
        case "too many versions":
            monkeypatch.setattr(lexical_statistics, "_FOLLOWED_VERSIONS", 1)
            engines[1].tenant(tenant_name).delete(["d0", "d1", "d3"])
        case "deleted":
            monkeypatch.setattr(lexical_statistics, "_KEPT_CHANGES", 1)
            monkeypatch.setattr(lexical_statistics, "_DELETION_INTERVAL", 1)
            for _ in range(3):
                _publish(engines[1], tenant_name, 1)
                engines[1].tenant(tenant_name).delete(["d200"])
    outcome = memory.search(QUESTIONS[0])
    assert _hits(outcome) == _hits(plain.search(QUESTIONS[0]))
    assert (blocks.followed, blocks.hits) == (0, hits)
    assert state not in blocks._blocks


def test_block__of_another_filter_is_not_followed(
    engines: tuple[Engine, Engine], tenant_name: str, tmp_path: Path
) -> None:
    """The preset of a collection may restrict a search that names no filter."""
    memory, plain = _fill(engines, tenant_name)
    preset = tmp_path / "approved.yaml"
    preset.write_text("rag: {retrieval: {require_approved: true}}")
    engines[1].tenant(tenant_name).collections.set_preset("default", preset=preset)
    engines[1].tenant(tenant_name).update_metadata(["d3"], {"approved": True})
    for _ in range(2):
        outcome = memory.search(QUESTIONS[0])
        assert _hits(outcome) == _hits(plain.search(QUESTIONS[0]))
        assert {hit.source for hit in outcome.hits} == {"d3"}
        assert engines[0].background.drain(10)


def test_reader__with_another_view_of_the_change_keeps_to_his_own(
    engines: tuple[Engine, Engine], tenant_name: str
) -> None:
    """Two readers share a block, and a change shows one of them more: the other has nothing of it."""
    memory, _ = _fill(engines, tenant_name)
    other, plain = (engine.tenant(tenant_name, principals=(EVERYONE, "ann", "cay")) for engine in engines)
    for _ in range(2):
        other.search("churn")
    assert len(find_block_cache(engines[0])._blocks) == 1
    engines[1].tenant(tenant_name).ingest([_document(300, "cay")], prune=False)
    for _ in range(3):
        outcome = other.search("churn number 300", 60)
        assert _hits(outcome) == _hits(plain.search("churn number 300", 60))
        assert "d300" in {hit.source for hit in outcome.hits}
        assert "d300" not in {hit.source for hit in memory.search("churn number 300", 60).hits}
        assert engines[0].background.drain(10)


@pytest.mark.timeout(120)
def test_searches__beside_a_writer_are_of_the_newest_state(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    """Each publication replaces one document: no search sees none of them, two, or an older one than is published."""
    memory, _ = _fill(engines, tenant_name)
    writer = engines[1].tenant(tenant_name)
    published = 0
    stopped, failures = threading.Event(), list[str]()

    def publish(number: int) -> None:
        data = f"quarterly forecast edition{number}".encode()
        writer.ingest([SourceDocument(source="forecast", data=data, acl=(EVERYONE,))], prune=False)

    def search() -> None:
        while not stopped.is_set():
            at_least = published
            texts = [hit.text for hit in memory.search("quarterly forecast").hits if hit.source == "forecast"]
            if len(texts) != 1 or int(texts[0].rpartition("edition")[2]) < at_least:
                failures.append(f"{texts} after {at_least}")

    publish(0)
    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 30):
        publish(number)
        published = number
    stopped.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert find_block_cache(engines[0]).followed > 3


def test_blocks__of_a_collection_that_is_new_are_loaded(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    memory, plain = _fill(engines, tenant_name)
    engines[1].tenant(tenant_name, collection="books").ingest([_document(400)])
    for _ in range(3):
        assert _hits(memory.search(QUESTIONS[0])) == _hits(plain.search(QUESTIONS[0]))
        assert engines[0].background.drain(10)
    hits = find_block_cache(engines[0]).hits
    memory.search(QUESTIONS[0])
    assert find_block_cache(engines[0]).hits == hits + 1
