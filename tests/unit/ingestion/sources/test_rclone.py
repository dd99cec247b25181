"""Files of remotes of rclone: a folder, and real servers of WebDAV and SFTP."""

import json
import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import GONE, ConfigError, RequestError, SourceError
from kosmos_rag.ingestion.permission_feed import read_feed
from kosmos_rag.ingestion.sources.listing import Entry
from kosmos_rag.ingestion.sources.rclone_permissions import read_principals
from kosmos_rag.ingestion.sources.spec import validate_feed

needs_rclone = pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")
DRIVE = json.loads((Path(__file__).parent / "rclone_permissions.json").read_text())


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the remote `drive` of rclone's configuration is an alias of."""
    folder = tmp_path / "drive"
    folder.mkdir()
    config = tmp_path / "rclone.conf"
    config.write_text(f"[drive]\ntype = alias\nremote = {folder}\n")
    monkeypatch.setenv("RCLONE_CONFIG", str(config))
    return folder


def _put(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def _open(opened: Any, remote: str = "drive:", **spec: Any) -> Any:
    return opened(**{"kind": "rclone", "name": "kb", "remote": remote, "acl": ["hr"], **spec})


def _entries(source: Any) -> dict[str, Entry]:
    listing = source.listing()
    entries = {entry.source: entry for entry in listing}
    assert listing.complete, listing.failures
    return entries


@contextmanager
def _serve(protocol: str, folder: Path, *options: str) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["rclone", "serve", protocol, str(folder), f"--addr=127.0.0.1:{port}", "--dir-cache-time=0s", *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
        process.terminate()


@needs_rclone
def test_files__are_documents_under_the_name_of_the_source(drive: Path, opened: Any) -> None:
    _put(drive, {"hr/leave [1].md": "Thirty days.", "b ü%.md": "x", "drafts/new.md": "y"})
    source = _open(opened, exclude=["drafts/"])
    entries = _entries(source)
    assert entries.keys() == {"rclone://kb/hr/leave [1].md", "rclone://kb/b ü%.md"}
    document = source.load(entries["rclone://kb/hr/leave [1].md"])
    assert (document.data, document.acl) == (b"Thirty days.", ("hr",))
    assert source.load(entries["rclone://kb/b ü%.md"]).data == b"x"
    listing = source.listing()
    assert listing.covers("rclone://kb/hr/old.md")
    assert not listing.covers("rclone://kb/drafts/new.md")
    assert not listing.covers("rclone://other/hr/old.md")


@needs_rclone
def test_etag__changes_with_the_file(drive: Path, opened: Any) -> None:
    _put(drive, {"a.md": "one", "b.md": "same"})
    before = _entries(_open(opened))
    _put(drive, {"a.md": "other"})
    after = _entries(_open(opened))
    assert {name for name in after if after[name].etag != before[name].etag} == {"rclone://kb/a.md"}


@needs_rclone
def test_path__of_a_remote_is_followed(drive: Path, opened: Any) -> None:
    _put(drive, {"hr/a.md": "x", "it/b.md": "y"})
    source = _open(opened, "drive:hr")
    entries = _entries(source)
    assert list(entries) == ["rclone://kb/a.md"]
    assert source.load(entries["rclone://kb/a.md"]).data == b"x"


@needs_rclone
def test_load__of_a_file_that_was_removed_or_grew(drive: Path, opened: Any) -> None:
    _put(drive, {"a.md": "x", "b.md": "y"})
    source = _open(opened)
    entries = _entries(source)
    (drive / "a.md").unlink()
    with pytest.raises(SourceError) as caught:
        source.load(entries["rclone://kb/a.md"])
    assert caught.value.code == GONE
    (drive / "b.md").write_text("y" * (1024 * 1024 + 1))
    with pytest.raises(SourceError) as large:
        source.load(entries["rclone://kb/b.md"])
    assert large.value.code == "too_large"
    listing = source.listing()
    assert list(listing) == []
    assert [failure.code for failure in listing.failures] == ["too_large"]


@needs_rclone
@pytest.mark.parametrize(("remote", "code"), [("nowhere:", "unreadable"), ("drive:no/such", "not_found")])
def test_listing__of_what_does_not_exist_is_a_failure(remote: str, code: str, drive: Path, opened: Any) -> None:
    listing = _open(opened, remote).listing()
    assert list(listing) == []
    assert [failure.code for failure in listing.failures] == [code]
    assert listing.refusal_to_prune(["rclone://kb/a.md"]) is not None


@pytest.mark.parametrize("remote", [":webdav,url='http://x':", "a,pass=b:", "-x:", "/folder", ":local:/etc"])
def test_remote__that_is_described_in_place_is_refused(remote: str, opened: Any) -> None:
    with pytest.raises(RequestError, match="remote"):
        _open(opened, remote)


def test_spec__without_readers_is_refused(opened: Any) -> None:
    with pytest.raises(RequestError, match="name the readers: acl, or permissions"):
        opened(kind="rclone", name="kb", remote="drive:")


def test_source__without_rclone_says_how_to_install_it(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"install it from rclone\.org, or apt-get install rclone"):
        _open(opened)


@needs_rclone
@pytest.mark.parametrize("protocol", ["webdav", "sftp"])
def test_server__is_followed_from_pass_to_pass(
    protocol: str, drive: Path, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put(drive, {"hr/leave.md": "Thirty days."})
    password = subprocess.run(
        ["rclone", "obscure", "secret"], check=True, capture_output=True, text=True
    ).stdout.strip()
    with _serve(protocol, drive, "--user=ann", "--pass=secret") as port:
        sections = {
            "webdav": f"type = webdav\nurl = http://127.0.0.1:{port}\nvendor = other",
            "sftp": f"type = sftp\nhost = 127.0.0.1\nport = {port}\nshell_type = none",
        }
        config = tmp_path / "client.conf"
        section = f"[files]\n{sections[protocol]}\nuser = ann\npass = {password}\n"
        config.write_text(section)
        monkeypatch.setenv("RCLONE_CONFIG", str(config))
        source = _open(opened, "files:hr")
        entries = _entries(source)
        assert source.load(entries["rclone://kb/leave.md"]).data == b"Thirty days."
        _put(drive, {"hr/new.md": "x"})
        assert _entries(source).keys() == {"rclone://kb/leave.md", "rclone://kb/new.md"}
        (drive / "hr" / "leave.md").unlink()
        assert _entries(source).keys() == {"rclone://kb/new.md"}
        config.write_text(section.replace("user = ann", "user = bob"))
        listing = source.listing()
        assert list(listing) == []
        assert [failure.code for failure in listing.failures] == ["no_permission"]
    listing = source.listing()
    assert list(listing) == []
    assert not listing.complete


# Permissions as rclone writes them into the metadata of a file, in the forms of Google Drive and Microsoft Graph.
@pytest.mark.parametrize("case", DRIVE, ids=lambda case: case["case"])
def test_read_principals__maps_what_the_drive_says(case: dict[str, Any]) -> None:
    assert sorted(read_principals("a.md", json.dumps(case["permissions"]))) == case["principals"]


def test_read_principals__of_something_else_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"a\.md has permissions that cannot be read"):
        read_principals("a.md", '{"type": "user"')


@pytest.fixture
def recorded_rclone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of rclone 1.68 that writes a recorded listing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "rclone"
    features = '{"Hashes": [], "Features": {}}'
    cases = f"*version*) echo rclone v1.68.2;; *features*) echo '{features}';; *lsjson*) cat {tmp_path}/listing;;"
    program.write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "listing"


def _record(listing: Path, *files: tuple[str, list[dict[str, Any]] | None]) -> None:
    items = [
        json.dumps({
            "Path": path, "Size": 3, "ModTime": "2026-03-01T12:00:00Z",
            **({} if permissions is None else {"Metadata": {"permissions": json.dumps(permissions)}}),
        })
        for path, permissions in files
    ]  # fmt: skip
    listing.write_text("[\n" + ",\n".join(items) + "\n]\n")


def test_feed__has_the_readers_of_each_file(recorded_rclone: Path) -> None:
    user = {"type": "user", "emailAddress": "Ann@example.org", "role": "owner"}
    _record(recorded_rclone, ("hr/a.md", [user]), ("hr/b.md", []), ("hr/c.md", None))
    feed = read_feed(validate_feed({"kind": "rclone", "name": "kb", "remote": "drive:"}), IngestionSettings())
    assert feed.resolve() == {
        "rclone://kb/hr/a.md": ("user:ann@example.org",),
        "rclone://kb/hr/b.md": (),
        "rclone://kb/hr/c.md": (),
    }


def test_feed__of_two_files_with_one_name_has_the_readers_of_both(recorded_rclone: Path, opened: Any) -> None:
    ann, ben = ({"type": "user", "emailAddress": f"{name}@example.org", "role": "reader"} for name in ("ann", "ben"))
    _record(recorded_rclone, ("a.md", [ann, ben]), ("a.md", [ben]), ("b.md", [ann]), ("b.md", []))
    feed = read_feed(validate_feed({"kind": "rclone", "name": "kb", "remote": "drive:"}), IngestionSettings())
    assert feed.resolve() == {"rclone://kb/a.md": ("user:ben@example.org",), "rclone://kb/b.md": ()}
    listing = _open(opened).listing()
    assert [entry.source for entry in listing] == ["rclone://kb/a.md", "rclone://kb/b.md"]
    assert listing.complete, listing.failures


def test_feed__of_a_backend_without_permissions_is_refused(recorded_rclone: Path) -> None:
    _record(recorded_rclone, ("a.md", None), ("b.md", None))
    with pytest.raises(SourceError, match="reports no permissions of drive:: give acl"):
        read_feed(validate_feed({"kind": "rclone", "name": "kb", "remote": "drive:"}), IngestionSettings())


@needs_rclone
def test_feed__needs_a_version_that_reads_permissions(tmp_path: Path, recorded_rclone: Path) -> None:
    program = tmp_path / "bin" / "rclone"
    program.write_text(program.read_text().replace("v1.68.2", "v1.60.1-DEV"))
    with pytest.raises(
        ConfigError, match=r"a permission feed of kind rclone needs rclone 1\.66 or newer, this is 1\.60"
    ):
        read_feed(validate_feed({"kind": "rclone", "name": "kb", "remote": "drive:"}), IngestionSettings())
