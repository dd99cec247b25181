"""The pages of a web site, from its first page and its sitemaps, as a source."""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, SourceError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.fetching import Fetcher
from kosmos_rag.ingestion.sources.files import cache_folder
from kosmos_rag.ingestion.sources.listing import Entry, Listing
from kosmos_rag.ingestion.sources.site_crawl import Crawl, SiteScope, SiteSpec, read_stored
from kosmos_rag.ingestion.sources.site_state import SiteState


class SiteSource:
    """The pages of a site.

    A pass sends the validators that it knows from the last one, so an unchanged page costs one short response. What it
    knows is in the cache folder of this user.
    """

    def __init__(
        self, spec: SiteSpec, settings: IngestionSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Compile the patterns; nothing is requested yet.

        Raises RequestError if a pattern is malformed, ConfigError if the extra or a variable is missing.

        Args:
            settings: limits and allowed hosts.
            sleep: waits between two requests.
        """
        require_extra("site", "a source of kind site", "protego")
        self._spec = spec
        self._scope = SiteScope(spec)
        self._fetcher = Fetcher(settings.urls, max_bytes=settings.max_file_bytes, headers=_read_headers(spec))
        # With other options a pass finds other pages, and would miss these. A header has a new value at times.
        headers = sorted(spec.headers_env)
        limits = (spec.sitemaps, spec.include, spec.exclude, spec.max_pages, spec.max_depth)
        self._identity = (self._scope.first, *limits, headers)
        self._sleep = sleep

    def listing(self) -> Listing:
        """Start a pass of no collection."""
        return self.listing_for("")

    def listing_for(self, collection: str) -> Listing:
        """Start a pass over the site, the next one of a collection."""
        has_former = False

        def entries() -> Iterator[Entry | IngestFailure]:
            nonlocal has_former
            folder = cache_folder("sites")
            try:
                with (
                    closing(SiteState(folder, json.dumps((self._identity, collection)))) as state,
                    self._fetcher.keep_connections() as fetcher,
                ):
                    has_former = state.has_pass
                    yield from Crawl(self._spec, self._scope, fetcher, state, self._sleep).run()
            except (OSError, sqlite3.Error) as error:
                reason = f"what passes over {self._scope.first} find cannot be kept in {folder}: {one_line(str(error))}"
                raise SourceError("unavailable", f"{reason}; let this user write there") from error

        def covers(url: str) -> bool:
            # Without a former pass, a page that this one has not found may be missing for the first time.
            return has_former and self._scope.admits(url)

        return Listing(self._scope.first, entries(), covers, prefix=self._scope.prefix)

    def load(self, entry: Entry) -> SourceDocument:
        """Fetch the page of an entry. Raises SourceError."""
        url = entry.locator["url"]
        response = self._fetcher.fetch_changed(url)
        assert response is not None, "without validators a server sends the body"
        page = read_stored(url, response, self._scope)
        is_login = self._spec.headers_env and page.has_password and not entry.locator.get("has_password")
        if page.name != entry.source or is_login:
            message = f"{one_line(entry.source)} is another page than when it was listed; try again later"
            raise SourceError("unavailable", message)
        return self._spec.document(entry.source, response.body)


def _read_headers(spec: SiteSpec) -> dict[str, str]:
    headers = {}
    for header, variable in spec.headers_env.items():
        if not (value := os.environ.get(variable)):
            raise ConfigError(f"{variable} is not set; it must hold the value of the header {one_line(header)}")
        headers[header] = value
    return headers
