"""Permission sync: who may read a document follows its feed, and nothing is embedded again."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import IngestionError, RequestError, SourceError
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import EVERYONE, PERMISSION_FEED
from kosmos_rag.ingestion import permissions as sync
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.ingestion.permission_feed import read_feed
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import lexical_statistics
from kosmos_rag.storage.documents import StoredDocuments
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.permissions import FeedPass
from kosmos_rag.storage.tenants import read_server_time, tenant
from tests.integration.variants import changed

Write = Callable[..., dict[str, Any]]


class CallCounter(HashingEmbedder):
    """Counts the texts that are embedded as documents."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += len(texts)
        return super().embed(texts)


@pytest.fixture
def embedder() -> CallCounter:
    return CallCounter()


@pytest.fixture
def cached(settings: Settings, embedder: CallCounter) -> Iterator[Engine]:
    """An engine that caches results, with small segments and a vector index from a few chunks on."""
    values = {
        "rag.retrieval.result_cache": 100,
        "rag.retrieval.similarity_threshold": -1.0,
        "indexes.unsegmented_chunks": 8,
        "indexes.vector_min_chunks": 8,
    }
    with Engine(changed(settings, values), embedder=embedder) as opened:
        yield opened


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a feed, and return its spec."""

    def feed(
        containers: Mapping[str, Sequence[str]], documents: Mapping[str, Sequence[str]], *, name: str = "wiki"
    ) -> dict[str, Any]:
        path = tmp_path / f"{name}.jsonl"
        rows = [{"container": key, "principals": list(principals)} for key, principals in containers.items()]
        rows += [{"document": key, "containers": list(lies_in)} for key, lies_in in documents.items()]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return {"kind": "json_lines", "name": name, "path": str(path)}

    return feed


def _document(source: str, text: str, **options: Any) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode(), **{"acl": (PERMISSION_FEED,), **options})


def _pages(count: int = 20) -> list[SourceDocument]:
    return [_document(f"page-{n}", f"churn report number{n} of team{n % 3}") for n in range(count)]


def _sources(engine: Engine, name: str, *principals: str) -> set[str]:
    """Return what a reader finds, lists and reads; all three are the same."""
    scope = engine.tenant(name, principals=principals)
    result = {hit.source for hit in scope.search("churn report", 100).hits}
    assert result == {document.source for document in scope.documents()} == {source for source, _ in scope.texts()}
    return result


def test_revoked_reader__sees_nothing_after_one_pass_in_caches_too(
    cached: Engine, embedder: CallCounter, write: Write, tenant_name: str
) -> None:
    """A revoked reader sees nothing after one pass, in caches too."""
    scope = cached.tenant(tenant_name)
    scope.ingest(_pages())
    spaces = {f"page-{n}": [f"space-{n % 2}"] for n in range(20)}
    report = scope.sync_permissions(write({"space-0": ["ann", "ben"], "space-1": ["ben"]}, spaces))
    assert (report.documents, report.changed, report.unnamed, report.unknown_containers) == (20, 20, 0, ())
    scope.indexes.build()
    even = {f"page-{n}" for n in range(0, 20, 2)}
    reader = cached.tenant(tenant_name, principals=("ann",))
    assert _sources(cached, tenant_name, "ann") == even
    assert reader.search("churn report", 100).cached
    embedded = embedder.texts
    assert scope.sync_permissions(write({"space-0": ["ben"], "space-1": ["ben"]}, spaces)).changed == 10
    after = reader.search("churn report", 100)
    assert (after.hits, after.cached) == ((), False)
    assert _sources(cached, tenant_name, "ann") == set()
    assert reader.department_totals() == (0, {})
    assert _sources(cached, tenant_name, "ben") == {f"page-{n}" for n in range(20)}
    assert embedder.texts == embedded
    scope.indexes.rebuild()
    assert _sources(cached, tenant_name, "ann") == set()
    assert scope.sync_permissions(write({"space-0": ["ann"], "space-1": []}, spaces)).changed == 20
    assert _sources(cached, tenant_name, "ann") == even
    assert _sources(cached, tenant_name, "ben") == set()


def test_pass__without_a_change_writes_nothing(
    engine: Engine, write: Write, tenant_name: str, database: DatabaseSettings
) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_pages(3))
    feed = write({"space": ["ann"]}, {f"page-{n}": ["space"] for n in range(3)})
    assert scope.sync_permissions(feed).changed == 3
    before = _states(database, tenant_name)
    assert scope.sync_permissions(feed).changed == 0
    assert _states(database, tenant_name) == before


def _states(database: DatabaseSettings, name: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.admin_url or "") as connection:
        return connection.execute(
            "SELECT acl, state, xmin::text FROM kosmos.acl_statistics WHERE tenant_id = %s ORDER BY 1",
            [tenant(name).id],
        ).fetchall()


def test_document__is_readable_by_nobody_until_a_feed_names_it(engine: Engine, write: Write, tenant_name: str) -> None:
    """A document is readable by nobody until its feed names it."""
    scope = engine.tenant(tenant_name)
    scope.ingest([_document("known", "churn report"), _document("unknown", "another churn report")])
    for principals in ((EVERYONE,), (PERMISSION_FEED,), ("",), ("ann",)):
        assert _sources(engine, tenant_name, *principals) == set()
    assert scope.sources() == ["known", "unknown"]
    report = scope.sync_permissions(write({"space": ["ann"]}, {"known": ["space"], "later": ["space", "gone"]}))
    assert (report.documents, report.changed, report.unknown_containers) == (2, 1, ("gone",))
    assert _sources(engine, tenant_name, "ann") == {"known"}
    # A document that the feed named before it was ingested is readable at once.
    scope.ingest([_document("later", "a later churn report")])
    assert _sources(engine, tenant_name, "ann") == {"known", "later"}
    assert _sources(engine, tenant_name, EVERYONE, PERMISSION_FEED) == set()


def test_feed__decides_whatever_a_document_says_when_it_is_ingested_again(
    engine: Engine, write: Write, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest([_document("a", "churn report", acl=(EVERYONE,)), _document("b", "churn report", acl=(EVERYONE,))])
    scope.sync_permissions(write({"space": ["ann"]}, {"a": ["space"]}))
    assert _sources(engine, tenant_name, EVERYONE) == {"b"}
    assert scope.ingest([_document("a", "another churn report", acl=(EVERYONE,))]).changed == 1
    assert _sources(engine, tenant_name, EVERYONE) == {"b"}
    assert _sources(engine, tenant_name, "ann") == {"a"}
    report = scope.sync_permissions(write({"space": ["ann"]}, {"c": ["space"]}))
    assert (report.changed, report.unnamed) == (1, 1)
    # The feed names it no more: nobody reads it, also after the next version.
    assert scope.ingest([_document("a", "a third churn report", acl=(EVERYONE,))]).changed == 1
    assert _sources(engine, tenant_name, EVERYONE, "ann") == {"b"}


def test_changed_text__is_for_those_whom_its_source_names_until_the_next_pass(
    engine: Engine, write: Write, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest([_document("a", "churn report")])
    feed = write({"space": ["ann", "ben"]}, {"a": ["space"], "b": ["space"]})
    scope.sync_permissions(feed)
    # Its source names one reader by now, and another one whom the feed does not know yet.
    scope.ingest([_document("a", "a secret churn report", readers=("ben", "cem"))])
    assert [_sources(engine, tenant_name, name) for name in ("ann", "ben", "cem")] == [set(), {"a"}, set()]
    scope.ingest([_document("b", "another churn report", readers=())])
    assert _sources(engine, tenant_name, "ann", "ben", "cem") == {"a"}
    scope.sync_permissions(feed)
    assert _sources(engine, tenant_name, "ann") == {"a", "b"}
    scope.ingest([_document("a", "a third churn report", readers=(EVERYONE,))])
    assert _sources(engine, tenant_name, "ann") == {"a", "b"}
    assert _sources(engine, tenant_name, EVERYONE) == set()


@pytest.mark.parametrize("published", [True, False], ids=["known before", "new"])
def test_text__that_is_published_during_a_pass_gets_no_reader_by_what_the_pass_had_read(
    engine: Engine, write: Write, tenant_name: str, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    scope = engine.tenant(tenant_name)
    feed = write({"space": ["ann", "ben"]}, {"a": ["space"], "b": ["space"]})
    if published:
        scope.ingest([_document("a", "churn report")])
        scope.sync_permissions(feed)
    passes: list[set[str]] = []

    def read_before_the_restriction(*arguments: Any) -> Any:
        read = read_feed(*arguments)
        if not passes:
            write({"space": ["ann", "ben"], "page": ["ben"]}, {"a": ["page"], "b": ["space"]})
            scope.ingest([_document("a", "a secret churn report", readers=("ben",))])
        passes.append(_sources(engine, tenant_name, "ann"))
        return read

    monkeypatch.setattr(sync, "read_feed", read_before_the_restriction)
    results = _watch(engine, tenant_name, monkeypatch)
    scope.sync_permissions(feed)
    assert (len(passes), set().union(*passes, *results)) == (2, set())
    assert _sources(engine, tenant_name, "ann") == set()
    assert _sources(engine, tenant_name, "ben") == {"a"}


def _watch(engine: Engine, name: str, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return a list that gets what `ann` reads after each pass."""
    results: list[set[str]] = []
    run_pass = sync.PermissionSync._run_pass

    def run_and_look(*arguments: Any) -> Any:
        result = run_pass(*arguments)
        results.append(_sources(engine, name, "ann"))
        return result

    monkeypatch.setattr(sync.PermissionSync, "_run_pass", run_and_look)
    return results


def test_pass__takes_readers_from_text_that_is_published_meanwhile(
    engine: Engine, write: Write, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = engine.tenant(tenant_name)
    scope.sync_permissions(write({"space": ["ann", "ben"]}, {"a": ["space"]}))

    def read_and_publish(*arguments: Any) -> Any:
        scope.ingest([_document("a", "churn report")])
        return read_feed(*arguments)

    monkeypatch.setattr(sync, "read_feed", read_and_publish)
    assert scope.sync_permissions(write({"space": ["ben"]}, {"a": ["space"]})).changed == 1
    assert [_sources(engine, tenant_name, name) for name in ("ann", "ben")] == [set(), {"a"}]


def test_document__has_the_feed_or_an_acl(engine: Engine, tenant_name: str) -> None:
    report = engine.tenant(tenant_name).ingest([_document("a", "churn", acl=(PERMISSION_FEED, "ann"))])
    assert "alone, or leave it out" in report.failed[0].message


def _row(**fields: Any) -> str:
    return json.dumps(fields)


GOOD = [_row(container="space", principals=["ann"]), _row(document="page-0", containers=["space"])]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: not JSON"),
        ("[]", "line 3: a JSON list, not an object"),
        ("\udcff", "line 3: not JSON"),
        (_row(principals=["ann"]), "line 3: container or document is missing"),
        (_row(container="a", document="b"), "line 3: it has container and document; give one"),
        (_row(container="a"), "line 3: principals is missing"),
        (_row(container="a", principals="ann"), 'line 3: principals is "ann"; it must be a list of text'),
        (
            _row(container="a", principals=["ann", 5]),
            r"line 3: principals\[1\] is 5; it must be text that is not blank",
        ),
        (_row(container="a", principals=[" "]), r"line 3: principals\[0\] is"),
        (_row(container="a", principals=["x\x00"]), r"line 3: principals\[0\] is"),
        (_row(container="", principals=["ann"]), 'line 3: container is ""; it must be text of 1 to 2048'),
        (_row(container=7, principals=["ann"]), "line 3: container is 7"),
        (_row(container="space", principals=["ben"]), 'line 3: container "space" is on line 1 already'),
        (_row(document="page-0"), 'line 3: document "page-0" is on line 2 already'),
        (_row(document="page-1", containers="space"), 'line 3: containers is "space"'),
        (_row(document="page-1", readers=["ann"]), 'line 3: "readers" is no field of a document; known are'),
        (_row(document="x" * 3000), "line 3: document is"),
    ],
)
def test_malformed_feed__is_refused_by_line_and_field_and_nothing_is_changed(
    line: str, message: str, engine: Engine, tmp_path: Path, tenant_name: str
) -> None:
    """A malformed feed changes nothing."""
    scope = engine.tenant(tenant_name)
    scope.ingest(_pages(2))
    path = tmp_path / "feed.jsonl"
    feed = {"kind": "json_lines", "name": "wiki", "path": str(path)}
    path.write_text("\n".join(GOOD))
    scope.sync_permissions(feed)
    rows = [_row(container="space", principals=[]), _row(document="page-0", containers=["space"]), line]
    path.write_text("\n".join([*rows, _row(document="page-1", principals=["ann"])]), errors="surrogateescape")
    with pytest.raises(SourceError, match=f"feed.jsonl, {message}.*nothing was changed"):
        scope.sync_permissions(feed)
    assert _sources(engine, tenant_name, "ann") == {"page-0"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "kind must be one of confluence, jira, json_lines, rclone, sql"),
        ({"kind": "json_lines", "path": "a"}, "permission feed of kind json_lines: name is missing"),
        ({"kind": "json_lines", "name": "a b", "path": "a"}, 'name is "a b"'),
        ({"kind": "json_lines", "name": "a", "path": "a", "prefix": ""}, "prefix is not a key of it"),
        ({"kind": "sql", "name": "a", "url_env": "URL", "containers_query": "SELECT 1"}, "documents_query is missing"),
    ],
)
def test_spec_of_a_feed__is_checked(spec: dict[str, Any], message: str, engine: Engine, tenant_name: str) -> None:
    with pytest.raises(RequestError, match=message):
        engine.tenant(tenant_name).sync_permissions(spec)
    with pytest.raises(RequestError, match=message):
        engine.tenant(tenant_name).jobs.enqueue({"kind": "folder", "path": "/tmp", "permissions": spec})


def test_empty_feed__changes_nothing(engine: Engine, write: Write, tenant_name: str, tmp_path: Path) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_pages(1))
    scope.sync_permissions(write({"space": ["ann"]}, {"page-0": ["space"]}))
    with pytest.raises(SourceError, match="names no document, so nothing is changed"):
        scope.sync_permissions(write({"space": ["ann"]}, {}))
    (tmp_path / "wiki.jsonl").unlink()
    with pytest.raises(SourceError, match="does not exist"):
        scope.sync_permissions({"kind": "json_lines", "name": "wiki", "path": str(tmp_path / "wiki.jsonl")})
    assert _sources(engine, tenant_name, "ann") == {"page-0"}


def test_two_feeds__of_one_collection_leave_each_other_alone(engine: Engine, write: Write, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_pages(3))
    scope.sync_permissions(write({"space": ["ann"]}, {"page-0": ["space"]}))
    scope.sync_permissions(write({"folder": ["ann"]}, {"page-1": ["folder"]}, name="drive"))
    assert _sources(engine, tenant_name, "ann") == {"page-0", "page-1"}
    with pytest.raises(RequestError, match='"page-1" is in the permission feed drive too; a document has one feed'):
        scope.sync_permissions(write({"space": ["ben"]}, {"page-0": ["space"], "page-1": ["space"]}))
    assert _sources(engine, tenant_name, "ben") == set()
    scope.sync_permissions(write({"folder": ["ann"]}, {"page-2": ["folder"]}, name="drive"))
    scope.sync_permissions(write({"space": ["ben"]}, {"page-0": ["space"], "page-1": ["space"]}))
    assert _sources(engine, tenant_name, "ben") == {"page-0", "page-1"}


def test_earlier_pass__that_is_still_running_writes_nothing(engine: Engine, write: Write, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_pages(2))
    scope.sync_permissions(write({"space": ["ann"]}, {"page-0": ["space"]}))
    scope.sync_permissions(write({"space": ["ben"]}, {"page-0": ["space"]}))
    owner = tenant(tenant_name)
    earlier = FeedPass(
        tenant_id=owner.id, collection="default", feed="wiki", generation=1, started_at=datetime.now(UTC)
    )
    (document,) = engine.tenant(tenant_name, principals=("ben",)).documents()
    with (
        pytest.raises(IngestionError, match="was started again") as raised,
        engine.database.worker.transaction(owner.id, [EVERYONE]) as connection,
    ):
        earlier.update_permissions(
            connection, {document.id: ("ann",)}, entries={document.id: ("ann",)}, updated={}, events=EventBuffer()
        )
    assert raised.value.code == "superseded"
    assert _sources(engine, tenant_name, "ann") == set()


def test_later_pass__waits_for_what_an_earlier_one_writes(engine: Engine, write: Write, tenant_name: str) -> None:
    """Of two passes of a feed at the same moment, the later one decides.

    Read before the earlier one is committed, the permissions would be those that the later one is to write.
    """
    scope = engine.tenant(tenant_name)
    scope.ingest(_document("page", "churn"))
    later = write({}, {"page": []})
    scope.sync_permissions(later)
    owner = tenant(tenant_name)
    key = document_id(owner.id, "default", "page")
    worker = engine.database.worker
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        earlier = FeedPass.start(connection, owner, "default", "wiki")
    with ThreadPoolExecutor(1) as executor, worker.transaction(owner.id, [EVERYONE]) as connection:
        lexical_statistics.lock_collection(connection, earlier._scope)
        earlier._require_latest(connection)
        report = executor.submit(scope.sync_permissions, later)
        assert not wait([report], timeout=2).done
        earlier.update_permissions(
            connection, {key: ("ann",)}, entries={key: ("ann",)}, updated={}, events=EventBuffer()
        )
    assert report.result().changed == 1
    assert _sources(engine, tenant_name, "ann") == set()


STATISTICS = {
    "acl_statistics": "SELECT acl, acl_hash, chunks, length FROM kosmos.acl_statistics"
    " WHERE tenant_id = %s ORDER BY acl",
    "lexemes": "SELECT lexeme, acl, acl_hash, chunks FROM kosmos.lexemes WHERE tenant_id = %s ORDER BY lexeme, acl",
    "documents": "SELECT source, acl FROM kosmos.documents WHERE tenant_id = %s ORDER BY source",
    "versions": "SELECT content_hash, acl FROM kosmos.document_versions WHERE tenant_id = %s ORDER BY 1, 2",
    "chunks": "SELECT text, acl FROM kosmos.chunks WHERE tenant_id = %s ORDER BY 1, 2",
    "embeddings": "SELECT c.text, e.acl FROM kosmos.embeddings e JOIN kosmos.chunks c ON c.id = e.chunk_id"
    " WHERE e.tenant_id = %s ORDER BY 1, 2",
    "unsegmented": "SELECT c.text, t.acl FROM kosmos.unsegmented_terms t JOIN kosmos.chunks c ON c.id = t.chunk_id"
    " WHERE t.tenant_id = %s ORDER BY 1, 2",
    "totals": "SELECT chunks, length FROM kosmos.collection_statistics WHERE tenant_id = %s",
}


@pytest.mark.parametrize("whole", [1, 20], ids=["whole lists renamed", "row by row"])
@pytest.mark.parametrize("batch", [5, 2048])
def test_statistics__are_those_of_a_fresh_ingest(
    engine: Engine,
    write: Write,
    tenant_name: str,
    database: DatabaseSettings,
    whole: int,
    batch: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lexical_statistics, "WHOLE_MOVE_CHUNKS", whole)
    monkeypatch.setattr(sync, "BATCH_CHUNKS", batch)
    documents = [
        *_pages(30),
        _document("german", "die Häuser und der churn", language="german"),
        _document("long", "\n\n".join(f"paragraph {n} about churn " * 20 for n in range(9))),
    ]
    scope = engine.tenant(tenant_name)
    scope.ingest(documents)
    names = [document.source for document in documents]
    first = {name: [f"space-{at % 4}"] for at, name in enumerate(names)}
    then = {name: [f"space-{at % 3}", *(["shared"] if at % 5 == 0 else [])] for at, name in enumerate(names[:-2])}
    principals = {"space-0": ["ann"], "space-1": ["ben", "ann"], "space-2": ["cem"], "space-3": [], "shared": ["dan"]}
    scope.sync_permissions(write(principals, first))
    swapped = {**principals, "space-0": ["ben", "ann"], "space-1": ["ann"]}
    scope.sync_permissions(write(swapped, then | {"german": ["space-2"]}))
    renamed: list[object] = []
    rename = lexical_statistics._rename_acl
    monkeypatch.setattr(
        lexical_statistics, "_rename_acl", lambda *arguments: (renamed.append(arguments), rename(*arguments))
    )
    swapped["space-2"] = ["eve"]
    scope.sync_permissions(write(swapped, then | {"german": ["space-2"]}))
    assert bool(renamed) == (whole == 1)
    acls = {
        name: tuple(principal for space in space_names for principal in swapped[space])
        for name, space_names in then.items()
    }
    acls["german"] = ("eve",)
    fresh = f"{tenant_name}-fresh"
    engine.tenant(fresh).ingest(
        [replace(document, acl=acls.get(document.source, (PERMISSION_FEED,))) for document in documents]
    )
    with psycopg.connect(database.admin_url or "") as connection:
        for name, query in STATISTICS.items():
            rows = [connection.execute(query, [tenant(item).id]).fetchall() for item in (tenant_name, fresh)]
            assert rows[0] == rows[1], name
        # Languages are only added, as in a publication (decision 13).
        (languages,) = connection.execute(
            "SELECT array_agg(DISTINCT l ORDER BY l) FROM kosmos.acl_statistics, unnest(languages) l"
            " WHERE tenant_id = %s AND acl = '{eve}'",
            [tenant(tenant_name).id],
        ).fetchone() or ([],)
    assert languages == ["english", "german"]
    assert scope.search("churn").hits == ()
    for principal in ("ann", "ben", "cem", "dan", "eve"):
        moved, anew = (
            engine.tenant(item, principals=(principal,)).search("churn report team1", 100).hits
            for item in (tenant_name, fresh)
        )
        assert sorted((hit.source, hit.dense_score) for hit in moved) == sorted(
            (hit.source, hit.dense_score) for hit in anew
        )


def test_whole_lists__that_get_the_same_readers_are_merged(engine: Engine, write: Write, tenant_name: str) -> None:
    pages = [*_pages(40), _document("page-40", "a page of its own")]
    scope = engine.tenant(tenant_name)
    scope.ingest(pages)
    containers = {page.source: [f"space-{number % 2}"] for number, page in enumerate(pages)}
    scope.sync_permissions(write({"space-0": ["ann"], "space-1": ["ben"]}, containers))
    # All chunks of two lists go to one that no chunk had, and the lists have terms in common.
    scope.sync_permissions(write({"space-0": ["cem"], "space-1": ["cem"]}, containers))
    sources = {page.source for page in pages[:40]}
    assert (_sources(engine, tenant_name, "ann"), _sources(engine, tenant_name, "ben")) == (set(), set())
    hits = engine.tenant(tenant_name, principals=("cem",)).search("churn report", 100).hits
    assert sources <= {hit.source for hit in hits if hit.lexical_score is not None}


@pytest.mark.usefixtures("tenant_name")
def test_source_with_a_feed__gives_its_documents_no_readers(tmp_path: Path, settings: Settings, write: Write) -> None:
    (tmp_path / "a.txt").write_text("churn")
    spec = {"kind": "folder", "path": str(tmp_path / "a.txt"), "permissions": write({}, {"a": []})}
    governed, plain = (create_source(item, settings.ingestion) for item in (spec, {**spec, "permissions": None}))
    (entry,), (other,) = governed.listing(), plain.listing()
    assert governed.load(entry).acl == (PERMISSION_FEED,)
    assert plain.load(other).acl == (EVERYONE,)
    assert entry.etag != other.etag
    with pytest.raises(RequestError, match="leave out acl: the feed names the readers"):
        create_source({**spec, "acl": ["ann"]}, settings.ingestion)


@pytest.fixture
def sql_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    with sqlite3.connect(tmp_path / "wiki.db") as connection:
        connection.executescript(
            """
            CREATE TABLE grants (space text, member text);
            CREATE TABLE pages (id integer, space text, shared_with text);
            INSERT INTO grants VALUES ('ENG', 'ann'), ('ENG', 'ben'), ('HR', 'cem'), ('EMPTY', NULL);
            INSERT INTO pages VALUES (0, 'ENG', NULL), (1, 'HR', 'ann'), (1, 'ENG', NULL), (2, 'EMPTY', NULL),
                                     (3, NULL, NULL), (4, NULL, 'cem');
            """
        )
    monkeypatch.setenv("WIKI_URL", f"sqlite:///{tmp_path}/wiki.db")
    return {
        "kind": "sql",
        "name": "wiki",
        "url_env": "WIKI_URL",
        "containers_query": "SELECT space AS container, member AS principal FROM grants",
        "documents_query": "SELECT id AS document, space AS container, shared_with AS principal FROM pages;",
        "document_prefix": "page-",
    }


def test_sql_feed__has_a_row_for_each_pair(engine: Engine, sql_feed: dict[str, Any], tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_pages(6))
    report = scope.sync_permissions(sql_feed)
    assert (report.documents, report.changed, report.unknown_containers) == (5, 3, ())
    assert _sources(engine, tenant_name, "ann") == {"page-0", "page-1"}
    assert _sources(engine, tenant_name, "cem") == {"page-1", "page-4"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"documents_query": "SELECT id FROM pages"},
            '"document" is missing or not known; the columns must be document',
        ),
        ({"containers_query": "SELECT space AS container FROM grants"}, '"principal" is missing or not known'),
        ({"containers_query": "SELECT 1 AS container, 2.5 AS principal"}, "row 1: principal is 2.5; it must be text"),
        ({"documents_query": "SELECT NULL AS document"}, "documents_query, row 1: document is null"),
        ({"documents_query": "SELECT nothing FROM pages"}, "documents_query: the database of WIKI_URL fails"),
    ],
)
def test_malformed_sql_feed__is_refused_by_query_and_row(
    changes: dict[str, str], message: str, engine: Engine, sql_feed: dict[str, Any], tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_pages(2))
    with pytest.raises(SourceError, match=message):
        scope.sync_permissions({**sql_feed, **changes})
    assert _sources(engine, tenant_name, "ann", "ben") == set()


def test_deleted_collection__has_no_feed(
    engine: Engine, write: Write, tenant_name: str, database: DatabaseSettings
) -> None:
    scope = engine.tenant(tenant_name, collection="wiki")
    scope.ingest(_pages(1))
    scope.sync_permissions(write({"space": ["ann"]}, {"page-0": ["space"], "page-9": ["space"]}))
    scope.collections.delete("wiki")
    with psycopg.connect(database.admin_url or "") as connection:
        for table in ("permission_feeds", "document_permissions"):
            query = f"SELECT count(*) FROM kosmos.{table} WHERE tenant_id = %s"
            assert connection.execute(query, [tenant(tenant_name).id]).fetchone() == (0,)


def test_rows__of_documents_that_nobody_has_any_more_are_deleted(
    engine: Engine, write: Write, tenant_name: str, database: DatabaseSettings
) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_pages(2))
    scope.sync_permissions(write({"space": ["ann"]}, {f"page-{n}": ["space"] for n in range(3)}))
    scope.delete("page-0")
    scope.sync_permissions(write({"space": ["ann"]}, {"page-3": ["space"]}))
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT acl FROM kosmos.document_permissions WHERE tenant_id = %s ORDER BY acl", [tenant(tenant_name).id]
        ).fetchall()
    assert rows == [([],), (["ann"],)]  # page-1, which is still there, and page-3


def test_source__gives_no_reader_to_parts_of_a_file_that_a_feed_names(
    settings: Settings, write: Write, tenant_name: str
) -> None:
    """A pass over changes of a source gives the parts of a file no readers where a permission feed names the file."""
    table = b"order,customer\n" + b"".join(b"%d,churn report%s\n" % (row, b" " * 2_000) for row in range(600))
    small = changed(settings, {"ingestion.parsing.text_mb": 1, "ingestion.max_file_mb": 2})
    with Engine(small, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest(SourceDocument(source="orders.csv", data=table, acl=(PERMISSION_FEED,)))
        scope.sync_permissions(write({"sales": ["ann"]}, {"orders.csv": ["sales"]}))
        parts = set(scope.sources())
        readers = dict.fromkeys(scope.document_ids(["orders.csv", *parts]), ("ann", "ben"))
        worker = engine.database.worker
        with worker.transaction_with_events(scope.id, [EVERYONE]) as (connection, events):
            now = read_server_time(connection)
            stored = StoredDocuments(connection, scope.id)
            assert stored.write_acls(readers, collection="default", read_at=now, events=events) == 0
        assert len(parts) > 1
        assert (_sources(engine, tenant_name, "ann"), _sources(engine, tenant_name, "ben")) == (parts, set())
