"""Places that hold one large file of rows: a folder, a bucket, a repository, a remote of rclone, an upload."""

import hashlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import SourceDocument, Tenant
from tests.integration.worker.working import Work
from tests.s3_server import serve_s3
from tests.unit.ingestion.sources.test_git import Work as Repository

FILE = "orders.csv"


class Place(ABC):
    """A place that passes read again and again."""

    prefix: str
    """What the names of its documents begin with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        """Name of the document of the file."""
        return f"{self.prefix}{FILE}"

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Create a file or replace it."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file."""

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """Return the spec of the source."""

    def run(self, scope: Tenant, work: Work, **options: Any) -> None:
        """Read the place with a worker."""
        scope.jobs.enqueue({**self.spec(), **options})
        work()

    def close(self) -> None:  # noqa: B027 — most have nothing to end
        """End what was started for the place."""


class FolderPlace(Place):
    """A folder."""

    prefix = "kb/"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "kb"
        self.path.mkdir()

    def put(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def spec(self) -> dict[str, Any]:
        return {"kind": "folder", "path": str(self.path)}


class RclonePlace(FolderPlace):
    """A folder behind an alias of rclone."""

    prefix = "rclone://kb/"

    def spec(self) -> dict[str, Any]:
        if shutil.which("rclone") is None:
            pytest.skip("rclone is not installed")
        (self.folder / "rclone.conf").write_text(f"[drive]\ntype = alias\nremote = {self.path}\n")
        os.environ["RCLONE_CONFIG"] = str(self.folder / "rclone.conf")
        return {"kind": "rclone", "name": "kb", "remote": "drive:", "acl": ["everyone"]}


class GitPlace(Place):
    """Commits of a repository."""

    prefix = "git://kb/"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if shutil.which("git") is None:
            pytest.skip("git is not installed")
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        self.work = Repository(folder / "kb")

    def put(self, name: str, data: bytes) -> None:
        path = self.work.folder / name
        if not path.exists() or path.read_bytes() != data:
            self.work.commit({name: data})

    def remove(self, name: str) -> None:
        (self.work.folder / name).unlink()
        self.work.git("add", "--all")
        self.work.git("commit", "--quiet", "--message", "remove")

    def spec(self) -> dict[str, Any]:
        return {"kind": "git", "name": "kb", "url": str(self.work.folder)}


class BucketPlace(Place):
    """A bucket of a server of the S3 protocol."""

    prefix = "s3://acme-kb/docs/"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import boto3

        self.server = ExitStack()
        self.endpoint = self.server.enter_context(serve_s3())
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
        os.environ.update(keys)
        self.bucket = boto3.resource("s3", endpoint_url=self.endpoint).Bucket("acme-kb")
        self.bucket.create()

    def put(self, name: str, data: bytes) -> None:
        self.bucket.put_object(Key=f"docs/{name}", Body=data)

    def remove(self, name: str) -> None:
        self.bucket.Object(f"docs/{name}").delete()

    def spec(self) -> dict[str, Any]:
        return {"kind": "s3", "bucket": "acme-kb", "prefix": "docs/", "endpoint_url": self.endpoint}

    def close(self) -> None:
        self.bucket.objects.all().delete()
        self.bucket.delete()
        self.server.close()


class UploadPlace(Place):
    """Uploads, as the service and the console store them."""

    prefix = ""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def remove(self, name: str) -> None:
        raise NotImplementedError("an upload is no source that can be read again")

    def spec(self) -> dict[str, Any]:
        raise NotImplementedError("an upload has no spec")

    def run(self, scope: Tenant, work: Work, **options: Any) -> None:
        """Upload all files, and ingest them with a worker."""
        for name, data in self.files.items():
            writer = scope.uploads.open()
            writer.write(data)
            upload = writer.finish()
            assert upload.sha256 == hashlib.sha256(data).hexdigest()
            scope.uploads.enqueue(SourceDocument(source=name, data=b"", **options), upload, named_by_file=True)
        work()


PLACES: dict[str, Callable[[Path], Place]] = {
    "folder": FolderPlace,
    "git": GitPlace,
    "rclone": RclonePlace,
    "s3": BucketPlace,
}
