"""Files of sources: locators, errors, and content up to a size limit."""

import errno
import json
import os
import sqlite3
import stat
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote_from_bytes, unquote_to_bytes

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import DISK_FULL, SourceError, is_disk_full
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.ingestion.parts import may_have_parts, measure_limit

_BLOCK_BYTES = 1024 * 1024
_UNUSED_S = 90 * 86400.0
"""Seconds after its last pass until a state is removed: its spec or its collection has changed, or is no more."""
_LASTING = (errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR)


@dataclass(frozen=True, kw_only=True, slots=True)
class LargeDocument(SourceDocument):
    """A document of rows that may be too large for memory.

    Its bytes are in a file, and `data` is empty.
    """

    file: BinaryIO
    """Its receiver closes it."""


def to_locator(path: Path) -> dict[str, str]:
    """Return the path of a file as JSON.

    A path is bytes, and JSON in PostgreSQL holds only text.
    """
    return {"path": quote_from_bytes(os.fsencode(os.path.abspath(path)))}  # noqa: PTH100 — resolve() would follow links


def from_locator(locator: dict[str, str]) -> Path:
    """Return the path of a locator."""
    return Path(os.fsdecode(unquote_to_bytes(locator["path"])))


def cache_folder(kind: str) -> Path:
    """Return the folder of a kind of source in the cache folder of this user."""
    import platformdirs

    return platformdirs.user_cache_path("kosmos-rag", appauthor=False) / kind


def remove_unused(folder: Path) -> None:
    """Remove the states in a folder that no pass has written for 90 days."""
    for path in folder.iterdir():
        with suppress(OSError):  # another pass removes them too
            if path.stat().st_mtime < time.time() - _UNUSED_S:
                path.unlink()


def open_sqlite(path: Path, schema: str, *, timeout_s: float = 5.0) -> sqlite3.Connection:
    """Open a file of SQLite that may be lost.

    A broken one, as after a crash of the machine, is made again. Each statement is kept at once, unless a transaction
    was begun. Raises sqlite3.Error.

    Args:
        path: where it is, or is to be.
        schema: statements that create what is missing.
        timeout_s: seconds to wait for another process that writes.
    """
    try:
        return _connect(path, schema, timeout_s)
    except sqlite3.OperationalError:  # as where another process holds it for too long
        raise
    except sqlite3.DatabaseError:
        path.unlink(missing_ok=True)
        return _connect(path, schema, timeout_s)


def _connect(path: Path, schema: str, timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=timeout_s)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(schema)
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("the file is malformed")
    except BaseException:
        connection.close()
        raise
    return connection


class PassCache:
    """What the last pass over a source found, in a file of the cache folder.

    Without it a pass asks for everything.
    """

    def __init__(self, kind: str, *identity: object) -> None:
        """Choose the file.

        Args:
            kind: kind of the source.
            identity: all that decides what a pass finds.
        """
        digest = blake2b(json.dumps(identity).encode(), digest_size=16).hexdigest()
        self._path = cache_folder(kind) / f"{digest}.json"

    def read(self) -> dict[str, Any]:
        """Return what was written last; empty without it."""
        try:
            stored = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}

    def write(self, value: Mapping[str, Any]) -> None:
        """Replace what was written last, where the folder permits."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Passes of two collections may write at the same time.
            part = self._path.with_suffix(f".{uuid.uuid4().hex}.part")
            part.write_text(json.dumps(value))
            part.replace(self._path)


def open_regular(path: Path, name: str) -> BinaryIO:
    """Open a regular file for reading.

    Nothing else: a pipe would hang, a device never end. Raises SourceError, which has the name in its message.
    """
    try:
        # Checked before too: opening alone makes some devices act.
        _require_regular(path.stat(), name)
        file = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115 — Path.open takes no opener; the caller closes
    except (OSError, ValueError) as error:
        raise unreadable_error(name, error) from error
    try:
        _require_regular(os.fstat(file.fileno()), name)
    except SourceError:
        file.close()
        raise
    return file


def read_file(path: Path, name: str, *, max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`.

    Raises SourceError, which has the name in its message.
    """
    with open_regular(path, name) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise too_large_error(name, max_bytes)
            return read_limited(iter(lambda: file.read(_BLOCK_BYTES), b""), name, max_bytes=max_bytes)
        except OSError as error:
            raise unreadable_error(name, error) from error


def read_or_open(path: Path, name: str, settings: IngestionSettings) -> bytes | BinaryIO:
    """Read a regular file, or open a large one that may have parts.

    Raises SourceError, which has the name in its message.
    """
    if may_have_parts(name):
        file = open_regular(path, name)
        if os.fstat(file.fileno()).st_size > settings.max_file_bytes:
            return file
        file.close()
    return read_file(path, name, max_bytes=settings.max_file_bytes)


def read_content(blocks: Iterable[bytes], name: str, settings: IngestionSettings) -> bytes | BinaryIO:
    """Join blocks of bytes, on disk where they are many and may have parts.

    Raises SourceError.

    Args:
        blocks: The content, as it arrives.
        name: Name of the document, for messages.
    """
    if not may_have_parts(name):
        return read_limited(blocks, name, max_bytes=settings.max_file_bytes)
    content = bytearray()
    remaining = iter(blocks)
    for block in remaining:
        content += block
        if len(content) > settings.max_file_bytes:
            return _write_file(content, remaining, name, max_bytes=measure_limit(settings))
    return bytes(content)


def _write_file(begin: bytearray, blocks: Iterator[bytes], name: str, *, max_bytes: int) -> BinaryIO:
    """Write a content to a file that disappears when it is closed."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 — the caller closes it
    size = len(begin)
    try:
        file.write(begin)
        begin.clear()
        for block in blocks:
            size += len(block)
            if size > max_bytes:
                raise too_large_error(name, max_bytes, setting="ingestion.parsing.text_mb")
            file.write(block)
        file.seek(0)
    except BaseException as error:
        file.close()
        if is_disk_full(error):
            message = f"{name} does not fit into {tempfile.gettempdir()}; make room there, or set TMPDIR"
            raise SourceError(DISK_FULL, message) from error
        raise
    return cast("BinaryIO", file)


def attach_content(document: SourceDocument, content: bytes | BinaryIO) -> SourceDocument:
    """Return a document with what `read_file` or `read_content` has returned."""
    values = {item.name: getattr(document, item.name) for item in fields(document)}
    if isinstance(content, bytes):
        return SourceDocument(**{**values, "data": content})
    return LargeDocument(**values, file=content)


def read_limited(blocks: Iterable[bytes], name: str, *, max_bytes: int) -> bytes:
    """Join blocks of bytes up to a size limit.

    Args:
        blocks: The content, as it arrives.
        name: Name of the document, for messages.
        max_bytes: Maximum size.

    Raises:
        SourceError: The content is larger.
    """
    content = bytearray()
    for block in blocks:
        content += block
        if len(content) > max_bytes:
            raise too_large_error(name, max_bytes)
    return bytes(content)


def too_large_error(name: str, max_bytes: int, *, setting: str = "ingestion.max_file_mb") -> SourceError:
    """Return the error of a document over the size limit.

    Args:
        setting: The setting that limits it.
    """
    return SourceError(
        "too_large",
        f"{name} has more than the {max_bytes:,} bytes that {setting} allows; split it or raise the limit",
    )


def unreadable_error(name: str, error: OSError | ValueError) -> SourceError:
    """Return the error of a file or folder that cannot be read.

    Python raises ValueError for a path that cannot exist.
    """
    if isinstance(error, FileNotFoundError):
        return SourceError("not_found", f"{name} does not exist; check the path")
    if isinstance(error, PermissionError):
        return SourceError("no_permission", f"{name} may not be read by this user; change its permissions")
    if isinstance(error, OSError) and error.errno == errno.ENXIO:
        return _not_a_file_error(name)
    # What another path or file would mend stays; a lost mount and a lack of descriptors pass.
    is_lasting = isinstance(error, ValueError) or error.errno in _LASTING
    reason = getattr(error, "strerror", None) or error
    return SourceError(
        "unreadable" if is_lasting else "unavailable", f"{name} cannot be read: {reason}; check the disk"
    )


def _require_regular(state: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise _not_a_file_error(name)


def _not_a_file_error(name: str) -> SourceError:
    return SourceError("not_a_file", f"{name} is not a regular file; give files or folders")


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
