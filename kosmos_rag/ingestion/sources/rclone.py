"""Files of a remote of rclone as a source, such as Google Drive or SFTP."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import GONE, ConfigError, SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.parts import may_have_parts
from kosmos_rag.ingestion.sources.files import attach_content, read_content, too_large_error
from kosmos_rag.ingestion.sources.gitignore import Patterns
from kosmos_rag.ingestion.sources.listing import Entry, Listing, drop_duplicates
from kosmos_rag.ingestion.sources.programs import (
    Program,
    ProgramFailed,
    inherited_environment,
    read_blocks,
    read_records,
)
from kosmos_rag.ingestion.sources.spec import Name, NamedReaders, Remote

SILENCE_S = 1800.0
"""Seconds without output after which rclone is ended: it repeats requests that a server does not answer itself."""

_OLDEST = (1, 60)
_MISSING = (3, 4)
_FORBIDDEN = (
    "401", "403", "accessdenied", "access denied", "invalid_grant", "unauthorized", "unable to authenticate",
    "permission denied", "couldn't fetch token", "token expired",
)  # fmt: skip


class RcloneSpec(NamedReaders):
    """A remote and a path in it.

    rclone's own configuration has addresses and credentials.
    """

    kind: Literal["rclone"] = "rclone"
    name: Name
    """Begins the names of the documents: `rclone://name/path`."""
    remote: Remote
    include: tuple[str, ...] = ()
    """Patterns as in a .gitignore; empty: all files."""
    exclude: tuple[str, ...] = ()


class RcloneSource:
    """The files of a remote. Each pass lists them; an unchanged file is not read."""

    def __init__(self, spec: RcloneSpec, settings: IngestionSettings) -> None:
        """Compile the patterns and find rclone; nothing is listed yet.

        Raises RequestError if a pattern is malformed, ConfigError if rclone is missing or too old.
        """
        self._spec = spec
        self._patterns = Patterns(spec.include, spec.exclude)
        self._settings = settings
        self._prefix = f"rclone://{spec.name}/"
        self._rclone = Rclone(spec.remote)

    def listing(self) -> Listing:
        """Start a listing, in the order of rclone."""
        entries = drop_duplicates(self._entries(), allow_in=self._prefix)
        return Listing(self._prefix, entries, self._covers, prefix=self._prefix)

    def load(self, entry: Entry) -> SourceDocument:
        """Read the file of an entry. Raises SourceError."""
        content = self._rclone.read(entry.locator["path"], entry.source, self._settings)
        if not content and entry.locator.get("size", 0) > 0:  # as rclone reads an object of S3 that does not exist
            raise SourceError(GONE, f"{entry.source} was removed after it was listed")
        document = self._spec.document(entry.source, b"", metadata={"updated": entry.locator["modified"]})
        return attach_content(document, content)

    def _covers(self, source: str) -> bool:
        path = source.removeprefix(self._prefix)
        return path != source and self._patterns.admit(path, folder=False)

    def _entries(self) -> Iterator[Entry | IngestFailure]:
        for item in self._rclone.list_files(hashes=True):
            path = item["Path"]
            if not self._patterns.admit(path, folder=False):
                continue
            name = self._prefix + path
            if item["Size"] > self._settings.max_file_bytes and not may_have_parts(name):
                error = too_large_error(one_line(name), self._settings.max_file_bytes)
                yield IngestFailure(source=name, code=error.code, message=str(error))
                continue
            hashes = sorted(item.get("Hashes", {}).items())
            etag = self._spec.compute_etag(hashes or item["ModTime"], item["Size"], item.get("ID"))
            yield Entry(
                source=name, etag=etag, locator={"path": path, "modified": item["ModTime"], "size": item["Size"]}
            )


class Rclone:
    """rclone for one remote. Thread-safe."""

    def __init__(
        self, remote: str, *, oldest: tuple[int, int] = _OLDEST, reason: str = "a source of kind rclone"
    ) -> None:
        """Find rclone and check its version. Raises ConfigError.

        Args:
            remote: `name:path`.
            oldest: oldest version that will do.
            reason: what needs that version, for the message.
        """
        self._remote = remote
        self._title = one_line(remote)
        install = "install it from rclone.org, or apt-get install rclone"
        self._rclone = Program(
            "rclone",
            install=install,
            arguments=("--ask-password=false", "--log-level=ERROR", "--retries=2", "--low-level-retries=3"),
            environment=inherited_environment(
                frozenset(),
                RCLONE_DRIVE_METADATA_PERMISSIONS="read",
                RCLONE_ONEDRIVE_METADATA_PERMISSIONS="read",
            ),
        )
        version = self._find_version()
        if version < oldest:
            oldest_name, name = (".".join(map(str, numbers)) for numbers in (oldest, version))
            raise ConfigError(f"{reason} needs rclone {oldest_name} or newer, this is {name}: {install}")

    def list_files(self, *, hashes: bool = False, metadata: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the files of the remote as `rclone lsjson` describes them, without holding all.

        Raises SourceError.

        Args:
            hashes: with hashes, where the backend has them without reading its files.
            metadata: with metadata, where the backend has any.
        """
        options = ["--recursive", "--files-only", "--no-mimetype"]
        if hashes and self._has_fast_hashes():
            options.append("--hash")
        if metadata:
            options.append("--metadata")
        with (
            self._translate_errors(),
            # A worker waits for each entry by itself.
            self._rclone.stream("lsjson", *options, self._remote, silence_s=SILENCE_S, longest_s=math.inf) as output,
        ):
            for line in read_records(output, b"\n"):
                if (item := line.strip().rstrip(b",")) not in (b"", b"[", b"]"):
                    yield json.loads(item)

    def read(self, path: str, name: str, settings: IngestionSettings) -> bytes | BinaryIO:
        """Return the content of a file, as `read_content` does.

        Raises SourceError, with the name in its message.
        """
        location = f"{self._remote.rstrip('/')}{'' if self._remote.endswith((':', '/')) else '/'}{path}"
        try:
            with self._rclone.stream("cat", location, silence_s=SILENCE_S) as output:
                return read_content(read_blocks(output), name, settings)
        except ProgramFailed as error:
            if error.code in _MISSING or "not found" in error.output:
                raise SourceError(GONE, f"{name} was removed after it was listed") from error
            raise _refusal(name, error) from error

    def _find_version(self) -> tuple[int, int]:
        try:
            words = self._rclone.run("version", silence_s=SILENCE_S).decode("utf-8", "replace").split()
            major, minor = words[1].lstrip("v").split(".")[:2]
            return int(major), int(minor)
        except (ProgramFailed, IndexError, ValueError) as error:
            raise ConfigError(f"rclone does not report its version: {error}; check its installation") from error

    def _has_fast_hashes(self) -> bool:
        with self._translate_errors():
            described = json.loads(self._rclone.run("backend", "features", self._remote, silence_s=SILENCE_S))
        return bool(described["Hashes"]) and not described["Features"].get("SlowHash", False)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except ProgramFailed as error:
            raise _refusal(self._title, error) from error


def _refusal(name: str, error: ProgramFailed) -> SourceError:
    output = error.output.lower()
    if "didn't find section in config file" in output or "didn't find backend" in output:
        return SourceError("unreadable", f"rclone has no remote for {name} ({error}); configure it: rclone config")
    if any(words in output for words in _FORBIDDEN):
        return SourceError(
            "no_permission", f"{name} may not be read ({error}); renew its credentials: rclone config reconnect"
        )
    if error.code in _MISSING:
        return SourceError("not_found", f"{name} does not exist ({error}); check remote")
    return SourceError("unavailable", f"{name} cannot be read: {error}; try again later")
