"""A folder, or one file, as a source."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.values import Switch
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.files import (
    failure_at,
    from_locator,
    printable_name,
    read_file,
    to_locator,
    unreadable,
)
from kosmos_rag.ingestion.sources.gitignore import IgnoreFiles, Patterns
from kosmos_rag.ingestion.sources.listing import Entry, Listing
from kosmos_rag.ingestion.sources.spec import DocumentOptions, SourcePath

IGNORE_FILE = ".kosmosignore"


class FolderSpec(DocumentOptions):
    """A folder or file, with patterns of files.

    `include` and `exclude` are patterns as in a .gitignore.
    """

    kind: Literal["folder"] = "folder"
    path: SourcePath
    include: tuple[str, ...] = ()
    """Empty: all files."""
    exclude: tuple[str, ...] = ()
    gitignore: Switch = False
    """Heed .gitignore as well as .kosmosignore."""


class FolderSource:
    """The regular files under a folder.

    Hidden ones are skipped, links to files followed, links to folders not.
    """

    def __init__(self, spec: FolderSpec, settings: IngestionSettings) -> None:
        """Compile the patterns; raises RequestError if one is malformed."""
        self._spec = spec
        self._max_bytes = settings.max_file_bytes
        self._patterns = Patterns(spec.include, spec.exclude)

    def listing(self) -> Listing:
        """Start a listing, in the order of the names."""
        # .kosmosignore comes first, so it may override .gitignore.
        names = (IGNORE_FILE, ".gitignore") if self._spec.gitignore else (IGNORE_FILE,)
        ignore_files = IgnoreFiles(self._spec.path, names)
        return Listing(
            printable_name(self._spec.path),
            self._entries(ignore_files),
            lambda source: self._covers(source, ignore_files),
            prefix=self._prefix,
        )

    def load(self, entry: Entry) -> SourceDocument:
        """Read the file of an entry. Raises SourceError."""
        path = from_locator(dict(entry.locator))
        return self._spec.document(entry.source, read_file(path, max_bytes=self._max_bytes))

    def _covers(self, source: str, ignore_files: IgnoreFiles) -> bool:
        """Return whether a stored document disappeared from the folder.

        The disk is checked again: a file that was not walked (behind a link, hidden, new) may still exist. What the
        patterns exclude may belong to another source.
        """
        if not source.startswith(self._prefix) or not self._spec.path.is_dir():
            return False
        return not os.path.lexists(source) or self._is_ignored(source.removeprefix(self._prefix), ignore_files)

    @property
    def _prefix(self) -> str:
        return printable_name(self._spec.path).rstrip("/") + "/"

    def _is_ignored(self, path: str, ignore_files: IgnoreFiles) -> bool:
        parts = path.split("/")
        folders = ("/".join(parts[:length]) for length in range(1, len(parts)))
        try:
            return any(ignore_files.is_ignored(folder, folder=True) for folder in folders) or ignore_files.is_ignored(
                path, folder=False
            )
        except SourceError:
            return False

    def _entries(self, ignore_files: IgnoreFiles) -> Iterator[Entry | IngestFailure]:
        try:
            is_folder = stat.S_ISDIR(self._spec.path.stat().st_mode)
        except (OSError, ValueError) as error:
            yield failure_at(self._spec.path, unreadable(self._spec.path, error))
            return
        if is_folder:
            yield from self._walk(ignore_files)
        else:
            yield self._entry(self._spec.path)

    def _walk(self, ignore_files: IgnoreFiles) -> Iterator[Entry | IngestFailure]:
        # Iterative: os.walk is recursive, and a thousand levels raise RecursionError.
        pending = [os.fspath(self._spec.path)]
        while pending:
            folder = pending.pop()
            try:
                subfolders, files = _list_folder(folder)
                kept_folders, kept_files = self._admit(folder, subfolders, files, ignore_files)
            except OSError as error:
                yield failure_at(Path(folder), unreadable(Path(folder), error))
            except SourceError as error:
                yield failure_at(Path(folder), error)
            else:
                yield from (self._entry(Path(folder, name)) for name in kept_files)
                inner = (os.path.join(folder, name) for name in reversed(kept_folders))  # noqa: PTH118 — a million of them
                pending += [path for path in inner if not os.path.islink(path)]  # noqa: PTH114

    def _admit(
        self, folder: str, subfolders: list[str], files: list[str], ignore_files: IgnoreFiles
    ) -> tuple[list[str], list[str]]:
        """Return the subfolders to walk and the files to list, in order.

        Raises SourceError.
        """
        prefix = "" if (relative := os.path.relpath(folder, self._spec.path)) == "." else f"{relative}/"
        ignore_files.load_rules(prefix.rstrip("/"))

        def admit(name: str, *, folder: bool) -> bool:
            path = prefix + name
            return (
                not name.startswith(".")
                and self._patterns.admit(path, folder=folder)
                and not ignore_files.is_ignored(path, folder=folder)
            )

        return (
            sorted(name for name in subfolders if admit(name, folder=True)),
            sorted(name for name in files if admit(name, folder=False)),
        )

    def _entry(self, path: Path) -> Entry:
        try:
            state = path.stat()
            etag = self._spec.compute_etag(state.st_mtime_ns, state.st_ctime_ns, state.st_size)
        except (OSError, ValueError):
            etag = None  # `load` tells what is wrong with it
        return Entry(source=printable_name(path), etag=etag, locator=to_locator(path))


def _list_folder(folder: str) -> tuple[list[str], list[str]]:
    """Return the names of the folders and of all other entries.

    Links to folders are folders. Raises OSError.
    """
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            (folders if _is_folder(entry) else files).append(entry.name)
    return folders, files


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circular link
        return False
