"""What the passes over a web site found, in a file of the cache folder."""

import json
import os
from collections.abc import Container, Iterator
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path

from kosmos_rag.ingestion.sources.files import open_sqlite, remove_unused

_SCHEMA = """
CREATE TABLE IF NOT EXISTS page (
    url TEXT PRIMARY KEY, name TEXT, etag TEXT NOT NULL, modified TEXT NOT NULL, digest TEXT NOT NULL,
    links TEXT NOT NULL, missed INTEGER NOT NULL, has_password INTEGER NOT NULL
)
"""
_UPSERT = "INSERT OR REPLACE INTO page VALUES (:url, :name, :etag, :modified, :digest, :links, :missed, :has_password)"
_LOCKED_S = 60.0
"""Seconds that another pass may take to write a page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPage:
    """A page as it was found."""

    url: str
    name: str | None
    """Its canonical address, by which its document is named; None if it is no document."""
    etag: str
    modified: str
    digest: str
    links: tuple[str, ...]
    missed: int = 0
    """Passes in a row that did not find it."""
    has_password: bool = False
    """Whether it has a field for a password, as a login has."""


class SiteState:
    """The pages of a site, as the passes of a collection found them.

    The state belongs to a cache: where it is missing, the next pass fetches all pages and forgives missing ones again.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        """Open the state of a site, and remove those that no pass uses any more.

        Args:
            identity: what distinguishes the site and the collection.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{blake2b((_SCHEMA + identity).encode(), digest_size=16).hexdigest()}.sqlite"
        # Each page is kept at once: a transaction of the whole pass would hold up other passes.
        self._connection = open_sqlite(path, _SCHEMA, timeout_s=_LOCKED_S)
        os.utime(path)
        remove_unused(folder)

    @property
    def has_pass(self) -> bool:
        """Whether a pass has read the whole site."""
        return bool(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def record_pass(self) -> None:
        """Record that a pass has read the whole site."""
        self._connection.execute("PRAGMA user_version = 1")

    def find(self, url: str) -> StoredPage | None:
        """Return a page of an earlier pass."""
        row = self._connection.execute("SELECT * FROM page WHERE url = ?", (url,)).fetchone()
        if row is None:
            return None
        _, name, etag, modified, digest, links, missed, has_password = row
        return StoredPage(
            url=url, name=name, etag=etag, modified=modified, digest=digest, links=tuple(json.loads(links)),
            missed=missed, has_password=bool(has_password),
        )  # fmt: skip

    def store(self, page: StoredPage) -> None:
        """Store a page."""
        values = {item.name: getattr(page, item.name) for item in fields(page)}
        self._connection.execute(_UPSERT, {**values, "links": json.dumps(page.links)})

    def list_missing(self, urls: Container[str]) -> Iterator[StoredPage]:
        """Yield the stored pages with other addresses."""
        missing = [url for (url,) in self._connection.execute("SELECT url FROM page") if url not in urls]
        return filter(None, map(self.find, missing))

    def remove(self, url: str) -> None:
        """Remove a page that is gone."""
        self._connection.execute("DELETE FROM page WHERE url = ?", (url,))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
