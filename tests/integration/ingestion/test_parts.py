"""Large files of rows from end to end: parts as documents that come and go with the file."""

import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import EVERYONE, PERMISSION_FEED, PermissionReport
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.ingestion import pipeline, state
from kosmos_rag.ingestion.division import DividedDocument
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.ingestion.parts import FilePart
from kosmos_rag.ingestion.publisher import Publisher, PublishResult
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.permissions import FeedPass, StoredPermissions
from kosmos_rag.storage.sql import statement
from tests.integration.variants import opened as open_engine


def build_table(rows: int) -> str:
    """Build a table with a padded column: much to read, and little to store."""
    return "order,customer,note\n" + "".join(
        f"{number},customer{number},chair{' ' * 2_000}\n" for number in range(rows)
    )


@pytest.fixture(scope="module")
def opened(shared_settings: Settings) -> Iterator[Engine]:
    """An engine with one megabyte of text for a document."""
    with open_engine(shared_settings, {"ingestion.parsing.text_mb": 1}) as engine:
        yield engine


@pytest.fixture
def scope(opened: Engine, tenant_name: str) -> Tenant:
    return opened.tenant(tenant_name)


@pytest.fixture
def sync(scope: Tenant, tmp_path: Path) -> Callable[..., PermissionReport]:
    """Run a pass of a feed that gives documents their readers; a page keeps the feed from being empty."""

    def run_pass(**readers: Sequence[str]) -> PermissionReport:
        path = tmp_path / "feed.jsonl"
        names = {"page": ["ann"], **{f"{name}.csv": principals for name, principals in readers.items()}}
        rows = [{"document": name, "principals": list(principals)} for name, principals in names.items()]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return scope.sync_permissions({"kind": "json_lines", "name": "drive", "path": str(path)})

    return run_pass


@pytest.fixture
def list_for(opened: Engine, tenant_name: str) -> Callable[[str], list[str]]:
    """Return what a reader lists; a search finds the same documents."""

    def list_and_search(principal: str) -> list[str]:
        reader = opened.tenant(tenant_name, principals=(principal, EVERYONE))
        names = list_parts(reader)
        assert sorted({hit.source for hit in reader.search("chair", 1_000).hits}) == names
        return names

    return list_and_search


def list_parts(scope: Tenant) -> list[str]:
    return sorted(document.source for document in scope.documents())


def test_ingest__parts_follow_the_length_of_the_file(scope: Tenant, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(build_table(900))
    report = scope.ingest([file], root=".")
    assert report.failed == ()
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3, 4)]
    [hit] = scope.search("customer854", 1).hits
    assert hit.source == "orders.csv#part-4"
    assert "order: 854; customer: customer854" in hit.text
    assert hit.title == "orders"

    file.write_text(build_table(600))
    report = scope.ingest([file], root=".")
    assert (report.changed, report.removed) == (1, 0)
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3)]

    file.write_text(build_table(10))
    assert scope.ingest([file], root=".").new == 1
    assert list_parts(scope) == ["orders.csv"]

    file.write_text(build_table(600))
    assert scope.ingest([tmp_path], root=".", prune=True).changed == 1
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3)]

    assert scope.delete("orders.csv") == 3
    assert list_parts(scope) == []


def test_update_metadata__reaches_the_parts_of_a_file(scope: Tenant) -> None:
    scope.ingest([SourceDocument(source="orders.csv", data=build_table(600).encode()), *_others()])
    assert scope.update_metadata("orders.csv", {"approved": True}) == 3
    approved = {document.source for document in scope.documents() if document.metadata.get("approved")}
    assert approved == {f"orders.csv#part-{number}" for number in (1, 2, 3)}


def test_delete__finds_parts_by_one_statement(scope: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    scope.ingest([SourceDocument(source="orders.csv", data=build_table(600).encode()), *_others()])
    scope.delete("orders.csv#part-1")
    scope.delete("orders.csv#part-2")
    computed: list[str] = []

    def count(tenant_id: uuid.UUID, collection: str, source: str) -> uuid.UUID:
        computed.append(source)
        return document_id(tenant_id, collection, source)

    for module in (pipeline, state):
        monkeypatch.setattr(module, "document_id", count)
    assert scope.delete(["orders.csv", *(f"absent{number}.csv" for number in range(9))]) == 1
    assert len(computed) == 20  # a name may be of a document, or of a file with parts
    assert list_parts(scope) == ["orders.csv.bak#part-1", "other.csv"]


def _others() -> list[SourceDocument]:
    names = ["other.csv", "orders.csv.bak#part-1"]
    return [SourceDocument(source=name, data=b"order,customer\n1,Ada\n") for name in names]


def test_ingest__a_failed_file_leaves_no_parts_open_to_everyone(
    scope: Tenant, settings: Settings, tenant_name: str
) -> None:
    """Stored before departments were known; the file fails now, so nothing replaces its parts."""
    scope.ingest([SourceDocument(source="hr/orders.csv", data=build_table(600).encode()), *_others()])
    values = {"rag.access.department_from": "folder", "rag.access.departments": ("hr",)}
    with open_engine(settings, values, embedder=HashingEmbedder()) as engine:
        document = SourceDocument(source="hr/orders.csv", data=b"\0" * 100)
        report = engine.tenant(tenant_name).ingest([document])
    assert ([failure.source for failure in report.failed], report.removed) == (["hr/orders.csv"], 3)
    assert not any(source.startswith("hr/") for source in list_parts(scope))


def test_ingest__a_file_that_cannot_be_read_keeps_its_parts(scope: Tenant, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(build_table(600))
    scope.ingest([tmp_path], root=".")
    file.unlink()
    file.symlink_to(file.name)
    report = scope.ingest([tmp_path], root=".", prune=True)
    assert ([failure.source for failure in report.failed], report.removed) == (["orders.csv"], 0)
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3)]


def test_ingest__a_file_with_the_name_of_a_part_stays(scope: Tenant, tmp_path: Path) -> None:
    for name in ("orders.csv", "orders.csv#part-2"):
        (tmp_path / name).write_text(build_table(3))
    for _ in range(2):
        assert scope.ingest([tmp_path], root=".", prune=True).removed == 0
        assert list_parts(scope) == ["orders.csv", "orders.csv#part-2"]


def test_ingest__a_file_with_the_name_of_a_part_goes_when_it_is_gone(scope: Tenant, tmp_path: Path) -> None:
    for name in ("orders.csv", "orders.csv#part-2"):
        (tmp_path / name).write_text(build_table(3))
    scope.ingest([tmp_path], root=".", prune=True)
    (tmp_path / "orders.csv#part-2").unlink()
    assert scope.ingest([tmp_path], root=".", prune=True).removed == 1
    assert list_parts(scope) == ["orders.csv"]


def test_erase__of_a_file_leaves_a_document_with_the_name_of_a_part(scope: Tenant) -> None:
    scope.ingest([SourceDocument(source="orders.csv", data=build_table(3).encode()), _NAMESAKE])
    assert scope.erase(source="orders.csv").erased["documents"] == 1
    assert list_parts(scope) == [_NAMESAKE.source]
    scope.erase(source=_NAMESAKE.source)
    scope.ingest(SourceDocument(source="orders.csv", data=build_table(600).encode()))
    assert scope.erase(source="orders.csv").erased["documents"] == 3


_NAMESAKE = SourceDocument(source="orders.csv#part-2", data=b"about sofas")


def test_ingest__a_document_with_the_name_of_a_stored_part_is_refused(scope: Tenant) -> None:
    large = SourceDocument(source="orders.csv", data=build_table(600).encode())
    scope.ingest(large)
    for documents, unchanged in (([_NAMESAKE], 0), ([large, _NAMESAKE], 1)):
        report = scope.ingest(documents)
        assert [(failure.source, failure.code) for failure in report.failed] == [(_NAMESAKE.source, "duplicate")]
        assert report.unchanged == unchanged
    assert [hit.source for hit in scope.search("customer299", 1).hits] == ["orders.csv#part-2"]


def test_ingest__a_document_whose_type_is_declared_is_no_part(scope: Tenant) -> None:
    document = replace(_NAMESAKE, data=b"order,customer\n1,Ada\n", media_type="text/csv")
    for expected in ((1, 0), (0, 1)):
        report = scope.ingest(document)
        assert (report.new, report.unchanged) == expected
    scope.ingest(SourceDocument(source="orders.csv", data=build_table(3).encode()))
    assert list_parts(scope) == ["orders.csv", _NAMESAKE.source]


@pytest.mark.parametrize("divided_first", [True, False])
def test_ingest__a_part_and_a_document_of_two_processes_never_replace_each_other(
    scope: Tenant, monkeypatch: pytest.MonkeyPatch, *, divided_first: bool
) -> None:
    """Another process publishes after this one has looked at what is stored, and before it publishes."""
    large = SourceDocument(source="orders.csv", data=build_table(600).encode())
    first, second = (large, _NAMESAKE) if divided_first else (_NAMESAKE, large)
    publish = Publisher.publish

    def publish_after_another(publisher: Publisher, *values: Any, **options: Any) -> Iterator[PublishResult]:
        monkeypatch.undo()
        assert scope.ingest(first).failed == ()
        yield from publish(publisher, *values, **options)

    monkeypatch.setattr(Publisher, "publish", publish_after_another)
    report = scope.ingest(second)
    assert [(failure.source, failure.code) for failure in report.failed] == [(second.source, "duplicate")]
    texts = {hit.text for hit in scope.search("about sofas", 100).hits if hit.source == _NAMESAKE.source}
    assert ("about sofas" in texts) is not divided_first


def test_load_parts__reads_the_parts_of_the_file_alone(opened: Engine, scope: Tenant) -> None:
    scope.ingest([SourceDocument(source="orders.csv", data=build_table(600).encode()), *_others()])
    tenant = scope.jobs._owner
    values = {
        "tenant_id": tenant.id,
        "collection": "default",
        "file_ids": [document_id(tenant.id, "default", "orders.csv")],
    }
    with opened.database.worker.transaction(tenant.id, [EVERYONE]) as connection:
        connection.execute("SET LOCAL enable_seqscan = off")
        plan = connection.execute(f"EXPLAIN {statement('parts_of_files')}", values).fetchall()
        assert len(connection.execute(statement("parts_of_files"), values).fetchall()) == 3
    lines = "\n".join(line for (line,) in plan)
    assert "documents_parts" in lines
    assert re.search(r"Index Cond: .*file_id = ANY", lines), lines


@pytest.mark.parametrize("prune", [False, True])
def test_ingest__documents_stay_until_one_that_replaces_them_is_stored(
    scope: Tenant, tmp_path: Path, *, prune: bool
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(build_table(600))
    scope.ingest([tmp_path], root=".")
    file.write_bytes(b"\x7fELF" + bytes(2_000))
    report = scope.ingest([tmp_path], root=".", prune=prune)
    assert (len(report.failed), report.removed) == (1, 0)
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3)]


def test_ingest__documents_that_are_passed_in_become_parts(scope: Tenant) -> None:
    for rows, names in ((600, [f"orders.csv#part-{number}" for number in (1, 2, 3)]), (3, ["orders.csv"])):
        scope.ingest([SourceDocument(source="orders.csv", data=build_table(rows).encode())])
        assert list_parts(scope) == names


@pytest.mark.parametrize("sizes", [(600, 3), (3, 600), (3, 600, 3), (600, 3, 600)])
def test_ingest__the_last_of_several_versions_in_one_call_stays(scope: Tenant, sizes: tuple[int, ...]) -> None:
    documents = [SourceDocument(source="orders.csv", data=build_table(rows).encode()) for rows in sizes]
    names = {3: ["orders.csv"], 600: [f"orders.csv#part-{number}" for number in (1, 2, 3)]}[sizes[-1]]
    for stored in (documents[0], documents[-1]):
        scope.ingest(stored)
        assert scope.ingest(documents).failed == ()
        assert list_parts(scope) == names


def test_ingest__a_file_that_is_as_before_loses_the_parts_of_a_failed_division(
    scope: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = (SourceDocument(source="orders.csv", data=build_table(rows).encode()) for rows in (3, 600))
    scope.ingest(small)
    read = DividedDocument.read

    def refuse_second(divided: DividedDocument, part: FilePart) -> SourceDocument:
        if part.number == 2:
            raise SourceError("no_permission", "the second part cannot be read; change its permissions")
        return read(divided, part)

    with monkeypatch.context() as patched:
        patched.setattr(DividedDocument, "read", refuse_second)
        assert len(scope.ingest(large).failed) == 1
    assert list_parts(scope) == ["orders.csv", "orders.csv#part-1", "orders.csv#part-3"]
    assert scope.ingest(small).unchanged == 1
    assert list_parts(scope) == ["orders.csv"]


def test_ingest__former_parts_go_with_the_publication_of_the_whole(
    scope: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer divides the file again as soon as the whole is committed: its parts stay."""
    small, large = (SourceDocument(source="orders.csv", data=build_table(rows).encode()) for rows in (3, 600))
    scope.ingest(large)
    publish = Publisher.publish

    def publish_and_divide(publisher: Publisher, *values: Any, **options: Any) -> Iterator[PublishResult]:
        yield from publish(publisher, *values, **options)
        monkeypatch.undo()
        assert scope.ingest(large).failed == ()

    monkeypatch.setattr(Publisher, "publish", publish_and_divide)
    scope.ingest(small)
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3)]


def test_ingest__a_file_whose_parts_have_no_text_is_empty(scope: Tenant, tmp_path: Path) -> None:
    data = b'{"note": ""}\n' * 200_000
    (tmp_path / "rows.jsonl").write_bytes(b'{"note": "ten chairs"}\n')
    scope.ingest([tmp_path], root=".")
    report = scope.ingest(SourceDocument(source="rows.jsonl", data=data))
    assert [failure.code for failure in report.failed] == ["empty"]
    assert list_parts(scope) == ["rows.jsonl"]
    (tmp_path / "rows.jsonl").write_bytes(data)
    report = scope.ingest([tmp_path], root=".")
    assert (report.empty, report.failed) == (1, ())
    assert list_parts(scope) == []


def test_erase__the_parts_of_a_file_go_with_its_name(scope: Tenant) -> None:
    scope.ingest([SourceDocument(source="orders.csv", data=build_table(600).encode())])
    assert scope.erase(source="orders.csv").erased["documents"] == 3
    assert list_parts(scope) == []


@pytest.mark.parametrize("own_acl", [(EVERYONE,), (PERMISSION_FEED,)])
def test_feed__decides_for_the_parts_of_a_file_that_it_names(
    scope: Tenant, sync: Callable[..., PermissionReport], list_for: Callable[[str], list[str]], own_acl: tuple[str, ...]
) -> None:
    def ingest(rows: int) -> None:
        scope.ingest([SourceDocument(source="orders.csv", data=build_table(rows).encode(), acl=own_acl)])

    parts = [f"orders.csv#part-{number}" for number in (1, 2, 3, 4)]
    ingest(3)
    assert sync(orders=["ann"]).changed == 1
    ingest(600)
    assert (list_for("ann"), list_for("ben")) == (parts[:3], [])

    assert sync(orders=["ann", "ben"]).changed == 3
    assert sync(orders=["ben"]).changed == 3
    assert sync(orders=["ben"]).changed == 0
    ingest(900)
    assert (list_for("ann"), list_for("ben")) == ([], parts)

    report = sync()
    assert report.changed == 4
    ingest(901)
    assert (list_for("ann"), list_for("ben")) == ([], [])
    assert sync().changed == 0

    assert sync(orders=["ben"]).changed == 4
    ingest(4)
    assert (list_for("ann"), list_for("ben")) == ([], ["orders.csv"])


def test_feed__that_comes_after_the_division_decides_too(
    scope: Tenant, sync: Callable[..., PermissionReport], list_for: Callable[[str], list[str]]
) -> None:
    scope.ingest([SourceDocument(source="orders.csv", data=build_table(600).encode())])
    parts = list_parts(scope)
    assert list_for("ben") == parts
    assert sync(orders=["ann"]).changed == 3
    assert (list_for("ann"), list_for("ben")) == (parts, [])


def test_feed__decides_for_parts_that_are_published_while_a_pass_runs(
    scope: Tenant,
    sync: Callable[..., PermissionReport],
    list_for: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sync(orders=["ann"])
    load = FeedPass.load_permissions

    def load_and_publish(current: FeedPass, connection: psycopg.Connection) -> StoredPermissions:
        stored = load(current, connection)
        scope.ingest([SourceDocument(source="orders.csv", data=build_table(600).encode())])
        return stored

    monkeypatch.setattr(FeedPass, "load_permissions", load_and_publish)
    sync()
    monkeypatch.undo()
    assert (len(scope.sources()), list_for("ann"), list_for("ben")) == (3, [], [])
    scope.ingest([SourceDocument(source="orders.csv", data=build_table(900).encode())])
    assert (list_for("ann"), list_for("ben")) == ([], [])
