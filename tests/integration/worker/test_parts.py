"""Large files of rows in the passes of a worker: the parts of a file are documents that go with it."""

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import JobState
from kosmos_rag.ingestion.division import DividedDocument
from kosmos_rag.ingestion.parts import FilePart
from kosmos_rag.ingestion.publisher import Completion, Publisher
from kosmos_rag.worker.channel import SupervisorChannel
from tests.integration.variants import changed
from tests.integration.worker.places import FILE, PLACES, FolderPlace, Place, UploadPlace
from tests.integration.worker.working import Work, counts, last_run
from tests.waiting import eventually

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """One megabyte for a document, and for its text."""
    return changed(settings, {"ingestion.parsing.text_mb": 1, "ingestion.max_file_mb": 1})


@pytest.fixture
def source(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place that passes read."""
    for name in ("RCLONE_CONFIG", "XDG_CACHE_HOME", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "")  # restored after the test
    place = PLACES[kind](tmp_path)
    yield place
    place.close()


@pytest.fixture
def place(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Place:
    """A place that passes read, or uploads."""
    if kind == "upload":
        return UploadPlace(tmp_path)
    place: Place = request.getfixturevalue("source")
    return place


every_source = pytest.mark.parametrize("kind", PLACES)
every_place = pytest.mark.parametrize("kind", [*PLACES, "upload"])


def build_table(rows: int) -> bytes:
    """Build a table with a padded column: much to read, and little to store."""
    return b"order,customer\n" + b"".join(b"%d,customer%d%s\n" % (row, row, b" " * 2_000) for row in range(rows))


def wait_for_sources(scope: Tenant, expected: list[str]) -> None:
    """Wait for documents: a thread ends the last part of a file."""
    eventually(lambda: list_sources(scope) == expected)


def list_sources(scope: Tenant) -> list[str]:
    return sorted(document.source for document in scope.documents())


def name_parts(place: Place, *numbers: int) -> list[str]:
    return [f"{place.name}#part-{number}" for number in numbers]


@every_source
def test_parts__follow_their_file_from_pass_to_pass(scope: Tenant, work: Work, source: Place) -> None:
    small = f"{source.prefix}small.csv"
    source.put("small.csv", build_table(3))

    def run_pass() -> dict[str, int]:
        source.run(scope, work)
        return counts(last_run(scope))

    source.put(FILE, build_table(900))
    assert run_pass() == {"new": 2}
    assert list_sources(scope) == [*name_parts(source, 1, 2, 3, 4), small]
    [hit] = scope.search("customer854", 1).hits
    assert hit.source == f"{source.name}#part-4"
    assert run_pass() == {"unchanged": 2}

    source.put(FILE, build_table(600))
    assert run_pass() == {"changed": 1, "unchanged": 1}
    wait_for_sources(scope, [*name_parts(source, 1, 2, 3), small])

    source.put(FILE, build_table(5))
    assert run_pass() == {"new": 1, "unchanged": 1}
    wait_for_sources(scope, [source.name, small])

    source.put(FILE, build_table(600))
    assert run_pass() == {"changed": 1, "unchanged": 1}
    wait_for_sources(scope, [*name_parts(source, 1, 2, 3), small])
    assert run_pass() == {"unchanged": 2}
    source.remove(FILE)
    assert run_pass() == {"unchanged": 1, "removed": 3}
    assert list_sources(scope) == [small]


@every_source
def test_parts__a_removed_one_returns_with_the_next_pass(scope: Tenant, work: Work, source: Place) -> None:
    source.put(FILE, build_table(600))
    source.run(scope, work)
    scope.delete(f"{source.name}#part-2")
    source.run(scope, work)
    wait_for_sources(scope, name_parts(source, 1, 2, 3))


@every_place
def test_parts__readers_find_the_file_at_each_moment_of_its_division(
    scope: Tenant, work: Work, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bool] = []
    publish = Publisher._publish

    def publish_and_read(*values: Any) -> Mapping[uuid.UUID, Completion]:
        answers.append(bool(scope.search("customer0", 1).hits))
        return publish(*values)

    for rows in (3, 600, 5):
        place.put(FILE, build_table(rows))
        place.run(scope, work)
        monkeypatch.setattr(Publisher, "_publish", publish_and_read)
    assert len(answers) > 1
    assert all(answers)
    wait_for_sources(scope, [place.name])


@every_place
def test_parts__the_document_of_a_file_stays_until_the_last_part_is_stored(
    scope: Tenant, work: Work, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put(FILE, build_table(3))
    place.run(scope, work)
    place.put(FILE, build_table(600))
    with monkeypatch.context() as patched:
        patched.setattr(DividedDocument, "read", _refuse_second)
        place.run(scope, work)
    assert list_sources(scope) == [place.name, *name_parts(place, 1, 3)]
    [failed] = scope.jobs.find(states=[JobState.DEAD])
    assert failed.error is not None
    assert "#part-2: the second part cannot be read" in failed.error
    place.run(scope, work)
    wait_for_sources(scope, name_parts(place, 1, 2, 3))


_READ = DividedDocument.read


def _refuse_second(divided: DividedDocument, part: FilePart) -> SourceDocument:
    if part.number == 2:
        raise SourceError("no_permission", "the second part cannot be read; change its permissions")
    return _READ(divided, part)


@every_source
def test_parts__a_file_that_cannot_be_read_keeps_them(
    scope: Tenant, work: Work, source: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.put(FILE, build_table(600))
    source.run(scope, work)
    source.put(FILE, b"\x7fELF" + bytes(2_000_000))
    source.run(scope, work)
    assert list_sources(scope) == name_parts(source, 1, 2, 3)


def test_parts__a_link_to_itself_keeps_them(scope: Tenant, work: Work, tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    place.put(FILE, build_table(600))
    place.run(scope, work)
    place.remove(FILE)
    (place.path / FILE).symlink_to(FILE)
    place.run(scope, work)
    assert list_sources(scope) == name_parts(place, 1, 2, 3)


@every_place
def test_parts__deletion_cancels_the_job_of_their_file(
    scope: Tenant, work: Work, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put(FILE, build_table(600))

    def read_and_delete(divided: DividedDocument, part: FilePart) -> SourceDocument:
        if part.number == 2:
            scope.delete(place.name)
        return _READ(divided, part)

    monkeypatch.setattr(DividedDocument, "read", read_and_delete)
    place.run(scope, work)
    assert list_sources(scope) == []
    assert {job.state for job in scope.jobs.find(kinds=["document"])} == {JobState.CANCELLED}


def test_parts__a_worker_that_stops_gives_the_file_back(
    scope: Tenant, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = UploadPlace(tmp_path)
    place.put(FILE, build_table(600))
    stops: list[bool] = []
    reads: list[int] = []

    def read_and_stop(divided: DividedDocument, part: FilePart) -> SourceDocument:
        reads.append(part.number)
        stops.append(len(reads) == 2)
        return _READ(divided, part)

    monkeypatch.setattr(DividedDocument, "read", read_and_stop)
    monkeypatch.setattr(SupervisorChannel, "stopping", property(lambda _: bool(stops) and stops[-1]))
    release = SupervisorChannel.release

    def release_and_go_on(channel: SupervisorChannel, jobs: Any) -> None:
        if jobs:
            stops.append(False)
            release(channel, jobs)

    monkeypatch.setattr(SupervisorChannel, "release", release_and_go_on)
    place.run(scope, work)
    assert reads == [1, 2, 1, 2, 3]
    wait_for_sources(scope, name_parts(place, 1, 2, 3))
    assert {job.state for job in scope.jobs.find(kinds=["document"])} == {JobState.DONE}


@every_source
def test_parts__have_the_readers_that_the_feed_of_their_source_names_for_the_file(
    engine: Engine, scope: Tenant, work: Work, source: Place, tmp_path: Path
) -> None:
    feed = tmp_path / "feed.jsonl"
    permissions = {"kind": "json_lines", "name": "drive", "path": str(feed)}

    def run_passes(rows: int, *readers: str) -> dict[str, list[str]]:
        source.put(FILE, build_table(rows))
        entries = {"page.md": ["ann"], **({source.name: readers} if readers else {})}
        feed.write_text(
            "".join(f"{json.dumps({'document': name, 'principals': [*names]})}\n" for name, names in entries.items())
        )
        spec = source.spec()
        spec.pop("acl", None)
        scope.jobs.enqueue({**spec, "permissions": permissions})
        work()
        eventually(lambda: len(scope.sources()) == {3: 1, 600: 3, 900: 4}[rows])
        return {name: list_sources(engine.tenant(scope.name, principals=(name,))) for name in ("ann", "ben")}

    parts = name_parts(source, 1, 2, 3, 4)
    assert run_passes(3, "ann") == {"ann": [source.name], "ben": []}
    assert run_passes(600, "ann") == {"ann": parts[:3], "ben": []}
    assert run_passes(900, "ben") == {"ann": [], "ben": parts}
    assert run_passes(900) == {"ann": [], "ben": []}
    assert run_passes(600) == {"ann": [], "ben": []}
    assert len(scope.sources()) == 3
    assert run_passes(600, "ann", "ben") == {"ann": parts[:3], "ben": parts[:3]}
    assert run_passes(3, "ben") == {"ann": [], "ben": [source.name]}


@every_place
def test_parts__go_with_the_name_of_their_file(scope: Tenant, work: Work, place: Place) -> None:
    place.put(FILE, build_table(600))
    place.run(scope, work)
    assert scope.update_metadata(place.name, {"approved": True}) == 3
    assert all(document.metadata["approved"] for document in scope.documents())
    assert scope.delete(place.name) == 3
    place.run(scope, work)
    wait_for_sources(scope, name_parts(place, 1, 2, 3))
    assert scope.erase(source=place.name).erased["documents"] == 3
    assert list_sources(scope) == []


def test_upload__warns_where_it_replaces_another_divided_file(scope: Tenant, work: Work, tmp_path: Path) -> None:
    place = UploadPlace(tmp_path)
    warnings = []
    for rows in (600, 600, 900):
        place.put(FILE, build_table(rows))
        place.run(scope, work)
        eventually(lambda: not scope.jobs.find(states=[JobState.QUEUED, JobState.RUNNING], kinds=["document"]))
        warnings.append(scope.jobs.find(kinds=["document"])[0].warning is not None)
    assert warnings == [False, False, True]


_BLANK_ROWS = b'{"note": ""}\n' * 200_000


def test_parts__without_text_leave_an_unchanged_file_unread(
    scope: Tenant, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = FolderPlace(tmp_path)
    place.put("rows.jsonl", b'{"order": "order7"}\n' + _BLANK_ROWS)
    place.run(scope, work)
    assert list_sources(scope) == ["kb/rows.jsonl#part-1"]
    monkeypatch.setattr(DividedDocument, "read", _refuse)
    place.run(scope, work)
    assert counts(last_run(scope)) == {"unchanged": 1}
    scope.delete("kb/rows.jsonl#part-1")
    place.run(scope, work)
    assert counts(last_run(scope)) == {"failed": 1}


def _refuse(divided: DividedDocument, part: FilePart) -> SourceDocument:
    raise SourceError("no_permission", "the parts cannot be read; change their permissions")


def test_upload__whose_parts_have_no_text_fails(scope: Tenant, work: Work, tmp_path: Path) -> None:
    place = UploadPlace(tmp_path)
    place.put("rows.jsonl", _BLANK_ROWS)
    place.run(scope, work)
    [job] = scope.jobs.find(kinds=["document"])
    assert (job.state, job.code) == (JobState.DEAD, "empty")
    assert list_sources(scope) == []


@every_source
@pytest.mark.parametrize("divided_first", [True, False])
def test_parts__never_replace_a_file_that_has_the_name_of_one_nor_it_them(
    scope: Tenant, work: Work, source: Place, *, divided_first: bool
) -> None:
    files = [(FILE, build_table(600)), (f"{FILE}#part-2", b"about chairs")]
    names = name_parts(source, 1, 2, 3) if divided_first else name_parts(source, 2)
    for file in files if divided_first else reversed(files):
        source.put(*file)
        source.run(scope, work)
    for _ in range(2):
        source.run(scope, work)
        wait_for_sources(scope, names)
    assert last_run(scope).failures[0].code == "duplicate"
    texts = [hit.text for hit in scope.search("about chairs").hits]
    assert ("about chairs" in texts) is not divided_first


@every_source
def test_parts__of_one_pass_and_a_file_with_the_name_of_one_are_not_both_stored(
    scope: Tenant, work: Work, source: Place
) -> None:
    source.put(FILE, build_table(600))
    source.put(f"{FILE}#part-2", b"about chairs")
    source.run(scope, work)
    eventually(lambda: not scope.jobs.find(states=[JobState.QUEUED, JobState.RUNNING], kinds=["document"]))
    assert [failure.code for failure in last_run(scope).failures] == ["duplicate"]


@every_source
def test_parts__a_file_with_the_name_of_one_stays_beside_a_small_file(scope: Tenant, work: Work, source: Place) -> None:
    source.put(f"{FILE}#part-1", b"about chairs")
    for rows in (3, 4):
        source.put(FILE, build_table(rows))
        source.run(scope, work)
        wait_for_sources(scope, [source.name, *name_parts(source, 1)])


def test_parts__of_which_the_first_have_no_text_leave_an_unchanged_file_unread(
    scope: Tenant, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = FolderPlace(tmp_path)
    place.put("rows.jsonl", _BLANK_ROWS + b'{"order": "order7"}\n')
    place.run(scope, work)
    (last,) = list_sources(scope)
    assert int(last.removeprefix("kb/rows.jsonl#part-")) > 2
    with monkeypatch.context() as patched:
        patched.setattr(DividedDocument, "read", _refuse)
        place.run(scope, work)
    assert counts(last_run(scope)) == {"unchanged": 1}
    place.put("rows.jsonl", b'{"order": "order8"}\n')
    place.run(scope, work)
    wait_for_sources(scope, ["kb/rows.jsonl"])


_ORDERS = b"".join(b'{"order": "order%d", "note": "%s"}\n' % (row, b" " * 2_000) for row in range(900))


def test_upload__whose_parts_have_no_text_keeps_those_of_the_earlier_one(
    scope: Tenant, work: Work, tmp_path: Path
) -> None:
    place = UploadPlace(tmp_path)
    place.put("rows.jsonl", _ORDERS)
    place.run(scope, work)
    eventually(lambda: scope.jobs.find(kinds=["document"])[0].state == JobState.DONE)
    stored = list_sources(scope)
    assert len(stored) > 1
    place.put("rows.jsonl", _BLANK_ROWS)
    place.run(scope, work)
    eventually(lambda: scope.jobs.find(kinds=["document"])[0].state == JobState.DEAD)
    assert list_sources(scope) == stored


@pytest.mark.parametrize("data", [b'{"note": ""}\n', _BLANK_ROWS], ids=["small", "large"])
def test_parts__go_where_their_file_has_no_text(scope: Tenant, work: Work, tmp_path: Path, data: bytes) -> None:
    place = FolderPlace(tmp_path)
    for content in (_ORDERS, data):
        place.put("rows.jsonl", content)
        place.run(scope, work)
    wait_for_sources(scope, [])
