"""A folder as a source: what is taken, what is passed over, what is said of the rest."""

import errno
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.listing import Entry, Source


def _write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def _names(source: Source, root: Path) -> list[str]:
    return [entry.source.removeprefix(f"{root.name}/") for entry in source.listing()]


def _entry(source: Source) -> Entry:
    [entry] = source.listing()
    return entry


def test_listing__walks_in_order_and_passes_hidden_ones_over(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "b.txt", "a/z.txt", "a/b/c.txt", ".git/config", ".hidden", "a/.env")
    source = opened(kind="folder", path=tmp_path)
    assert _names(source, tmp_path) == ["b.txt", "a/z.txt", "a/b/c.txt"]
    listing = source.listing()
    list(listing)
    assert listing.complete


def test_listing__of_one_file_takes_it_though_it_is_hidden_or_ignored(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, ".hidden")
    (tmp_path / ".kosmosignore").write_text("*\n")
    source = opened(kind="folder", path=tmp_path / ".hidden")
    assert source.load(_entry(source)).data == b".hidden"


def test_patterns__include_and_exclude(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "a.md", "b.txt", "drafts/c.md", "sub/drafts.md", "sub/d.md")
    source = opened(kind="folder", path=tmp_path, include=["*.md"], exclude=["drafts/"])
    assert _names(source, tmp_path) == ["a.md", "sub/d.md", "sub/drafts.md"]


def test_ignore_files__are_read_as_git_does(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "a.log", "keep.log", "build/x.txt", "sub/a.log", "sub/build/y.txt", "sub/only.tmp", "only.tmp")
    (tmp_path / ".kosmosignore").write_text("# logs\n*.log\n!keep.log\n/build/\n")
    (tmp_path / "sub" / ".kosmosignore").write_text("!a.log\nonly.tmp\n")
    assert _names(opened(kind="folder", path=tmp_path), tmp_path) == [
        "keep.log",
        "only.tmp",
        "sub/a.log",
        "sub/build/y.txt",
    ]


def test_gitignore__counts_only_when_asked_for_and_yields_to_ours(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "a.tmp", "b.tmp", "c.txt")
    (tmp_path / ".gitignore").write_text("*.tmp\n")
    (tmp_path / ".kosmosignore").write_text("!b.tmp\n")
    assert _names(opened(kind="folder", path=tmp_path), tmp_path) == ["a.tmp", "b.tmp", "c.txt"]
    assert _names(opened(kind="folder", path=tmp_path, gitignore=True), tmp_path) == ["b.tmp", "c.txt"]


@pytest.mark.parametrize("make", ["pattern", "pipe", "folder", "large"])
def test_ignore_files__that_cannot_be_read_close_their_folder(make: str, tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "open/a.txt", "closed/secret.txt", "closed/below/secret.txt")
    file = tmp_path / "closed" / ".kosmosignore"
    if make == "pipe":
        os.mkfifo(file)
    elif make == "folder":
        file.mkdir()
    else:
        file.write_text("!\n" if make == "pattern" else "#" * 2_000_000)
    source = opened(kind="folder", path=tmp_path)
    assert _names(source, tmp_path) == ["open/a.txt"]
    listing = source.listing()
    list(listing)
    assert [Path(failure.source).name for failure in listing.failures] == ["closed"]
    assert not listing.complete


def test_load__gives_what_the_spec_says_of_every_document(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "a.txt")
    source = opened(
        kind="folder", path=tmp_path, acl=["finance", "hr"], metadata={"team": "x", "n": [1]}, language="german"
    )
    document = source.load(_entry(source))
    assert (document.acl, document.metadata, document.language) == (
        ("finance", "hr"),
        {"team": "x", "n": [1]},
        "german",
    )


def test_mark__changes_with_the_file_and_with_who_may_read_it(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "a.txt")
    source = opened(kind="folder", path=tmp_path)
    first = _entry(source).etag
    assert _entry(source).etag == first
    assert _entry(opened(kind="folder", path=tmp_path, acl=["hr"])).etag != first
    state = (tmp_path / "a.txt").stat()
    (tmp_path / "a.txt").write_text("A.TXT")  # the same size, and the time set back
    os.utime(tmp_path / "a.txt", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert _entry(source).etag != first


def test_locator__is_enough_in_another_process(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "docs/ä ü%20.txt")
    entry = _entry(opened(kind="folder", path=tmp_path))
    stored = Entry(source=entry.source, etag=entry.etag, locator=json.loads(json.dumps(dict(entry.locator))))
    assert opened(kind="folder", path=tmp_path).load(stored).data.decode() == "docs/ä ü%20.txt"


def test_names__that_are_not_utf8(tmp_path: Path, opened: Any) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_bytes(b"words")
    source = opened(kind="folder", path=tmp_path)
    entry = _entry(source)
    assert entry.source == f"{tmp_path.name}/caf\\xe9.txt"
    json.dumps(dict(entry.locator), ensure_ascii=False).encode()
    assert source.load(entry).data == b"words"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ESTALE, errno.ENOTCONN])
def test_load__is_tried_again_where_the_machine_is_at_fault(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    _write(tmp_path, "a.txt")
    source = opened(kind="folder", path=tmp_path)
    entry = _entry(source)

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        with pytest.raises(SourceError, match=os.strerror(number)) as caught:
            source.load(entry)
    assert caught.value.retryable


def test_links__to_files_are_followed_and_loops_are_not(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "docs/a.txt")
    docs = tmp_path / "docs"
    (docs / "b.txt").symlink_to("a.txt")
    (docs / "loop").symlink_to(docs)
    (docs / "self").symlink_to("self")
    (docs / "broken").symlink_to("nowhere")
    source = opened(kind="folder", path=docs)
    outcomes = {}
    for entry in source.listing():
        try:
            outcomes[Path(entry.source).name] = source.load(entry).data.decode()
        except SourceError as error:
            assert entry.etag is None
            outcomes[Path(entry.source).name] = error.code
    assert outcomes == {"a.txt": "docs/a.txt", "b.txt": "docs/a.txt", "self": "unreadable", "broken": "not_found"}


def test_links__that_leave_the_folder_are_not_followed(tmp_path: Path, opened: Any) -> None:
    """A link that leaves a mirrored folder is not followed, also if a listed file was replaced by the link."""
    _write(tmp_path, "secret/salaries.txt", "docs/a.txt", "docs/later.txt", "docs/sub/b.txt")
    docs, secret = tmp_path / "docs", tmp_path / "secret"
    (docs / "absolute.txt").symlink_to(secret / "salaries.txt")
    (docs / "relative.txt").symlink_to("../secret/salaries.txt")
    (docs / "inner.txt").symlink_to("relative.txt")
    (docs / "kept.txt").symlink_to("sub/b.txt")
    source = opened(kind="folder", path=docs)
    assert _names(source, docs) == ["a.txt", "kept.txt", "later.txt", "sub/b.txt"]
    entries = {Path(entry.source).name: entry for entry in source.listing()}
    for name in ("later.txt", "b.txt"):  # they become links after the listing, one of them by its folder
        (tmp_path / entries[name].source).unlink()
    (docs / "later.txt").symlink_to(secret / "salaries.txt")
    (docs / "sub").rmdir()
    (docs / "sub").symlink_to(secret)
    _write(tmp_path, "secret/b.txt")
    for name in ("later.txt", "b.txt"):
        with pytest.raises(SourceError, match="behind a link that leaves") as caught:
            source.load(entries[name])
        assert caught.value.code == "refused"
    assert source.listing().covers("docs/absolute.txt"), "a document of before is removed"
    follow = opened(kind="folder", path=docs, follow_external_links=True)
    assert "absolute.txt" in _names(follow, docs)
    assert follow.load(entries["later.txt"]).data == b"secret/salaries.txt"


def test_listing__passes_over_what_is_removed_meanwhile(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "a.txt", "b.txt", "c.txt", "sub/d.txt")
    listing = opened(kind="folder", path=tmp_path).listing()
    names = []
    for entry in listing:
        names.append(Path(entry.source).name)
        if names == ["a.txt"]:
            (tmp_path / "b.txt").unlink()
            (tmp_path / "sub" / "d.txt").unlink()
            (tmp_path / "sub").rmdir()
    assert names == ["a.txt", "c.txt"]
    assert listing.failures == []
    assert listing.complete


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file, beside more folders within one another than Python has frames for."""
    below = [f"{tmp_path}{'/a' * level}" for level in range(1, sys.getrecursionlimit() + 100)]
    for folder in below:
        os.mkdir(folder)  # noqa: PTH102 — fast
    _write(tmp_path, "b.txt")
    yield tmp_path
    for folder in reversed(below):  # what removes it otherwise needs a frame for each as well
        os.rmdir(folder)  # noqa: PTH106


def test_listing__ends_in_any_depth(deep: Path, opened: Any) -> None:
    source = opened(kind="folder", path=deep)
    assert _names(source, deep) == ["b.txt"]


def test_folder__that_may_not_be_read_is_named(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "open/a.txt", "closed/b.txt")
    (tmp_path / "closed").chmod(0)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and os.geteuid() == 0:
            folder.chmod(folder.stat().st_mode | 0o055)
    root = os.geteuid() == 0
    listing = opened(kind="folder", path=tmp_path).listing()
    try:
        if root:
            os.seteuid(65534)
        names = [Path(entry.source).name for entry in listing]
    finally:
        if root:
            os.seteuid(0)
        (tmp_path / "closed").chmod(0o700)
    assert names == ["a.txt"]
    assert [(Path(failure.source).name, failure.code) for failure in listing.failures] == [("closed", "no_permission")]
    assert not listing.complete


def test_load__a_file_that_is_gone_has_grown_or_is_no_file_any_more(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "gone", "grown", "pipe", "folder")
    source = opened(kind="folder", path=tmp_path)
    entries = {Path(entry.source).name: entry for entry in source.listing()}
    for name in ("gone", "pipe", "folder"):
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "grown").write_bytes(b"x" * (1024 * 1024 + 1))
    codes = {}
    for name, entry in entries.items():
        with pytest.raises(SourceError) as caught:
            source.load(entry)
        codes[name] = caught.value.code
    assert codes == {"gone": "gone", "grown": "too_large", "pipe": "not_a_file", "folder": "not_a_file"}


def test_load__stops_at_the_limit_where_the_size_is_not_told(opened: Any) -> None:
    source = opened(kind="folder", path="/proc/kallsyms")
    if not Path("/proc/kallsyms").is_file():
        pytest.skip("no file of unknown size here")
    with pytest.raises(SourceError, match="max_file_mb"):
        source.load(_entry(source))


def test_covers__what_is_gone_from_the_folder(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "docs/a.txt", "docs/.hidden", "docs/b.pdf", "docs-old/c.txt")
    docs = tmp_path / "docs"
    listing = opened(kind="folder", path=docs, include=["*.txt"]).listing()
    list(listing)
    assert listing.covers("docs/gone.txt")
    assert listing.covers("docs/gone/too.txt")
    assert not listing.covers("docs/.hidden")
    assert not listing.covers("docs/b.pdf")  # another source of the same folder may hold it
    assert not listing.covers("docs-old/gone.txt")
    assert not listing.covers("https://example.org/gone.txt")


def test_covers__what_has_come_to_be_ignored(tmp_path: Path, opened: Any) -> None:
    _write(tmp_path, "drafts/deep/a.txt", "b.txt", "c.txt")
    (tmp_path / ".kosmosignore").write_text("drafts/\nb.txt\n")
    listing = opened(kind="folder", path=tmp_path).listing()
    assert [Path(entry.source).name for entry in listing] == ["c.txt"]
    assert listing.covers(f"{tmp_path.name}/drafts/deep/a.txt")
    assert listing.covers(f"{tmp_path.name}/b.txt")
    assert not listing.covers(f"{tmp_path.name}/c.txt")


def test_covers__nothing_where_the_folder_is_gone(tmp_path: Path, opened: Any) -> None:
    listing = opened(kind="folder", path=tmp_path / "unmounted").listing()
    list(listing)
    assert not listing.covers("unmounted/a.txt")
    assert not listing.complete
