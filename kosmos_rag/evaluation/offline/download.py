"""Download a set in the BEIR layout into the user's cache folder.

The limits of `ingestion.urls` apply.
"""

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import RequestError, SourceError, first_line
from kosmos_rag.engine.fetching import Fetcher, check_url
from kosmos_rag.evaluation.offline.beir import CORPUS, QUERIES

_MAX_UNPACKED = 4 * 1024**3
_SAFE = re.compile(r"[^\w.-]+")
"""Characters that are replaced in the name of a folder."""


def is_url(name: str) -> bool:
    """Return whether a set is named by a URL."""
    return name.startswith(("http://", "https://"))


def fetch_set(url: str, settings: IngestionSettings, *, split: str, cache: Path | None = None) -> Path:
    """Download a set once, and return its folder.

    Args:
        url: URL of a zip archive, or of the folder with the files.
        settings: Limits of downloads.
        split: Name of the judgements, qrels/SPLIT.tsv.
        cache: Folder to download to; the user's cache folder by default.

    Raises RequestError, SourceError.
    """
    import platformdirs

    try:
        check_url(url)
    except ValueError as error:
        raise RequestError(f"the set {url!r} cannot be fetched: {error}") from None
    root = cache or platformdirs.user_cache_path("kosmos-rag", appauthor=False) / "evaluation"
    name = _SAFE.sub("-", PurePosixPath(url.split("?")[0].rstrip("/")).name.removesuffix(".zip")).strip(".-") or "set"
    folder = root / hashlib.sha256(url.encode()).hexdigest()[:16] / name
    if (folder / "qrels" / f"{split}.tsv").is_file():
        return folder
    fetcher = Fetcher(settings.urls, max_bytes=settings.max_file_bytes)
    try:
        _store(_files(url, fetcher, split), folder)
    except OSError as error:
        raise RequestError(
            f"the set {url!r} cannot be kept in {folder}: {first_line(error)}; fetch it by hand"
        ) from error
    return folder


def _store(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Write the files to a temporary folder, then move it.

    An interrupted download leaves no partial set.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        download = Path(scratch) / "set"
        for path, data in files:
            (download / path).parent.mkdir(parents=True, exist_ok=True)
            (download / path).write_bytes(data)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(download, folder)  # noqa: PTH105 — Path.replace says no more


def _files(url: str, fetcher: Fetcher, split: str) -> Iterator[tuple[str, bytes]]:
    if url.split("?")[0].endswith(".zip"):
        yield from _unpack(fetcher.fetch(url), url)
        return
    for path in (CORPUS, QUERIES, f"qrels/{split}.tsv"):
        yield path, fetcher.fetch(f"{url.rstrip('/')}/{path}")


def _unpack(data: bytes, url: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a set in an archive.

    In any folder of it; other files are skipped.
    """
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = [entry for entry in archive.infolist() if _target_path(entry.filename)]
            if len({_target_path(entry.filename) for entry in members}) < len(members):
                raise SourceError("unreadable", f"{url} contains several sets; unpack it, and name the folder of one")
            if sum(entry.file_size for entry in members) > _MAX_UNPACKED:
                raise SourceError(
                    "too_large", f"{url} unpacks to more than {_MAX_UNPACKED >> 30} GB; unpack it by hand"
                )
            for entry in members:
                yield _target_path(entry.filename), archive.read(entry)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error) as error:
        raise SourceError("unreadable", f"{url} is no zip archive to be read: {error}; check the address") from error


def _target_path(name: str) -> str:
    path = PurePosixPath(name)
    if path.name in (CORPUS, QUERIES):
        return path.name
    return f"qrels/{path.name}" if path.parent.name == "qrels" and path.suffix == ".tsv" else ""
