"""A folder, or one file, as a source."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import GONE, SourceError
from kosmos_rag.core.section import Switch
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.files import (
    attach_content,
    from_locator,
    read_or_open,
    to_locator,
    unreadable_error,
)
from kosmos_rag.ingestion.sources.gitignore import IgnoreFiles, Patterns
from kosmos_rag.ingestion.sources.listing import Entry, Listing, build_failure, drop_duplicates
from kosmos_rag.ingestion.sources.names import FileNames, RootName
from kosmos_rag.ingestion.sources.spec import DocumentOptions, SourcePath

IGNORE_FILE = ".kosmosignore"


class FolderSpec(DocumentOptions):
    """A folder or file, with patterns of files.

    `include` and `exclude` are patterns as in a .gitignore.
    """

    kind: Literal["folder"] = "folder"
    path: SourcePath
    root: RootName | None = None
    """What the names of the documents begin with; None: the name of the folder."""
    include: tuple[str, ...] = ()
    """Empty: all files."""
    exclude: tuple[str, ...] = ()
    gitignore: Switch = False
    """Follow .gitignore as well as .kosmosignore."""
    follow_external_links: Switch = False
    """Take files that a link of the folder names outside of it."""


class FolderSource:
    """The regular files under a folder.

    Hidden ones are skipped, links to files followed, links to folders not.
    """

    def __init__(self, spec: FolderSpec, settings: IngestionSettings) -> None:
        """Compile the patterns.

        Raises RequestError if one is malformed, or if the folder has no name.
        """
        self._spec = spec
        self._names = FileNames(spec.path, spec.root)
        self._path = self._names.path
        self._settings = settings
        self._patterns = Patterns(spec.include, spec.exclude)

    @property
    def prefix(self) -> str:
        """Prefix of the names of the documents; empty for none."""
        return self._names.prefix

    def listing(self) -> Listing:
        """Start a listing, in the order of the names."""
        # .kosmosignore comes first, so it may override .gitignore.
        names = (IGNORE_FILE, ".gitignore") if self._spec.gitignore else (IGNORE_FILE,)
        ignore_files = IgnoreFiles(self._path, names, self._names.to_name)
        return Listing(
            self._names.title,
            drop_duplicates(self._entries(ignore_files)),
            lambda source: self._covers(source, ignore_files),
            prefix=self._names.prefix,
        )

    def load(self, entry: Entry) -> SourceDocument:
        """Read the file of an entry. Raises SourceError."""
        path = from_locator(dict(entry.locator))
        if self._names.to_name(path) != entry.source:
            raise SourceError("not_found", f"{entry.source} was listed under another root; list the source again")
        if self._is_external(path):
            raise SourceError(
                "refused",
                f"{entry.source} is behind a link that leaves {self._names.title}; "
                "copy the file into the folder, or set follow_external_links",
            )
        try:
            content = read_or_open(path, entry.source, self._settings)
        except SourceError as error:
            if error.code == "not_found" and not os.path.lexists(path):
                raise SourceError(GONE, f"{entry.source} was removed after it was listed") from error
            raise
        return attach_content(self._spec.document(entry.source, b""), content)

    def _covers(self, source: str, ignore_files: IgnoreFiles) -> bool:
        """Return whether a stored document disappeared from the folder.

        The disk is checked again: a file that was not walked (behind a link, hidden, new) may still exist. What the
        patterns exclude may belong to another source.
        """
        path = self._names.to_path(source)
        if path is None or not self._path.is_dir():
            return False
        if not os.path.lexists(path) or (path.is_symlink() and self._is_external(path)):
            return True
        return self._is_ignored(source.removeprefix(self._names.prefix), ignore_files)

    def _is_external(self, path: Path) -> bool:
        """Whether a link leads from a path out of the folder.

        The queue keeps entries: a file may have become a link since it was listed.
        """
        if self._spec.follow_external_links or path == self._path:
            return False
        try:
            root, target = os.path.realpath(self._path), os.path.realpath(path)
        except (OSError, ValueError):
            return False  # reading it raises the error
        return os.path.commonpath([root, target]) != root

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
            is_folder = stat.S_ISDIR(self._path.stat().st_mode)
        except (OSError, ValueError) as error:
            name = self._names.to_name(self._path)
            yield build_failure(name, unreadable_error(name, error))
            return
        yield from self._walk(ignore_files) if is_folder else [self._entry(self._path)]

    def _walk(self, ignore_files: IgnoreFiles) -> Iterator[Entry | IngestFailure]:
        # Iterative: os.walk is recursive, and a thousand levels raise RecursionError.
        root = os.fspath(self._path)
        pending = [root]
        while pending:
            folder = pending.pop()
            try:
                subfolders, files = _list_folder(folder)
                kept_folders, kept_files = self._admit(folder, subfolders, files, ignore_files)
            except OSError as error:
                if folder == root or os.path.lexists(folder):
                    name = self._name_of_folder(folder)
                    yield build_failure(name, unreadable_error(name, error))
            except SourceError as error:
                yield build_failure(self._name_of_folder(folder), error)
            else:
                yield from self._file_entries(Path(folder, name) for name in kept_files)
                inner = (os.path.join(folder, name) for name in reversed(kept_folders))  # noqa: PTH118 — a million of them
                pending += [path for path in inner if not os.path.islink(path)]  # noqa: PTH114

    def _file_entries(self, paths: Iterable[Path]) -> Iterator[Entry]:
        """Yield the entries of listed files.

        Links out of the folder and files that were removed meanwhile are left out.
        """
        for path in paths:
            if path.is_symlink() and self._is_external(path):
                continue
            entry = self._entry(path)
            if entry.etag is not None or os.path.lexists(path):
                yield entry

    def _admit(
        self, folder: str, subfolders: list[str], files: list[str], ignore_files: IgnoreFiles
    ) -> tuple[list[str], list[str]]:
        """Return the subfolders to walk and the files to list, in order.

        Raises SourceError.
        """
        prefix = "" if (relative := os.path.relpath(folder, self._path)) == "." else f"{relative}/"
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
            etag = self._compute_etag(path.stat())
        except (OSError, ValueError):
            etag = None  # `load` reports what is wrong with it
        return Entry(source=self._names.to_name(path), etag=etag, locator=to_locator(path))

    def _compute_etag(self, state: os.stat_result) -> str:
        return self._spec.compute_etag(state.st_mtime_ns, state.st_ctime_ns, state.st_size)

    def _name_of_folder(self, folder: str) -> str:
        return self._names.title if folder == os.fspath(self._path) else self._names.to_name(folder)


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
