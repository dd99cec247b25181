"""A set in the BEIR layout from the web: fetched within `ingestion.urls`, kept in the user's cache folder."""

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath

from kosmos_rag.config import IngestionSettings
from kosmos_rag.errors import RequestError, SourceError
from kosmos_rag.evaluation.beir import CORPUS, QUERIES
from kosmos_rag.sources.fetching import Fetcher, check_url

_MAX_UNPACKED = 4 * 1024**3


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
    name = PurePosixPath(url.split("?")[0].rstrip("/")).name.removesuffix(".zip")
    folder = kept / hashlib.sha256(url.encode()).hexdigest()[:16] / name
    if (folder / "qrels" / f"{split}.tsv").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fetcher = Fetcher(settings.urls, max_bytes=settings.max_file_bytes)
    # Beside its place and moved there whole: what was interrupted is not taken for a set.
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "set"
        for path, data in _files(url, fetcher, split):
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_bytes(data)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(made, folder)  # noqa: PTH105 — Path.replace says no more
    return folder


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
            if sum(entry.file_size for entry in wanted) > _MAX_UNPACKED:
                raise SourceError(
                    "too_large", f"{url} unpacks to more than {_MAX_UNPACKED >> 30} GB; unpack it by hand"
                )
            for entry in wanted:
                yield _place_of(entry.filename), archive.read(entry)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise SourceError("unreadable", f"{url} is no zip archive to be read: {error}; check the address") from error


def _place_of(name: str) -> str:
    path = PurePosixPath(name)
    if path.name in (CORPUS, QUERIES):
        return path.name
    return f"qrels/{path.name}" if path.parent.name == "qrels" and path.suffix == ".tsv" else ""
