"""Names of documents that are files: relative to a named root, wherever that is on the disk."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import RequestError, SourceError
from kosmos_rag.ingestion.discovery import discover
from kosmos_rag.ingestion.sources.listing import Entry
from kosmos_rag.ingestion.sources.names import FileNames, default_name


@pytest.fixture
def kb(tmp_path: Path) -> Path:
    """A folder `kb` with one file in a folder."""
    (tmp_path / "kb" / "hr").mkdir(parents=True)
    (tmp_path / "kb" / "hr" / "leave.md").write_text("Twenty days.")
    return tmp_path / "kb"


@pytest.mark.parametrize(
    ("folder", "root", "name"),
    [
        ("", None, "kb/hr/leave.md"),
        ("", "handbook", "handbook/hr/leave.md"),
        ("", "company/handbook", "company/handbook/hr/leave.md"),
        ("", ".", "hr/leave.md"),
        ("hr", None, "hr/leave.md"),
        ("hr/leave.md", None, "hr/leave.md"),
        ("hr/leave.md", "kb/hr", "kb/hr/leave.md"),
        ("hr/leave.md", ".", "leave.md"),
        ("hr/../hr/", None, "hr/leave.md"),
    ],
)
def test_name__begins_with_the_root(folder: str, root: str | None, name: str, kb: Path, opened: Any) -> None:
    source = opened(kind="folder", path=f"{kb}/{folder}", root=root)
    (entry,) = source.listing()
    assert entry.source == name
    assert source.load(entry).source == name


def test_name__does_not_depend_on_where_the_folder_is(
    kb: Path, tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = shutil.copytree(kb, tmp_path / "elsewhere" / "kb")
    monkeypatch.chdir(moved)
    for path in (kb, moved, ".", "../kb"):
        assert [entry.source for entry in opened(kind="folder", path=path).listing()] == ["kb/hr/leave.md"], path
    assert default_name(Path("hr")) == "hr"
    assert default_name(Path("hr/leave.md")) == "hr/leave.md"


def test_name__of_a_line_has_no_place_of_the_disk(kb: Path, opened: Any) -> None:
    (kb / "faq.jsonl").write_text('{"id": 1, "text": "words"}')
    for root, name in ((None, "kb/faq.jsonl#1"), ("help", "help/faq.jsonl#1"), (".", "faq.jsonl#1")):
        assert [entry.source for entry in opened(kind="json_lines", path=kb / "faq.jsonl", root=root).listing()] == [
            name
        ]


@pytest.mark.parametrize("root", ["", " ", "/kb", "kb/", "a//b", "..", "a/../b", "./a", "https://kb", "a\x00b"])
def test_root__that_is_no_name_is_refused(root: str, kb: Path, opened: Any) -> None:
    with pytest.raises(RequestError, match="a root is a name such as handbook"):
        opened(kind="folder", path=kb, root=root)


def test_root__of_a_folder_without_a_name_must_be_given(opened: Any) -> None:
    with pytest.raises(RequestError, match="/ has no name that documents could begin with; name its root"):
        opened(kind="folder", path="/")
    assert FileNames(Path("/"), "server").to_name("/etc/hosts") == "server/etc/hosts"


def test_covers__without_a_root_every_path_and_no_address(kb: Path, opened: Any) -> None:
    listing = opened(kind="folder", path=kb, root=".").listing()
    list(listing)
    assert listing.covers("hr/gone.md")
    assert listing.covers("upload.md")
    for source in ("hr/leave.md", "https://example.org/gone.md", "sql://tickets/1", "/kb/hr/gone.md"):
        assert not listing.covers(source), source


def test_load__of_an_entry_of_another_root_is_refused(kb: Path, opened: Any) -> None:
    source = opened(kind="folder", path=kb)
    (entry,) = source.listing()
    for other in (str(kb / "hr" / "leave.md"), "handbook/hr/leave.md"):
        with pytest.raises(SourceError, match="was listed under another root; list the source again"):
            source.load(Entry(source=other, etag=entry.etag, locator=entry.locator))


def test_failures__do_not_say_where_the_folder_is(kb: Path, opened: Any) -> None:
    """Messages about files and folders name them by root and path."""
    (kb / "hr" / ".kosmosignore").write_text("!\n")
    (kb / "gone.md").symlink_to("nowhere.md")
    source = opened(kind="folder", path=kb)
    listing = source.listing()
    (entry,) = listing
    with pytest.raises(SourceError) as caught:
        source.load(entry)
    unmounted = opened(kind="folder", path=kb / "unmounted").listing()
    broken = opened(kind="json_lines", path=kb / "faq.jsonl").listing()
    assert [*unmounted, *broken] == []
    failures = [*listing.failures, *unmounted.failures, *broken.failures]
    assert [failure.source for failure in failures] == ["kb/hr", "kb/unmounted", "kb/faq.jsonl"]
    texts = [str(caught.value), *(failure.message for failure in failures)]
    assert not any(str(kb.parent) in text for text in texts), texts
    assert caught.value.code == "not_found"


def test_discover__refuses_two_folders_of_one_root(kb: Path, tmp_path: Path) -> None:
    other = shutil.copytree(kb, tmp_path / "other" / "kb")
    settings = IngestionSettings()
    with pytest.raises(RequestError, match=r"the root of .* and of .* is kb; name one of them by another root"):
        discover([kb, other], settings)
    assert len(discover([kb, kb / "..", tmp_path / "kb"], settings).listings) == 3
    with pytest.raises(RequestError, match=r"and of .* is handbook"):
        discover([kb, other], settings, root="handbook")


def test_discover__names_a_second_file_of_one_name(kb: Path, tmp_path: Path) -> None:
    other = shutil.copytree(kb, tmp_path / "other" / "kb")
    discovery = discover([kb / "hr" / "leave.md", other / "hr" / "leave.md"], IngestionSettings())
    assert [document.source for document in discovery.documents] == ["hr/leave.md"]
    assert [(failure.source, failure.code) for failure in discovery.failures] == [("hr/leave.md", "duplicate")]
