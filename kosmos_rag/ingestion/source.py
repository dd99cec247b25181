"""From paths to documents: what is under a path, and what is in a file. Failures are records, never exceptions."""

import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kosmos_rag.errors import SourceError
from kosmos_rag.records import IngestFailure, SourceDocument, are_names, is_text

MAX_SOURCE_CHARS = 2048
"""Longest name of a source; longer ones are refused, so that names stay fit for lists and logs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """A folder that was walked. `complete` is False where a part of it could not be read."""

    path: str
    complete: bool


@dataclass(kw_only=True, slots=True)
class Discovery:
    """What lies under the paths that were given."""

    files: list[Path] = field(default_factory=list)
    folders: list[Folder] = field(default_factory=list)
    failures: list[IngestFailure] = field(default_factory=list)


def name_of(path: Path) -> str:
    """Return the name under which a file is known: its absolute path. Bytes that are not UTF-8 are escaped."""
    return os.fsencode(Path(os.path.abspath(path))).decode("utf-8", "backslashreplace")  # noqa: PTH100 — resolve() would follow links


def discover(paths: Sequence[Path]) -> Discovery:
    """List the files under the paths, in order, each once. Hidden files and folders are passed over."""
    found = Discovery()
    for path in paths:
        try:
            if stat.S_ISDIR(path.stat().st_mode):
                _walk(path, found)
            else:
                found.files.append(path)
        except (OSError, ValueError) as error:
            found.failures.append(_failure(path, error))
    found.files = list({name_of(path): path for path in found.files}.values())
    return found


def _walk(root: Path, found: Discovery) -> None:
    failures = len(found.failures)

    def note(error: OSError) -> None:
        found.failures.append(_failure(Path(error.filename), error))

    for folder, subfolders, files in os.walk(root, onerror=note):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        found.files += [Path(folder, name) for name in sorted(files) if not name.startswith(".")]
    found.folders.append(Folder(path=name_of(root), complete=len(found.failures) == failures))


def load(path: Path, *, max_bytes: int) -> SourceDocument:
    """Read one file. Raises SourceError."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise SourceError("not_a_file", f"{name_of(path)} is not a regular file; give files or folders")
        if state.st_size > max_bytes:
            raise SourceError(
                "too_large",
                f"{name_of(path)} has {state.st_size:,} bytes, more than ingestion.max_file_mb allows "
                f"({max_bytes:,}); split the file or raise the limit",
            )
        return SourceDocument(source=name_of(path), data=path.read_bytes())
    except (OSError, ValueError) as error:
        failure = _failure(path, error)
        raise SourceError(failure.code, failure.message) from error


def check(document: SourceDocument, *, max_bytes: int) -> None:
    """Raise SourceError where a document given by the caller cannot be stored under its name, or is too large."""
    name = document.source
    if not is_text(name) or not name.strip() or len(name) > MAX_SOURCE_CHARS:
        raise SourceError(
            "unreadable",
            f"source name {str(name)[:60]!r} must be text of 1 to {MAX_SOURCE_CHARS} characters without NUL; rename it",
        )
    if not isinstance(document.data, bytes):
        raise SourceError("unreadable", f"data of {name!r} is {type(document.data).__name__}; give bytes")
    readers = document.readers
    if not readers or not are_names(readers):
        raise SourceError("unreadable", f"readers of {name!r} are {readers!r}; give at least one name, ('finance',)")
    try:
        json.dumps(
            [document.title, dict(document.metadata)], ensure_ascii=False, allow_nan=False, sort_keys=True
        ).encode()
    except (TypeError, ValueError) as error:
        raise SourceError(
            "unreadable",
            f"title or metadata of {document.source!r} cannot be stored as JSON ({error}); correct them",
        ) from error
    if len(document.data) > max_bytes:
        raise SourceError(
            "too_large",
            f"{document.source} has {len(document.data):,} bytes, more than ingestion.max_file_mb allows "
            f"({max_bytes:,}); split it or raise the limit",
        )


def missing_from(folder: Folder, stored: Iterable[str], seen: set[str]) -> list[str]:
    """Return the stored sources under a folder that are no longer in it.

    The disk is asked again: what was not walked (behind a link, hidden, made a moment ago) may be there all the same.
    """
    prefix = _prefix(folder)
    return [s for s in stored if s.startswith(prefix) and s not in seen and not os.path.lexists(s)]


def refusal_to_prune(folder: Folder, missing: Sequence[str], seen: set[str]) -> IngestFailure | None:
    """Return why documents missing from a folder should be kept all the same, or None.

    A folder that cannot be read to its end, or that is suddenly empty, is more likely a lost mount than a wish.
    """
    if not missing:
        return None
    kept = f"{len(missing)} documents from it were kept; remove them with `kosmos-rag delete` if that was meant"
    if not folder.complete:
        return IngestFailure(
            source=folder.path,
            code="unreadable",
            message=f"{folder.path} could not be read to its end; {kept}",
        )
    if not any(source.startswith(_prefix(folder)) for source in seen):
        return IngestFailure(
            source=folder.path, code="empty_folder", message=f"{folder.path} holds no file any more; {kept}"
        )
    return None


def _prefix(folder: Folder) -> str:
    return folder.path.rstrip("/") + "/"


def _failure(path: Path, error: OSError | ValueError) -> IngestFailure:
    """Describe why a path could not be read; ValueError is Python's word for a path that cannot exist."""
    name = name_of(path).replace("\x00", "\\x00")
    if isinstance(error, FileNotFoundError):
        return IngestFailure(source=name, code="not_found", message=f"{name} does not exist; check the path")
    if isinstance(error, PermissionError):
        return IngestFailure(
            source=name,
            code="no_permission",
            message=f"{name} may not be read by this user; change its permissions",
        )
    return IngestFailure(
        source=name,
        code="unreadable",
        message=f"{name} cannot be read: {getattr(error, 'strerror', None) or error}; check the disk",
    )
