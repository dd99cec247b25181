"""A list of web addresses as a source."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.ingestion.sources.fetching import Fetcher, check_url
from kosmos_rag.ingestion.sources.listing import Entry, Listing
from kosmos_rag.ingestion.sources.spec import DocumentOptions


class UrlsSpec(DocumentOptions):
    """A list of web addresses; `ingestion.urls.allowed_hosts` lists the allowed hosts."""

    kind: Literal["urls"] = "urls"
    urls: tuple[Annotated[str, AfterValidator(check_url)], ...] = Field(min_length=1)


class UrlsSource:
    """The documents at a list of addresses.

    None is removed by itself: an address that fails keeps its document.
    """

    def __init__(self, spec: UrlsSpec, settings: IngestionSettings) -> None:
        self._spec = spec
        self._urls = tuple(dict.fromkeys(spec.urls))
        self._fetcher = Fetcher(settings.urls, max_bytes=settings.max_file_bytes)

    def listing(self) -> Listing:
        """Start a listing, in the order of the list.

        Each address is asked for its headers.
        """
        return Listing(f"list of {len(self._urls)} URLs", self._entries(), self._urls.__contains__)

    def load(self, entry: Entry) -> SourceDocument:
        """Fetch the document of an entry. Raises SourceError."""
        return self._spec.document(entry.source, self._fetcher.fetch(entry.locator["url"]))

    def _entries(self) -> Iterator[Entry]:
        with self._fetcher.keep_connections() as fetcher:
            for url in self._urls:
                yield Entry(source=url, etag=self._etag(fetcher, url), locator={"url": url})

    def _etag(self, fetcher: Fetcher, url: str) -> str | None:
        try:
            validators = fetcher.fetch_validators(url)
        except SourceError:
            return None  # `load` reports what is wrong with it
        return None if validators is None else self._spec.compute_etag(validators)
