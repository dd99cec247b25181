"""Files and folders ingested: what is counted, what is removed, what is named because it could not be read."""

import os
import socket
from pathlib import Path

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed


def _text(source: str, text: str, **options: object) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode(), **options)  # type: ignore[arg-type]


def test_ingest__counts_new_changed_unchanged_and_removed(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    (tmp_path / "a.md").write_text("# A\n\nAbout churn.")
    (tmp_path / "b.txt").write_text("About revenue.")
    first = scope.ingest([tmp_path])
    assert (first.new, first.changed, first.unchanged, first.removed, first.failed) == (2, 0, 0, 0, ())
    second = scope.ingest([tmp_path])
    assert (second.new, second.changed, second.unchanged, second.chunks) == (0, 0, 2, 0)
    (tmp_path / "a.md").write_text("# A\n\nAbout cohorts.")
    (tmp_path / "b.txt").unlink()
    third = scope.ingest([tmp_path])
    assert (third.new, third.changed, third.unchanged, third.removed) == (0, 1, 0, 1)
    [document] = scope.documents()
    assert (document.source, document.version, document.title) == (f"{tmp_path.name}/a.md", 2, "A")
    assert not any("churn" in hit.text for hit in scope.search("churn", 10).hits)


def test_ingest__keeps_missing_documents_when_told_to(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"file {name}")
    scope.ingest([tmp_path])
    (tmp_path / "b.txt").unlink()
    assert scope.ingest([tmp_path], prune=False).removed == 0
    assert len(scope.documents()) == 2


def test_ingest__keeps_the_documents_of_a_folder_that_is_suddenly_empty(
    engine: Engine, tmp_path: Path, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    (tmp_path / "a.txt").write_text("words")
    scope.ingest([tmp_path])
    (tmp_path / "a.txt").unlink()
    report = scope.ingest([tmp_path])
    assert report.removed == 0
    assert [failure.code for failure in report.failed] == ["empty_folder"]
    assert len(scope.documents()) == 1


def test_ingest__leaves_documents_outside_the_folder_alone(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    for folder in ("docs", "docs-old"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(folder)
    scope.ingest([tmp_path / "docs", tmp_path / "docs-old", _text("note", "kept elsewhere")])
    assert scope.ingest([tmp_path / "docs"]).removed == 0
    assert len(scope.documents()) == 3


def test_ingest__goes_on_past_what_fails(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    (tmp_path / "good.txt").write_text("good words")
    (tmp_path / "empty.txt").write_text("  \n ")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7\nnot really")
    missing = tmp_path / "missing.txt"
    report = engine.tenant(tenant_name).ingest([tmp_path, missing])
    assert report.new == 1
    assert {Path(failure.source).name: failure.code for failure in report.failed} == {
        "binary.txt": "binary",
        "broken.pdf": "corrupt",
        "missing.txt": "not_found",
    }
    assert report.empty == 1
    assert report.seen == 5


def test_ingest__a_page_of_front_matter_alone_is_empty(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    page = tmp_path / "_index.md"
    page.write_text("---\ntitle: Guides\n---\nThe guides about churn.\n")
    assert scope.ingest([tmp_path]).new == 1
    page.write_text("---\ntitle: Guides\n---\n")
    for _ in range(2):
        report = scope.ingest([tmp_path])
        assert (report.empty, report.failed, report.seen) == (1, (), 1)
        assert scope.sources() == []
    refused = scope.ingest([SourceDocument(source="a.md", data=page.read_bytes())])
    assert [failure.code for failure in refused.failed] == ["empty"]


def test_ingest__a_changed_file_that_fails_keeps_its_old_version(
    engine: Engine, tmp_path: Path, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    file = tmp_path / "a.txt"
    file.write_text("about churn")
    scope.ingest([tmp_path])
    file.write_bytes(b"\x00\x01\x02" * 500)
    report = scope.ingest([tmp_path])
    assert [failure.code for failure in report.failed] == ["binary"]
    assert [hit.text for hit in scope.search("churn").hits] == ["about churn"]


def test_ingest__refuses_what_is_not_a_regular_file(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        report = engine.tenant(tenant_name).ingest([tmp_path])
    assert [failure.code for failure in report.failed] == ["not_a_file", "not_a_file"]


def test_ingest__names_what_it_may_not_read(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "a.txt").write_text("secret")
    (tmp_path / "b.txt").write_text("secret")
    (tmp_path / "b.txt").chmod(0)
    closed.chmod(0)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and os.geteuid() == 0:
            folder.chmod(folder.stat().st_mode | 0o055)
    root = os.geteuid() == 0
    engine.tenant(tenant_name).ingest([_text("first", "words")])  # connections are open before rights are given up
    try:
        if root:
            os.seteuid(65534)
        report = engine.tenant(tenant_name).ingest([tmp_path])
    finally:
        if root:
            os.seteuid(0)
        closed.chmod(0o700)
    assert {Path(failure.source).name: failure.code for failure in report.failed} == {
        "closed": "no_permission",
        "b.txt": "no_permission",
    }


def test_ingest__a_file_larger_than_allowed_is_named(settings: Settings, tmp_path: Path, tenant_name: str) -> None:
    limited = changed(settings, {"ingestion.max_file_mb": 1})
    (tmp_path / "big.txt").write_bytes(b"a" * (1024 * 1024 + 1))
    with Engine(limited, embedder=HashingEmbedder()) as engine:
        report = engine.tenant(tenant_name).ingest([tmp_path, _text("big", "b" * (1024 * 1024 + 1))])
    assert [failure.code for failure in report.failed] == ["too_large", "too_large"]
    assert "max_file_mb" in report.failed[0].message


def test_progress__is_told_for_every_document(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    (tmp_path / "a.txt").write_text("words")
    result: list[tuple[int, int, str]] = []
    engine.tenant(tenant_name).ingest(
        [tmp_path, tmp_path / "missing.txt", _text("b", "more")], on_progress=lambda *state: result.append(state)
    )
    assert [(outcome, total) for outcome, total, _ in result] == [(1, 2), (2, 2)]


def test_prune__keeps_what_is_there_though_it_was_not_walked(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("behind a link")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "b.txt").write_text("a file")
    (docs / ".hidden").write_text("hidden words")
    (docs / "link").symlink_to(tmp_path / "elsewhere")
    scope = engine.tenant(tenant_name)
    virtual = _text(str(docs / "virtual.md"), "made by a program")
    report = scope.ingest([docs, docs / "link", docs / ".hidden", virtual])
    assert (report.new, report.removed) == (4, 0)
    assert scope.ingest([docs, virtual]).removed == 0
    assert len(scope.sources()) == 4


def test_ingest__of_a_folder_that_was_moved_changes_nothing(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    folder = tmp_path / "a" / "kb"
    (folder / "hr").mkdir(parents=True)
    (folder / "hr" / "leave.md").write_text("Leave is twenty days.")
    (folder / "note.txt").write_text("A note.")
    scope.ingest([folder])
    before = scope.documents()
    (tmp_path / "b").mkdir()
    moved = folder.rename(tmp_path / "b" / "kb")
    report = scope.ingest([moved])
    assert (report.new, report.changed, report.unchanged, report.removed) == (0, 0, 2, 0)
    assert scope.documents() == before
    assert [document.source for document in before] == ["kb/hr/leave.md", "kb/note.txt"]
    # The same names under another root are other documents, and each root is mirrored for itself.
    assert scope.ingest([moved], root="handbook").new == 2
    (moved / "note.txt").unlink()
    assert scope.ingest([moved]).removed == 1
    assert scope.sources() == ["handbook/hr/leave.md", "handbook/note.txt", "kb/hr/leave.md"]


def test_ingest__tells_no_reader_where_a_folder_is(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    """No source, hit, citation, answer or failure reveals the path of a folder on the server."""
    scope = engine.tenant(tenant_name)
    folder = tmp_path / "kb"
    folder.mkdir()
    (folder / "leave.md").write_text("Leave is twenty days.")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\n")
    report = scope.ingest([folder, folder / "missing.md"], root="handbook")
    assert {failure.source for failure in report.failed} == {"handbook/broken.pdf", "handbook/missing.md"}
    answer = scope.answer("How many days of leave are there?")
    texts = [str(failure) for failure in report.failed]
    texts += [str(scope.search("leave").to_dict()), scope.context("leave").text, str(answer.to_dict()), answer.text]
    texts += [str(scope.documents()), str(scope.read_lines(scope.documents()[0].id))]
    assert all(str(tmp_path) not in text for text in texts), texts
    assert "handbook/leave.md" in scope.context("leave").text
