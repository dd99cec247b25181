"""A set in the BEIR layout from the web: fetched within `ingestion.urls`, kept in the user's cache folder."""

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
from kosmos_rag.evaluation.beir import CORPUS, QUERIES
from kosmos_rag.ingestion.sources.fetching import Fetcher, check_url

_MAX_UNPACKED = 4 * 1024**3
_SAFE = re.compile(r"[^\w.-]+")
"""What is replaced in the name of a folder."""


def is_url(given: str) -> bool:
    """Whether a set is named by an address and not by a path."""
    return given.startswith(("http://", "https://"))


def fetched(url: str, settings: IngestionSettings, *, split: str, cache: Path | None = None) -> Path:
    """Return a folder with the set at a URL: of a zip archive, or of the folder that the files lie in.

    What was fetched before is not fetched again. Raises RequestError, SourceError.
    """
    import platformdirs

    try:
        check_url(url)
    except ValueError as error:
        raise RequestError(f"the set {url!r} cannot be fetched: {error}") from None
    kept = cache or platformdirs.user_cache_path("kosmos-rag", appauthor=False) / "evaluation"
    name = _SAFE.sub("-", PurePosixPath(url.split("?")[0].rstrip("/")).name.removesuffix(".zip")).strip(".-") or "set"
    folder = kept / hashlib.sha256(url.encode()).hexdigest()[:16] / name
    if (folder / "qrels" / f"{split}.tsv").is_file():
        return folder
    fetcher = Fetcher(settings.urls, max_bytes=settings.max_file_bytes)
    try:
        _keep(_files(url, fetcher, split), folder)
    except OSError as error:
        raise RequestError(
            f"the set {url!r} cannot be kept in {folder}: {first_line(error)}; fetch it by hand"
        ) from error
    return folder


def _keep(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Write the files beside their place and move them there whole: what was interrupted is not taken for a set."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "set"
        for path, data in files:
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_bytes(data)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(made, folder)  # noqa: PTH105 — Path.replace says no more


def _files(url: str, fetcher: Fetcher, split: str) -> Iterator[tuple[str, bytes]]:
    if url.split("?")[0].endswith(".zip"):
        yield from _unpacked(fetcher.content(url), url)
        return
    for path in (CORPUS, QUERIES, f"qrels/{split}.tsv"):
        yield path, fetcher.content(f"{url.rstrip('/')}/{path}")


def _unpacked(data: bytes, url: str) -> Iterator[tuple[str, bytes]]:
    """Give the files of a set out of an archive, whatever folder in it they lie in; no other file is unpacked."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            wanted = [entry for entry in archive.infolist() if _place_of(entry.filename)]
            if len({_place_of(entry.filename) for entry in wanted}) < len(wanted):
                raise SourceError("unreadable", f"{url} holds several sets; unpack it, and name the folder of one")
            if sum(entry.file_size for entry in wanted) > _MAX_UNPACKED:
                raise SourceError(
                    "too_large", f"{url} unpacks to more than {_MAX_UNPACKED >> 30} GB; unpack it by hand"
                )
            for entry in wanted:
                yield _place_of(entry.filename), archive.read(entry)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error) as error:
        raise SourceError("unreadable", f"{url} is no zip archive to be read: {error}; check the address") from error


def _place_of(name: str) -> str:
    path = PurePosixPath(name)
    if path.name in (CORPUS, QUERIES):
        return path.name
    return f"qrels/{path.name}" if path.parent.name == "qrels" and path.suffix == ".tsv" else ""
