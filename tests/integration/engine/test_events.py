"""Events of a tenant: each change once, in the order of commits, and none of what was rolled back."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, SourceDocument, Tenant
from kosmos_rag.core.errors import DatabaseError, RequestError
from kosmos_rag.core.types import PERMISSION_FEED, Event
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.sql import statement


@pytest.fixture
def scope(engine: Engine, tenant_name: str) -> Tenant:
    return engine.tenant(tenant_name)


def _document(source: str, text: str = "words", **options: Any) -> SourceDocument:
    return SourceDocument(source=source, data=f"About {text}.".encode(), **options)


def _types(events: list[Event]) -> list[str]:
    return [event.type.removeprefix("document.") for event in events]


def test_events__are_recorded_from_the_start_on(scope: Tenant) -> None:
    scope.ingest([_document("before.md")])
    with pytest.raises(RequestError, match="records no events; start it with `kosmos-rag events start"):
        scope.events.read()
    scope.events.start()
    assert scope.events.read() == ([], 0)
    scope.ingest([_document("a.md"), _document("b.md")])
    scope.ingest([_document("a.md", "other words")])
    scope.ingest([_document("b.md")])
    scope.delete("b.md")
    events, position = scope.events.read()
    assert _types(events) == ["published", "published", "published", "removed"]
    assert [event.sequence for event in events] == [1, 2, 3, 4]
    assert position == 4
    assert [event.data.get("source") for event in events] == ["a.md", "b.md", "a.md", None]
    assert [event.data.get("version") for event in events] == [1, 1, 2, None]
    assert events[1].data["document_id"] == events[3].data["document_id"]
    assert {event.collection for event in events} == {"default"}
    assert scope.events.read(2) == (events[2:], 4)
    assert scope.events.read(1, limit=1) == (events[1:2], 2)
    assert scope.events.read(4) == ([], 4)


def test_permissions__that_change_are_events(scope: Tenant, tmp_path: Path) -> None:
    scope.events.start()
    scope.ingest([_document(f"{number}.md", acl=(PERMISSION_FEED,)) for number in range(3)])
    feed = {"kind": "json_lines", "name": "wiki", "path": str(tmp_path / "feed.jsonl")}
    (tmp_path / "feed.jsonl").write_text(json.dumps({"document": "1.md", "principals": ["ann"]}))
    for _ in range(2):
        scope.sync_permissions(feed)
    events, position = scope.events.read()
    assert _types(events[3:]) == ["permissions_changed"]
    assert events[3].data == {"document_id": events[1].data["document_id"]}
    assert position == 4


def test_metadata__that_change_are_events(scope: Tenant) -> None:
    scope.events.start()
    scope.ingest([_document("a.md", metadata={"year": 1999}), _document("b.md", metadata={"year": 2000})])
    assert scope.update_metadata(["a.md", "b.md"], {"year": 2000}) == 1
    events, _ = scope.events.read(2)
    assert _types(events) == ["metadata_changed"]
    assert events[0].data == {"document_id": str(scope.jobs.document_id("a.md"))}


def test_events__of_a_transaction_that_fails_are_not_there(scope: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    scope.events.start()
    scope.ingest([_document("a.md")])

    write = EventBuffer.write

    def write_and_fail(*arguments: Any) -> None:
        write(*arguments)
        raise DatabaseError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("kosmos_rag.storage.events.EventBuffer.write", write_and_fail)
        with pytest.raises(DatabaseError):
            scope.ingest([_document("b.md")])
    scope.ingest([_document("c.md")])
    events, _ = scope.events.read()
    assert [(event.sequence, event.data["source"]) for event in events] == [(1, "a.md"), (2, "c.md")]


def test_events__are_of_one_tenant(engine: Engine, scope: Tenant, tenant_name: str) -> None:
    other = engine.tenant(f"{tenant_name}-other")
    scope.events.start()
    other.events.start()
    other.ingest([_document("secret.md")])
    assert scope.events.read() == ([], 0)
    assert _types(other.events.read()[0]) == ["published"]


def test_start__after_a_pause_refuses_earlier_positions(scope: Tenant) -> None:
    scope.events.start()
    scope.ingest([_document("a.md")])
    scope.ingest([_document("b.md")])
    scope.events.start()
    assert scope.events.read(1)[1] == 2
    scope.events.stop()
    scope.ingest([_document("c.md")])
    assert len(scope.events.read()[0]) == 2
    scope.events.start()
    for _ in range(2):
        for position in (0, 1, 2):
            with pytest.raises(RequestError, match="list the documents, and read on without a cursor"):
                scope.events.read(position)
        scope.ingest([_document("d.md")])
    events, position = scope.events.read()
    assert [(event.sequence, event.data["source"]) for event in events] == [(4, "d.md")]
    assert scope.events.read(position) == ([], 4)


def test_prune__leaves_no_gap_where_clocks_differ(scope: Tenant) -> None:
    scope.events.start()
    for name in ("a.md", "b.md", "c.md"):
        scope.ingest([_document(name)])
    values = {"tenant_id": scope.id, "before": datetime.now(UTC) - timedelta(days=7)}
    with scope.sessions.write() as connection:
        connection.execute(
            "UPDATE kosmos.events SET at = now() - interval '8 days' WHERE tenant_id = %(tenant_id)s AND sequence = 2",
            values,
        )
        connection.execute(statement("prune_events"), values)
    assert [event.sequence for event in scope.events.read()[0]] == [3]


def test_read__says_that_events_after_a_position_are_deleted(scope: Tenant) -> None:
    scope.events.start()
    scope.ingest([_document("a.md"), _document("b.md")])
    with scope.sessions.write() as connection:
        values = {"tenant_id": scope.id, "before": datetime.now(UTC) - timedelta(days=7)}
        connection.execute(
            "UPDATE kosmos.events SET at = now() - interval '8 days' WHERE tenant_id = %(tenant_id)s AND sequence = 1",
            values,
        )
        connection.execute(statement("prune_events"), values)
    events, position = scope.events.read()
    assert [event.sequence for event in events] == [2]
    assert scope.events.read(position) == ([], 2)
    for position in (0, 3, -1, 2**70):
        with pytest.raises(RequestError, match="events"):
            scope.events.read(position)


def test_erasure__removes_the_names_of_documents(scope: Tenant) -> None:
    scope.events.start()
    scope.ingest([_document("ann-ray.md"), _document("b.md")])
    scope.erase(source="ann-ray.md")
    events, _ = scope.events.read()
    assert _types(events) == ["published", "published", "removed"]
    assert "ann-ray" not in json.dumps([event.to_dict() for event in events])
    assert events[1].data["source"] == "b.md"


def test_reader__that_polls_misses_no_event_of_concurrent_writers(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.events.start()
    writers, documents = 4, 6

    def write(number: int) -> None:
        collection = engine.tenant(tenant_name, collection=f"c{number}")
        for index in range(documents):
            collection.ingest([_document(f"{index}.md", f"text {number} {index}")])

    collected: list[Event] = []
    with ThreadPoolExecutor(writers) as pool:
        futures = [pool.submit(write, number) for number in range(writers)]
        position: int | None = None
        while True:
            finished = all(future.done() for future in futures)
            events, position = scope.events.read(position, limit=5)
            collected += events
            if finished and not events:
                break
        for future in futures:
            future.result()
    assert [event.sequence for event in collected] == list(range(1, writers * documents + 1))
    assert len({(event.collection, event.data["source"]) for event in collected}) == writers * documents


def test_start__between_the_statements_of_a_writer_records_none_of_its_events(
    scope: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope.events.start()
    scope.ingest([_document("a.md")])
    scope.events.stop()
    execute = psycopg.Connection.execute

    def execute_and_start(connection: psycopg.Connection, query: Any, *arguments: Any, **options: Any) -> Any:
        cursor = execute(connection, query, *arguments, **options)
        if query == statement("extend_event_stream"):
            monkeypatch.setattr(psycopg.Connection, "execute", execute)
            scope.events.start()
        return cursor

    monkeypatch.setattr(psycopg.Connection, "execute", execute_and_start)
    scope.ingest([_document("b.md")])
    assert "b.md" not in {event.data["source"] for event in scope.events.read()[0]}
    scope.ingest([_document("c.md")])
    assert scope.events.read()[0][-1].data["source"] == "c.md"
