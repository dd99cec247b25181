"""Files of git repositories as documents, read by git itself from a folder and from a real git daemon."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.errors import GONE, ConfigError, RequestError, SourceError
from kosmos_rag.ingestion.sources.git_repository import check_address, web_address
from kosmos_rag.ingestion.sources.listing import Entry, Source

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
DAEMON = Path("/usr/lib/git-core/git-daemon")


class Work:
    """A repository with a working tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, date: str = "2026-03-01T12:00:00+00:00") -> str:
        identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "protocol.file.allow=always")
        environment = {**os.environ, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        return subprocess.run(
            ["git", *identity, *arguments], cwd=self.folder, check=True, capture_output=True, text=True, env=environment
        ).stdout.strip()

    def commit(self, files: dict[str, str | bytes], *, date: str = "2026-03-01T12:00:00+00:00") -> str:
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change", date=date)
        return self.git("rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """A repository with two documents in two folders."""
    repository = Work(tmp_path / "handbook")
    repository.commit({"docs/leave.md": "# Leave\n\nThirty days.\n", "code/tool.py": "print(1)\n"})
    return repository


def _open(opened: Any, work: Work, **spec: Any) -> Source:
    source: Source = opened(**{"kind": "git", "name": "handbook", "url": str(work.folder), **spec})
    return source


def _names(source: Source) -> list[str]:
    listing = source.listing()
    names = [entry.source for entry in listing]
    assert listing.complete, listing.failures
    return names


def _entries(source: Source) -> dict[str, Entry]:
    return {entry.source: entry for entry in source.listing()}


def test_listing__has_the_files_of_the_default_branch(work: Work, opened: Any) -> None:
    source = _open(opened, work)
    assert _names(source) == ["git://handbook/code/tool.py", "git://handbook/docs/leave.md"]
    entry = _entries(source)["git://handbook/docs/leave.md"]
    document = source.load(entry)
    assert document.data == b"# Leave\n\nThirty days.\n"


def test_listing__follows_patterns_and_covers_only_what_they_admit(work: Work, opened: Any) -> None:
    source = _open(opened, work, include=["*.md"], exclude=["drafts/"])
    work.commit({"drafts/new.md": "x"})
    listing = source.listing()
    assert [entry.source for entry in listing] == ["git://handbook/docs/leave.md"]
    assert listing.covers("git://handbook/docs/gone.md")
    assert not listing.covers("git://handbook/code/tool.py")
    assert not listing.covers("git://other/docs/leave.md")


def test_etag__changes_with_the_content_alone(work: Work, opened: Any) -> None:
    before = _entries(_open(opened, work))
    work.commit({"code/tool.py": "print(2)\n"})
    after = _entries(_open(opened, work))
    changed = {name for name in after if after[name].etag != before[name].etag}
    assert changed == {"git://handbook/code/tool.py"}
    assert _entries(_open(opened, work, acl=["hr"]))["git://handbook/docs/leave.md"].etag != (
        after["git://handbook/docs/leave.md"].etag
    )


def test_renamed_and_deleted_files__are_listed_as_they_are_now(work: Work, opened: Any) -> None:
    source = _open(opened, work)
    assert len(_names(source)) == 2
    work.git("mv", "docs/leave.md", "docs/holiday.md")
    work.git("rm", "--quiet", "code/tool.py")
    work.commit({})
    assert _names(source) == ["git://handbook/docs/holiday.md"]


@pytest.mark.parametrize("ref", ["v1", "release/1"])
def test_ref__is_a_branch_or_a_tag(ref: str, work: Work, opened: Any) -> None:
    work.git("tag", "v1")
    work.git("branch", "release/1")
    work.commit({"later.md": "x"})
    assert "git://handbook/later.md" not in _names(_open(opened, work, ref=ref))
    assert "git://handbook/later.md" in _names(_open(opened, work))


def test_forced_push__is_followed(work: Work, opened: Any) -> None:
    source = _open(opened, work)
    _names(source)
    work.git("checkout", "--quiet", "--orphan", "fresh")
    work.git("rm", "-rf", "--quiet", ".")
    work.commit({"only.md": "x"})
    work.git("branch", "--force", "main", "fresh")
    work.git("checkout", "--quiet", "main")
    assert _names(source) == ["git://handbook/only.md"]


def test_metadata__is_the_last_commit_of_the_file_and_its_link(work: Work, opened: Any) -> None:
    changed = work.commit({"docs/leave.md": "# Leave\n\nForty days.\n"}, date="2026-04-02T08:00:00+02:00")
    work.commit({"code/tool.py": "print(3)\n"}, date="2026-05-01T08:00:00+02:00")
    source = _open(opened, work, web="none")
    document = source.load(_entries(source)["git://handbook/docs/leave.md"])
    assert document.metadata == {"commit": changed, "updated": "2026-04-02T08:00:00+02:00"}


@pytest.mark.parametrize(
    ("url", "form", "address"),
    [
        ("https://github.com/acme/handbook.git", "github", "https://github.com/acme/handbook"),
        ("git@gitlab.example.org:acme/docs/handbook.git", "gitlab", "https://gitlab.example.org/acme/docs/handbook"),
        ("ssh://git@codeberg.org:22/acme/handbook", "gitea", "https://codeberg.org/acme/handbook"),
        ("http://gitea.local:3000/acme/handbook", "gitea", "http://gitea.local:3000/acme/handbook"),
        ("/srv/git/handbook", "none", None),
    ],
)
def test_web_address__is_found_by_the_host(url: str, form: str, address: str | None) -> None:
    assert web_address(url, "auto") == (address, form)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://ann:secret@example.org/a.git", "credential helper"),
        ("https://token@example.org/a.git", "credential helper"),
        ("ext::sh -c id", "address or a path"),
        ("--upload-pack=id", "address or a path"),
        ("javascript://x", "must begin with"),
        (" ", "address or a path"),
    ],
)
def test_url__with_a_password_or_a_command_is_refused(url: str, message: str, opened: Any) -> None:
    with pytest.raises(ValueError, match=message):
        check_address(url)
    with pytest.raises(RequestError, match="url"):
        opened(kind="git", name="a", url=url)


def test_ref__cannot_be_an_option(opened: Any) -> None:
    with pytest.raises(RequestError, match="ref"):
        opened(kind="git", name="a", url="/srv/a", ref="--upload-pack=id")


def test_names__with_line_breaks_and_other_bytes_are_kept_or_reported(work: Work, opened: Any) -> None:
    work.commit({"docs/two\nlines.md": "x", "docs/ü.md": "y", ":(top)odd.md": "z"})
    source = _open(opened, work)
    entries = _entries(source)
    assert source.load(entries["git://handbook/docs/two\nlines.md"]).data == b"x"
    assert source.load(entries["git://handbook/:(top)odd.md"]).data == b"z"
    assert source.load(entries["git://handbook/docs/ü.md"]).metadata["commit"]


def test_links_in_the_tree__are_left_out(work: Work, opened: Any) -> None:
    (work.folder / "link.md").symlink_to("/etc/passwd")
    work.commit({})
    assert "git://handbook/link.md" not in _names(_open(opened, work))


def test_clone__stays_small_and_has_the_graph_of_its_commits(work: Work, opened: Any, cache: Path) -> None:
    first = work.git("rev-parse", "HEAD")
    for number in range(8):
        work.commit({"new.md": f"{number}"})
        source = _open(opened, work)
        entries = _entries(source)
        assert source.load(entries["git://handbook/docs/leave.md"]).metadata["commit"] == first
    [clone] = (cache / "kosmos-rag" / "git").iterdir()
    objects = clone / "objects"
    assert (objects / "info" / "commit-graphs" / "commit-graph-chain").exists()
    assert {folder.name for folder in objects.iterdir()} == {"info", "pack"}
    assert len(list((objects / "pack").glob("*.pack"))) < 5


def test_clone__is_packed_again_in_silence(
    work: Work, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one takes longer than other calls may be silent."""
    silence_s = 4.0
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    slow = f"*repack*) sleep {2 * silence_s}; touch {tmp_path}/done;;"
    program.write_text(f'#!/bin/sh\ncase "$*" in {slow} esac\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("kosmos_rag.ingestion.sources.git_repository.SILENCE_S", silence_s)
    assert len(_names(_open(opened, work))) == 2
    assert (tmp_path / "done").exists()


def test_clone__is_rid_of_what_an_ended_git_has_left(work: Work, opened: Any, cache: Path) -> None:
    source = _open(opened, work)
    assert len(_names(source)) == 2
    [clone] = (cache / "kosmos-rag" / "git").iterdir()
    [ref] = (clone / "refs" / "kosmos").iterdir()
    chains = clone / "objects" / "info" / "commit-graphs"
    left = [
        clone / "objects" / "pack" / ".tmp-17-pack-0af7.pack",
        clone / "objects" / "pack" / "tmp_pack_Xy1",
        chains / "commit-graph-chain.lock",
        ref.with_suffix(".lock"),
    ]
    for path in left:
        path.write_bytes(b"left")
    work.commit({"new.md": "x"})
    assert len(_names(source)) == 3
    assert not any(path.exists() for path in left)


def test_load__of_a_rewritten_commit_fetches_once(
    work: Work, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine has listed the commit; it never comes to this one."""
    work.commit({"listed.md": "x"})
    entries = list(_open(opened, work).listing())
    work.git("reset", "--quiet", "--hard", "HEAD~")
    first = work.git("rev-parse", "HEAD")
    newest = work.commit({"new.md": "x"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    source = _open(opened, work)
    present = [entry for entry in entries if entry.source != "git://handbook/listed.md"]
    assert len(present) == 2
    assert len(_names(source)) == 3
    [clone] = (tmp_path / "another" / "kosmos-rag" / "git").iterdir()
    fetched = clone / "FETCH_HEAD"
    times = []
    for entry in present:
        assert source.load(entry).metadata["commit"] == first
        times.append(fetched.stat().st_mtime_ns)
        time.sleep(0.02)
    assert times[0] == times[1]
    assert newest in fetched.read_text()
    shutil.move(work.folder, tmp_path / "gone")
    again = _open(opened, work)
    assert [again.load(entry).metadata["commit"] for entry in present] == [first, first]


def test_load__in_a_process_with_another_clone(
    work: Work, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [entry] = [entry for entry in _open(opened, work).listing() if entry.source.endswith("leave.md")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert _open(opened, work).load(entry).data.startswith(b"# Leave")


def test_load__of_a_renamed_file_in_a_process_with_an_older_clone(
    work: Work, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(_names(_open(opened, work))) == 2
    work.git("mv", "docs/leave.md", "docs/holiday.md")
    commit = work.commit({})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    [entry] = [entry for entry in _open(opened, work).listing() if entry.source.endswith("holiday.md")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert _open(opened, work).load(entry).metadata["commit"] == commit


def test_load__of_a_file_that_history_no_longer_has(
    work: Work, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [entry] = [entry for entry in _open(opened, work).listing() if entry.source.endswith("leave.md")]
    shutil.rmtree(work.folder)
    Work(work.folder).commit({"new.md": "x"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    with pytest.raises(SourceError) as raised:
        _open(opened, work).load(entry)
    assert raised.value.code == GONE


def test_load__refuses_a_file_above_the_limit(work: Work, opened: Any) -> None:
    work.commit({"big.txt": b"x" * (1024 * 1024 + 1)})
    source = _open(opened, work)
    with pytest.raises(SourceError, match="max_file_mb") as raised:
        source.load(_entries(source)["git://handbook/big.txt"])
    assert raised.value.code == "too_large"


def test_load__of_a_pointer_of_lfs_says_what_to_set(work: Work, opened: Any) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12\n"
    work.commit({"big.pdf": pointer})
    source = _open(opened, work)
    with pytest.raises(SourceError, match="lfs: true"):
        source.load(_entries(source)["git://handbook/big.pdf"])


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
def test_load__of_a_file_of_lfs(work: Work, opened: Any) -> None:
    work.git("lfs", "install", "--local")
    work.git("lfs", "track", "*.bin")
    work.commit({"big.bin": b"large content"})
    source = _open(opened, work, lfs=True, url=f"file://{work.folder}")
    assert source.load(_entries(source)["git://handbook/big.bin"]).data == b"large content"


def test_submodules__are_read_where_the_spec_says_so(work: Work, opened: Any, tmp_path: Path) -> None:
    library = Work(tmp_path / "library")
    library.commit({"guide.md": "# Guide\n"})
    work.git("submodule", "--quiet", "add", "../library", "vendor/library")
    work.commit({})
    assert "git://handbook/vendor/library/guide.md" not in _names(_open(opened, work))
    source = _open(opened, work, submodules=True)
    entries = _entries(source)
    assert source.load(entries["git://handbook/vendor/library/guide.md"]).data == b"# Guide\n"


def test_submodules__of_another_host_are_not_fetched(work: Work, opened: Any) -> None:
    library = work.folder.parent / "library"
    Work(library).commit({"guide.md": "x"})
    work.git("submodule", "--quiet", "add", "../library", "vendor")
    (work.folder / ".gitmodules").write_text(
        '[submodule "vendor"]\n\tpath = vendor\n\turl = http://169.254.169.254/x\n'
    )
    work.commit({})
    assert _names(_open(opened, work, submodules=True)) == [
        "git://handbook/.gitmodules", "git://handbook/code/tool.py", "git://handbook/docs/leave.md",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "code"), [({"url": "/nowhere/at/all"}, "not_found"), ({"ref": "no-such-branch"}, "not_found")]
)
def test_listing__of_what_does_not_exist_is_a_failure(spec: dict[str, str], code: str, work: Work, opened: Any) -> None:
    listing = _open(opened, work, **spec).listing()
    assert list(listing) == []
    assert [failure.code for failure in listing.failures] == [code]
    assert not listing.complete


def test_source__without_git_says_how_to_install_it(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="apt-get install git"):
        opened(kind="git", name="a", url="/srv/a")


def test_environment_of_a_hook__does_not_lead_elsewhere(
    work: Work, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Work(tmp_path / "other").commit({"other.md": "x"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert "git://handbook/docs/leave.md" in _names(_open(opened, work))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[str]:
    """The address of a git daemon that serves this test's folder."""
    if not DAEMON.exists():
        pytest.skip("git daemon is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(DAEMON),
        "--export-all",
        "--reuseaddr",
        "--listen=127.0.0.1",
        f"--port={port}",
        f"--base-path={tmp_path}",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"git://127.0.0.1:{port}"
        process.terminate()


def test_daemon__serves_what_changed_since_the_last_pass(work: Work, opened: Any, daemon: str) -> None:
    source = _open(opened, work, url=f"{daemon}/handbook")
    assert len(_names(source)) == 2
    work.commit({"docs/new.md": "# New\n"})
    entries = _entries(source)
    assert source.load(entries["git://handbook/docs/new.md"]).data == b"# New\n"
    listing = _open(opened, work, url=f"{daemon}/missing").listing()
    assert list(listing) == []
    assert listing.failures[0].code == "not_found"
