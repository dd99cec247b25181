"""Files of a real OpenSSH, by rclone and git, and of a server of the S3 protocol, by rclone."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.errors import GONE, SourceError
from tests.s3_server import serve_s3

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")
pytestmark = pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[int]:
    """The port of an OpenSSH server that takes the key `client` of this user."""
    if SSHD is None:
        pytest.skip("openssh-server is not installed")
    for name in ("host", "client", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host_key = (tmp_path / "host.pub").read_text()
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (tmp_path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/client.pub\n"
        f"PidFile {tmp_path}/pid\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
        "Subsystem sftp internal-sftp\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd requires this folder of root
    command = [SSHD, "-D", "-f", str(tmp_path / "sshd_config"), "-E", str(tmp_path / "sshd.log")]
    with subprocess.Popen(command) as process:
        _wait_for(port)
        yield port
        process.terminate()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client's view of an empty bucket; its server is `bucket.meta.client.meta.endpoint_url`."""
    import boto3

    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    with serve_s3() as address:
        result = boto3.resource("s3", endpoint_url=address, **keys).Bucket("documents")
        result.create()
        yield result


def _wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the server does not listen")


def _open(opened: Any, remote: str) -> Any:
    return opened(kind="rclone", name="kb", remote=remote, acl=["hr"])


def _etags(source: Any) -> dict[str, str | None]:
    listing = source.listing()
    etags = {entry.source: entry.etag for entry in listing}
    assert listing.complete, listing.failures
    return etags


def _failure(source: Any) -> tuple[str, str]:
    listing = source.listing()
    assert list(listing) == []
    assert not listing.complete
    [failure] = listing.failures
    return failure.code, failure.message


def test_openssh__is_followed_from_pass_to_pass(
    sshd: int, tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "drive" / "hr ü"
    folder.mkdir(parents=True)
    (folder / "leave [1].md").write_text("Thirty days.")
    (folder / "pay.md").write_text("On the first.")
    config = tmp_path / "rclone.conf"
    section = (
        f"[files]\ntype = sftp\nhost = 127.0.0.1\nport = {sshd}\nuser = {getpass.getuser()}\n"
        f"key_file = {tmp_path}/client\nknown_hosts_file = {tmp_path}/known_hosts\n"
    )
    config.write_text(section)
    monkeypatch.setenv("RCLONE_CONFIG", str(config))
    source = _open(opened, f"files:{tmp_path}/drive")
    first = _etags(source)
    assert first.keys() == {"rclone://kb/hr ü/leave [1].md", "rclone://kb/hr ü/pay.md"}
    assert _etags(_open(opened, f"files:{tmp_path}/drive")) == first
    entries = {entry.source: entry for entry in source.listing()}
    assert source.load(entries["rclone://kb/hr ü/leave [1].md"]).data == b"Thirty days."

    (folder / "pay.md").write_text("On the second.")
    (folder / "leave [1].md").unlink()
    second = _etags(source)
    assert second.keys() == {"rclone://kb/hr ü/pay.md"}
    assert second["rclone://kb/hr ü/pay.md"] != first["rclone://kb/hr ü/pay.md"]
    with pytest.raises(SourceError) as caught:
        source.load(entries["rclone://kb/hr ü/leave [1].md"])
    assert caught.value.code == GONE

    config.write_text(section.replace(f"{tmp_path}/client", f"{tmp_path}/stranger"))
    code, message = _failure(source)
    assert code == "no_permission"
    assert "renew its credentials" in message
    config.write_text(section)
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{sshd} {(tmp_path / 'stranger.pub').read_text()}")
    code, message = _failure(source)
    assert "key mismatch" in message


def test_s3__is_followed_by_hashes(bucket: Any, tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)  # rclone refuses it together with a transport of its own
    endpoint = bucket.meta.client.meta.endpoint_url
    config = tmp_path / "rclone.conf"
    config.write_text(
        f"[store]\ntype = s3\nprovider = Other\nendpoint = {endpoint}\nregion = us-east-1\n"
        "access_key_id = test\nsecret_access_key = test\n"
    )
    monkeypatch.setenv("RCLONE_CONFIG", str(config))
    for key, text in {"hr/leave [1] ü.md": "Thirty days.", "hr/pay.md": "one", "it/b.md": "x"}.items():
        bucket.put_object(Key=key, Body=text.encode())
    source = _open(opened, "store:documents/hr")
    first = _etags(source)
    assert first.keys() == {"rclone://kb/leave [1] ü.md", "rclone://kb/pay.md"}
    entries = {entry.source: entry for entry in source.listing()}
    assert source.load(entries["rclone://kb/leave [1] ü.md"]).data == b"Thirty days."

    time.sleep(1.1)  # the store keeps times in seconds
    bucket.put_object(Key="hr/leave [1] ü.md", Body=b"Thirty days.")
    bucket.put_object(Key="hr/pay.md", Body=b"two")
    second = _etags(source)
    assert {name for name in first if first[name] != second[name]} == {"rclone://kb/pay.md"}
    bucket.Object("hr/pay.md").delete()
    assert _etags(source).keys() == {"rclone://kb/leave [1] ü.md"}
    with pytest.raises(SourceError) as caught:
        source.load(entries["rclone://kb/pay.md"])
    assert caught.value.code == GONE
    code, _ = _failure(_open(opened, "store:no-such-bucket"))
    assert code == "not_found"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_by_openssh__is_read_and_says_who_refuses(
    sshd: int, tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    work = tmp_path / "work"
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    work.mkdir()
    for arguments in (["init", "-q", "."], [*identity, "commit", "-q", "--allow-empty", "-m", "empty"]):
        subprocess.run(["git", "-C", work, *arguments], check=True)

    def open_repository(key: str, known_hosts: object) -> Any:
        options = f"-o UserKnownHostsFile={known_hosts} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
        monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F none -i {tmp_path / key} -o BatchMode=yes {options}")
        return opened(kind="git", name="kb", url=f"ssh://{getpass.getuser()}@127.0.0.1:{sshd}{work}")

    assert _etags(open_repository("client", tmp_path / "known_hosts")) == {}
    assert _failure(open_repository("stranger", tmp_path / "known_hosts"))[0] == "no_permission"
    code, message = _failure(open_repository("client", "/dev/null"))
    assert (code, "key of its host" in message) == ("no_permission", True)
