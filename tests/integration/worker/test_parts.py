"""Large files of rows in passes of a worker: the parts of a file are documents that go with it."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.publisher import Completion, Publisher
from kosmos_rag.ingestion.sources.folder import FolderSource
from kosmos_rag.ingestion.sources.listing import Entry
from tests.integration.apps.http.serving import eventually
from tests.integration.worker.working import Work, counts, last_run

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """One megabyte of text for a document."""
    parsing = settings.ingestion.parsing.model_copy(update={"text_mb": 1})
    return settings.model_copy(update={"ingestion": settings.ingestion.model_copy(update={"parsing": parsing})})


def write_table(file: Path, rows: int) -> None:
    """Write a table with a padded column: much to read, and little to store."""
    file.write_text("order,customer\n" + "".join(f"{row},customer{row}{' ' * 2_000}\n" for row in range(rows)))


def wait_for_sources(scope: Tenant, expected: list[str]) -> None:
    """Wait for documents: a thread removes what the last job of a file has replaced."""
    eventually(lambda: list_sources(scope) == expected)


def list_sources(scope: Tenant) -> list[str]:
    return sorted(document.source for document in scope.documents())


def test_parts__follow_their_file_from_pass_to_pass(scope: Tenant, work: Work, tmp_path: Path) -> None:
    folder = tmp_path / "kb"
    folder.mkdir()
    file = folder / "orders.csv"
    parts = [f"kb/orders.csv#part-{number}" for number in (1, 2, 3, 4)]
    write_table(folder / "small.csv", 3)

    def run_pass() -> dict[str, int]:
        scope.jobs.enqueue(folder)
        work()
        return counts(last_run(scope))

    write_table(file, 900)
    assert run_pass() == {"new": 5}
    assert list_sources(scope) == [*parts, "kb/small.csv"]
    [hit] = scope.search("customer854", 1).hits
    assert hit.source == parts[3]
    assert run_pass() == {"unchanged": 5}

    write_table(file, 600)
    assert run_pass() == {"changed": 1, "unchanged": 3}
    wait_for_sources(scope, [*parts[:3], "kb/small.csv"])

    write_table(file, 5)
    assert run_pass() == {"new": 1, "unchanged": 1}
    wait_for_sources(scope, ["kb/orders.csv", "kb/small.csv"])

    write_table(file, 600)
    assert run_pass() == {"new": 3, "unchanged": 1}
    wait_for_sources(scope, [*parts[:3], "kb/small.csv"])
    file.unlink()
    assert run_pass() == {"unchanged": 1, "removed": 3}
    assert list_sources(scope) == ["kb/small.csv"]


def test_parts__readers_find_the_file_at_each_moment_of_its_division(
    scope: Tenant, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kb"
    folder.mkdir()
    answers: list[bool] = []
    publish = Publisher._publish

    def publish_and_read(*values: Any) -> Mapping[uuid.UUID, Completion]:
        answers.append(bool(scope.search("customer0", 1).hits))
        return publish(*values)

    for rows in (3, 600, 5):
        write_table(folder / "orders.csv", rows)
        scope.jobs.enqueue(folder)
        work()
        monkeypatch.setattr(Publisher, "_publish", publish_and_read)
    assert len(answers) > 1
    assert all(answers)
    wait_for_sources(scope, ["kb/orders.csv"])


def test_parts__the_document_of_a_file_stays_until_the_last_part_is_stored(
    scope: Tenant, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kb"
    folder.mkdir()
    file = folder / "orders.csv"
    write_table(file, 3)
    scope.jobs.enqueue(folder)
    work()
    write_table(file, 600)
    load = FolderSource.load

    def refuse_second(source: FolderSource, entry: Entry) -> SourceDocument:
        if entry.source.endswith("#part-2"):
            raise SourceError("no_permission", "the second part cannot be read; change its permissions")
        return load(source, entry)

    monkeypatch.setattr(FolderSource, "load", refuse_second)
    scope.jobs.enqueue(folder)
    work()
    assert list_sources(scope) == ["kb/orders.csv", "kb/orders.csv#part-1", "kb/orders.csv#part-3"]


def test_parts__a_file_that_cannot_be_read_keeps_them(scope: Tenant, work: Work, tmp_path: Path) -> None:
    folder = tmp_path / "kb"
    folder.mkdir()
    file = folder / "orders.csv"
    write_table(file, 600)
    scope.jobs.enqueue(folder)
    work()
    file.unlink()
    file.symlink_to(file.name)
    scope.jobs.enqueue(folder)
    work()
    assert list_sources(scope) == [f"kb/orders.csv#part-{number}" for number in (1, 2, 3)]


def test_parts__have_the_readers_that_the_feed_of_their_source_names_for_the_file(
    engine: Engine, scope: Tenant, work: Work, tmp_path: Path
) -> None:
    folder, feed = tmp_path / "kb", tmp_path / "feed.jsonl"
    folder.mkdir()
    spec = {
        "kind": "folder", "path": str(folder), "root": "kb",
        "permissions": {"kind": "json_lines", "name": "drive", "path": str(feed)},
    }  # fmt: skip

    def run_passes(rows: int, *readers: str) -> dict[str, list[str]]:
        write_table(folder / "orders.csv", rows)
        entries = {"kb/page.md": ["ann"], **({"kb/orders.csv": readers} if readers else {})}
        feed.write_text(
            "".join(f"{json.dumps({'document': name, 'principals': [*names]})}\n" for name, names in entries.items())
        )
        scope.jobs.enqueue(spec)
        work()
        eventually(lambda: len(scope.sources()) == {3: 1, 600: 3, 900: 4}[rows])
        return {name: list_sources(engine.tenant(scope.name, principals=(name,))) for name in ("ann", "ben")}

    parts = [f"kb/orders.csv#part-{number}" for number in (1, 2, 3, 4)]
    assert run_passes(3, "ann") == {"ann": ["kb/orders.csv"], "ben": []}
    assert run_passes(600, "ann") == {"ann": parts[:3], "ben": []}
    assert run_passes(900, "ben") == {"ann": [], "ben": parts}
    assert run_passes(900) == {"ann": [], "ben": []}
    assert run_passes(600) == {"ann": [], "ben": []}
    assert len(scope.sources()) == 3
    assert run_passes(600, "ann", "ben") == {"ann": parts[:3], "ben": parts[:3]}
    assert run_passes(3, "ben") == {"ann": [], "ben": ["kb/orders.csv"]}
