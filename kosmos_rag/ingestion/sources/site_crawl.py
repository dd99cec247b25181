"""One pass over a web site: robots.txt, sitemaps, then pages by their links."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.section import Switch
from kosmos_rag.core.types import IngestFailure
from kosmos_rag.ingestion.sources.connections import AGENT
from kosmos_rag.ingestion.sources.fetching import Fetcher, Response, check_url
from kosmos_rag.ingestion.sources.gitignore import Patterns
from kosmos_rag.ingestion.sources.listing import Entry, build_failure
from kosmos_rag.ingestion.sources.site_pages import normalize_url, read_page, read_sitemap
from kosmos_rag.ingestion.sources.site_state import SiteState, StoredPage
from kosmos_rag.ingestion.sources.spec import DocumentOptions, Variable

GONE_PASSES = 2
"""Passes without a page after which its document is removed: a single one may be a fault of the site."""

_MAX_SITEMAPS = 1000
_PAGE_LIMIT = 100_000
_NO_ROBOTS = ("not_found", "no_permission", "unreadable")


class SiteSpec(DocumentOptions):
    """A first page, limits, and what of the site."""

    kind: Literal["site"] = "site"
    url: Annotated[str, AfterValidator(check_url)]
    """The first page. Pages of its scheme, host and port are read, no others."""
    sitemaps: Switch = True
    """Read the sitemaps that robots.txt names, else /sitemap.xml."""
    include: tuple[str, ...] = ()
    """Patterns of paths as in a .gitignore; empty: all pages. Links of other pages are followed too."""
    exclude: tuple[str, ...] = ()
    """Patterns of paths that are not requested."""
    max_pages: int = Field(default=1000, ge=1, le=_PAGE_LIMIT)
    max_depth: int = Field(default=10, ge=0, le=1000)
    """Links from the first page to a page."""
    delay_s: float = Field(default=0.5, ge=0, le=60, allow_inf_nan=False)
    """Seconds between two requests; robots.txt may demand more."""
    headers_env: dict[str, Variable] = Field(default_factory=dict)
    """Variables of the environment with the values of headers, such as Authorization or Cookie."""


class SiteScope:
    """What belongs to a site: its origin, and paths by patterns."""

    def __init__(self, spec: SiteSpec) -> None:
        """Compile the patterns; raises RequestError if one is malformed."""
        self.first = normalize_url(spec.url)
        """The first page."""
        parts = urlsplit(self.first)
        self.prefix = f"{parts.scheme}://{parts.netloc}/"
        """What the addresses of the site begin with."""
        self._patterns = Patterns(spec.include, spec.exclude)

    def admits(self, url: str) -> bool:
        """Return whether a page of the site may be a document."""
        return url.startswith(self.prefix) and self._patterns.admit(_path(url), folder=False)

    def may_visit(self, url: str) -> bool:
        """Return whether a page may be requested: its links may lead to documents."""
        return url.startswith(self.prefix) and (self._patterns.admit(_path(url), folder=True) or self.admits(url))


class _LoginExpired(SourceError):
    """The site answers as without its login."""


class Crawl:
    """One pass: breadth first, each address once."""

    def __init__(
        self,
        spec: SiteSpec,
        scope: SiteScope,
        fetcher: Fetcher,
        state: SiteState,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare the pass; nothing is requested yet.

        Args:
            spec: limits.
            scope: what belongs to the site.
            fetcher: fetches its pages.
            state: what earlier passes found.
            sleep: waits between two requests.
        """
        self._spec, self._scope, self._fetcher, self._state, self._sleep = spec, scope, fetcher, state, sleep
        self._queued: set[str] = set()
        self._urls: set[str] = set()
        """Of the pages that are not gone."""
        self._pending: deque[tuple[str, int]] = deque()
        self._names: set[str] = set()
        self._redirects: Counter[str] = Counter()
        """How many pages lead to an address that they did not lead to before, without its query."""
        self._asks = False
        """Whether the first page has a field for a password: others have it too then."""
        self._delay: float | None = None

    def run(self) -> Iterator[Entry | IngestFailure]:
        """Yield the documents and failures of the pass. Raises SourceError without robots.txt, or without its login."""
        self._robots = self._fetch_robots()
        self._delay = max(self._spec.delay_s, self._robots.crawl_delay(AGENT) or 0.0)
        self._add(self._scope.first, 0)
        complete = True
        for failure in self._read_sitemaps():
            complete = False
            yield failure
        while self._pending:
            url, depth = self._pending.popleft()
            try:
                page = self._visit(url, depth)
            except _LoginExpired:
                raise
            except SourceError as error:
                if error.code == "no_permission" and self._has_login(url):
                    raise
                if error.code != "not_found":
                    complete = False
                    yield build_failure(url, error)
                    self._urls.add(url)
                continue
            if page is not None:
                yield from self._entry(page)
        # The links of a page that could not be read are unstored: what they lead to is not missing.
        if complete and not self._may_lack_login():
            yield from self._missing_pages()
            self._state.record_pass()

    def _fetch_robots(self) -> Any:
        """Return robots.txt; one that does not exist allows everything. Raises SourceError."""
        from protego import Protego

        try:
            text = self._fetcher.fetch(f"{self._scope.prefix}robots.txt").decode("utf-8", "replace")
        except SourceError as error:
            if error.code not in _NO_ROBOTS:
                raise
            text = ""
        return Protego.parse(text)

    def _add(self, url: str, depth: int) -> None:
        if url in self._queued or len(self._queued) >= self._spec.max_pages or depth > self._spec.max_depth:
            return
        if self._scope.may_visit(url) and self._robots.can_fetch(url, AGENT):
            self._queued.add(url)
            self._pending.append((url, depth))

    def _read_sitemaps(self) -> Iterator[IngestFailure]:
        if not self._spec.sitemaps:
            return
        pending = deque(list(self._robots.sitemaps)[:_MAX_SITEMAPS] or [f"{self._scope.prefix}sitemap.xml"])
        queued = set(pending)
        while pending:
            url = pending.popleft()
            if not url.startswith(self._scope.prefix):
                continue
            try:
                self._wait()
                sitemap = read_sitemap(self._fetcher.fetch(url), url)
            except SourceError as error:
                if error.code != "not_found":
                    yield build_failure(url, error)
                continue
            fresh = [nested for nested in sitemap.sitemaps if nested not in queued][: _MAX_SITEMAPS - len(queued)]
            queued.update(fresh)
            pending.extend(fresh)
            for page in sitemap.pages:
                self._add(normalize_url(page), 0)

    def _wait(self) -> None:
        if self._delay:
            self._sleep(self._delay)

    def _visit(self, url: str, depth: int) -> StoredPage | None:
        """Fetch a page, store it, and add its links. Raises SourceError.

        The result is None for a page that has moved.
        """
        stored = self._state.find(url)
        self._wait()
        response = self._fetcher.fetch_changed(
            url, etag=stored.etag if stored else "", modified=stored.modified if stored else ""
        )
        if response is None and stored:
            page, at = replace(stored, missed=0), stored.name or url
        else:
            assert response is not None, "without validators a server sends the body"
            page, at = read_stored(url, response, self._scope), normalize_url(response.url)
        is_moved = stored is not None and stored.name not in (None, page.name) and at != url
        if self._spec.headers_env:
            self._require_login(page, stored, at, is_moved=is_moved)
            self._asks = self._asks or (url == self._scope.first and page.has_password)
        if stored and is_moved:  # it is missing from now on
            for link in (*stored.links, *page.links):
                self._add(link, depth + 1)
            if stored.missed + 1 >= GONE_PASSES:
                self._add(at, depth)
            return None
        self._urls.add(url)
        if page != stored:
            self._state.store(page)
        for link in page.links:
            self._add(link, depth + 1)
        return page

    def _has_login(self, url: str) -> bool:
        """Return whether a page is the first one of a site with a login."""
        return url == self._scope.first and bool(self._spec.headers_env)

    def _require_login(self, page: StoredPage, stored: StoredPage | None, at: str, *, is_moved: bool) -> None:
        """Raise SourceError where a page belongs to a login, and is no document.

        Args:
            at: where the page leads.
            is_moved: whether it has led elsewhere before.
        """
        url, place = page.url, _without_query(at)
        is_known = stored is not None and stored.name is not None
        has_asked = self._asks or (stored is not None and stored.has_password)
        if page.has_password and not has_asked and (is_known or at != url):
            message = f"{url} asks for a password, as without a login; renew the headers, or exclude the page"
            raise (_LoginExpired if is_moved else SourceError)("no_permission", message)
        if at == url or not (is_moved or not self._state.has_pass):
            return
        self._redirects[place] += 1
        # A page may move to one that is known; a login is not.
        target = self._state.find(at)
        is_new = _without_query(url) != place and (target is None or target.name is None)
        if is_moved and is_new and self._redirects[place] > 1:
            message = f"several pages lead to {place}, as without a login; renew the headers, or exclude these pages"
            raise _LoginExpired("no_permission", message)

    def _may_lack_login(self) -> bool:
        """Return whether a pass has found less than what leads to one page. Raises SourceError."""
        for place, count in self._redirects.most_common(1):
            if count > sum(_without_query(name) != place for name in self._names):
                if self._state.has_pass:
                    message = f"the pages lead to {place}, as without a login; renew the headers, or correct url"
                    raise _LoginExpired("no_permission", message)
                return True
        return False

    def _missing_pages(self) -> Iterator[Entry]:
        for page in self._state.list_missing(self._urls):
            if page.missed + 1 < GONE_PASSES:
                self._state.store(replace(page, missed=page.missed + 1))
                yield from self._entry(page)
            else:
                self._state.remove(page.url)

    def _entry(self, page: StoredPage) -> Iterator[Entry]:
        # Several addresses may have one canonical page, which is one document.
        if page.name is not None and page.name not in self._names and self._scope.admits(page.name):
            self._names.add(page.name)
            locator = {"url": page.url, **({"has_password": True} if page.has_password else {})}
            yield Entry(source=page.name, etag=self._spec.compute_etag(page.digest), locator=locator)


def read_stored(url: str, response: Response, scope: SiteScope) -> StoredPage:
    """Return what is known of a page by its response.

    Args:
        url: the address that was requested.
        response: the response, maybe of another address.
        scope: what belongs to the site.
    """
    at = normalize_url(response.url)
    content = read_page(response.body, at, media_type=response.media_type)
    if not at.startswith(scope.prefix):  # a redirect to another site
        return StoredPage(
            url=url, name=None, etag="", modified="", digest="", links=(), has_password=content.has_password
        )
    name = content.canonical if content.canonical.startswith(scope.prefix) else at
    return StoredPage(
        url=url,
        name=name if content.is_indexed else None,
        etag=response.etag,
        modified=response.modified,
        digest=blake2b(response.body, digest_size=16).hexdigest(),
        links=content.links,
        has_password=content.has_password,
    )


def _without_query(url: str) -> str:
    return urlsplit(url)._replace(query="").geturl()


def _path(url: str) -> str:
    return urlsplit(url).path.lstrip("/") or "index"
