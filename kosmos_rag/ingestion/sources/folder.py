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
    """Which files are taken.

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

    Hidden ones are passed over, links to files followed, links to folders not.
    """

    def __init__(self, spec: FolderSpec, settings: IngestionSettings) -> None:
        """Raises RequestError where a pattern of the spec cannot be read."""
        self._spec = spec
        self._max_bytes = settings.max_file_bytes
        self._patterns = Patterns(spec.include, spec.exclude)

    def listing(self) -> Listing:
        """Start a walk, in the order of the names."""
        # Both names: .kosmosignore is asked first, so it may take back what .gitignore says.
        names = (IGNORE_FILE, ".gitignore") if self._spec.gitignore else (IGNORE_FILE,)
        ignoring = IgnoreFiles(self._spec.path, names)
        return Listing(
            printable_name(self._spec.path),
            self._found(ignoring),
            lambda source: self._covers(source, ignoring),
            prefix=self._prefix,
        )

    def load(self, entry: Entry) -> SourceDocument:
        """Read the file of an entry. Raises SourceError."""
        path = from_locator(dict(entry.locator))
        return self._spec.document(entry.source, read_file(path, max_bytes=self._max_bytes))

    def _covers(self, source: str, ignoring: IgnoreFiles) -> bool:
        """Whether a stored document was of this folder and is no longer.

        The disk is asked again: what was not walked (behind a link, hidden, made a moment ago) may be there all the
        same. What the patterns leave out may be another source's.
        """
        if not source.startswith(self._prefix) or not self._spec.path.is_dir():
            return False
        return not os.path.lexists(source) or self._is_ignored(source.removeprefix(self._prefix), ignoring)

    @property
    def _prefix(self) -> str:
        return printable_name(self._spec.path).rstrip("/") + "/"

    def _is_ignored(self, path: str, ignoring: IgnoreFiles) -> bool:
        parts = path.split("/")
        folders = ("/".join(parts[:length]) for length in range(1, len(parts)))
        try:
            return any(ignoring.ignore(folder, folder=True) for folder in folders) or ignoring.ignore(
                path, folder=False
            )
        except SourceError:
            return False

    def _found(self, ignoring: IgnoreFiles) -> Iterator[Entry | IngestFailure]:
        try:
            is_folder = stat.S_ISDIR(self._spec.path.stat().st_mode)
        except (OSError, ValueError) as error:
            yield failure_at(self._spec.path, unreadable(self._spec.path, error))
            return
        if is_folder:
            yield from self._walk(ignoring)
        else:
            yield self._entry(self._spec.path)

    def _walk(self, ignoring: IgnoreFiles) -> Iterator[Entry | IngestFailure]:
        # By hand: os.walk calls itself for each level, and a thousand of them are a RecursionError.
        waiting = [os.fspath(self._spec.path)]
        while waiting:
            folder = waiting.pop()
            try:
                subfolders, files = _content(folder)
                kept, taken = self._admitted(folder, subfolders, files, ignoring)
            except OSError as error:
                yield failure_at(Path(folder), unreadable(Path(folder), error))
            except SourceError as error:
                yield failure_at(Path(folder), error)
            else:
                yield from (self._entry(Path(folder, name)) for name in taken)
                inner = (os.path.join(folder, name) for name in reversed(kept))  # noqa: PTH118 — a million of them
                waiting += [path for path in inner if not os.path.islink(path)]  # noqa: PTH114

    def _admitted(
        self, folder: str, subfolders: list[str], files: list[str], ignoring: IgnoreFiles
    ) -> tuple[list[str], list[str]]:
        """Return the subfolders to walk and the files to take, in order.

        Raises SourceError.
        """
        prefix = "" if (relative := os.path.relpath(folder, self._spec.path)) == "." else f"{relative}/"
        ignoring.enter(prefix.rstrip("/"))

        def admit(name: str, *, folder: bool) -> bool:
            path = prefix + name
            return (
                not name.startswith(".")
                and self._patterns.admit(path, folder=folder)
                and not ignoring.ignore(path, folder=folder)
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


def _content(folder: str) -> tuple[list[str], list[str]]:
    """Return the names of the folders in a folder, links to folders among them, and of all else. Raises OSError."""
    folders: list[str] = []
    others: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            (folders if _is_folder(entry) else others).append(entry.name)
    return folders, others


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle
        return False
