"""The base of the sources of Confluence and Jira: passes, their cache, and missing documents."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import GONE, SourceError
from kosmos_rag.core.section import Switch
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.atlassian import AtlassianSite, FormError, translate_form_errors
from kosmos_rag.ingestion.sources.atlassian_readers import narrow
from kosmos_rag.ingestion.sources.files import too_large_error
from kosmos_rag.ingestion.sources.listing import Entry, Listing
from kosmos_rag.ingestion.sources.pass_items import PassItems, open_items
from kosmos_rag.ingestion.sources.spec import AtlassianAccess, NamedReaders

OVERLAP_S = 900
"""Seconds that the search index of a server may lag behind."""
MAX_CONFIRMATIONS = 1000
"""Missing documents that one pass asks the server for; the next pass continues."""


class AtlassianSpec(NamedReaders, AtlassianAccess):
    """Options of both sources."""

    attachments: Switch = True
    """Read the files that are attached to pages or issues."""
    comments: Switch = True
    """Add the comments of a page or an issue to its document."""
    full_every_s: Annotated[int, Field(strict=True, ge=0)] = 3600
    """Seconds after which a pass lists everything."""


Site = TypeVar("Site", bound=AtlassianSite)
Spec = TypeVar("Spec", bound=AtlassianSpec)


class AtlassianSource(ABC, Generic[Site, Spec]):
    """Documents of one site with their attachments.

    Most passes ask for what has changed since the last one, and one an hour for everything. A space or project whose
    number of results does not fit is listed at once.
    """

    container: str
    """What has the documents, for messages: `space` or `project`."""
    attachment_key: str
    """What the locator of an attachment has, and that of a page or an issue has not."""

    def __init__(self, spec: Spec, site: Site, containers: Sequence[str], settings: IngestionSettings) -> None:
        """Prepare requests; nothing is sent yet.

        Args:
            containers: Keys of the spaces or projects of the spec.
        """
        self._spec, self._site, self._containers = spec, site, containers
        self._client, self._prefix = site.client, site.prefix
        self._max_bytes = settings.max_file_bytes
        self._identity = (site.kind, *self._client.identity, sorted(containers))

    def listing(self) -> Listing:
        """Start a pass."""
        containers: dict[str, str] = {}
        confirmation = self._create_confirmation(containers)

        def covers(name: str) -> bool:
            return confirmation.is_gone(name, listing)

        listing = Listing(self._prefix, self._entries(containers), covers, prefix=self._prefix)
        return listing

    def load(self, entry: Entry) -> SourceDocument:
        """Read a document, and its readers before and after that. Raises SourceError."""
        has_feed = self._has_feed()
        with translate_form_errors(self._spec.url):
            before = self._find_readers(entry) if has_feed else ()
            is_attachment = self.attachment_key in entry.locator
            document = self._load_attachment(entry) if is_attachment else self._load_document(entry)
            after = self._find_readers(entry)
            return replace(document, readers=narrow(before, after) if has_feed else None)

    def _entries(self, containers: dict[str, str]) -> Iterator[Entry | IngestFailure]:
        """Yield the entries of a pass, and put the spaces or projects into `containers`."""
        began = time.time()
        with translate_form_errors(self._spec.url), open_items(*self._identity) as items:
            containers |= self._list_containers()
            for key in sorted(set(self._containers) - containers.keys()):
                message = f"{self._spec.url} shows the account no {self.container} {key}; check its permissions"
                failure = one_line(f"{message}, or remove the key")
                yield IngestFailure(source=f"{self._prefix}{key}", code="not_found", message=failure)
            cached = items.read_state()
            compared = cached.get("compared", 0.0)
            elapsed = began - cached.get("listed", 0.0)
            is_recent = elapsed >= 0 and 0 <= began - compared < self._spec.full_every_s
            is_full = cached.get("containers") != containers or "unlisted" not in cached or not is_recent
            if is_full:
                items.remove_others(())
            else:
                self._search_all(items, containers, int(elapsed + OVERLAP_S) // 60 + 1, containers)
            # No search finds what was deleted or moved away. Counted first: what is deleted later is missed next time.
            counts = {key: self._count(key) for key in containers}
            unlisted = self._count_unlisted(counts, items)
            stale = {key for key in containers if is_full or unlisted[key] != cached["unlisted"].get(key)}
            items.remove_others(containers.keys() - stale)
            self._search_all(items, stale, None, containers)
            unlisted = {**unlisted, **self._count_unlisted({key: counts[key] for key in stale}, items)}
            yield from self._list_entries(items)
            compared = began if is_full else compared
            items.write_state({"listed": began, "compared": compared, "containers": containers, "unlisted": unlisted})

    def _search_all(
        self, items: PassItems, keys: Iterable[str], minutes: int | None, containers: Mapping[str, str]
    ) -> None:
        for key in keys:
            for answer in self._search(key, minutes):
                self._update(items, answer, containers)

    def _count_unlisted(self, counts: Mapping[str, int | None], items: PassItems) -> dict[str, int | None]:
        """Return how many documents, comments and files the site counts that no pass has found."""
        listed = items.count()
        return {key: None if count is None else count - listed.get(key, 0) for key, count in counts.items()}

    def _build_attachment(
        self, name: str, size: int, etag: Sequence[object], locator: Mapping[str, Any]
    ) -> Entry | IngestFailure:
        """Return the entry of an attachment; a failure where it is too large."""
        if size > self._max_bytes:
            error = too_large_error(one_line(name), self._max_bytes)
            return IngestFailure(source=name, code=error.code, message=str(error))
        return Entry(source=name, etag=self._spec.compute_etag(*etag), locator=locator)

    def _gone_error(self, entry: Entry) -> SourceError:
        reason = f"was removed, or left the {self.container}s, after it was listed"
        return SourceError(GONE, f"{one_line(entry.source)} {reason}")

    @abstractmethod
    def _create_confirmation(self, containers: Mapping[str, str]) -> "Confirmation[Site]":
        """Return what asks for documents that the pass has not found.

        Args:
            containers: Ids of the spaces or projects by key, when the pass has listed them.
        """

    @abstractmethod
    def _list_containers(self) -> dict[str, str]:
        """Return the ids of the spaces or projects by key. Raises SourceError."""

    @abstractmethod
    def _search(self, container: str, minutes: int | None) -> Iterator[Mapping[str, Any]]:
        """Yield what is in a space or project. Raises SourceError.

        Args:
            container: Its key.
            minutes: How many minutes back changes are asked for; None for everything. A date would be read in the
                time zone of the account.
        """

    @abstractmethod
    def _count(self, container: str) -> int | None:
        """Return how many results a search for everything in a space or project has. Raises SourceError.

        The result is None where the site does not say it exactly.
        """

    @abstractmethod
    def _update(self, items: PassItems, answer: Mapping[str, Any], containers: Mapping[str, str]) -> None:
        """Put what a search has answered into the items."""

    @abstractmethod
    def _list_entries(self, items: PassItems) -> Iterator[Entry | IngestFailure]:
        """Yield the documents of the items."""

    @abstractmethod
    def _load_document(self, entry: Entry) -> SourceDocument:
        """Read a page or an issue. Raises SourceError."""

    @abstractmethod
    def _load_attachment(self, entry: Entry) -> SourceDocument:
        """Read an attachment. Raises SourceError."""

    @abstractmethod
    def _has_feed(self) -> bool:
        """Return whether a feed of the same site decides who reads."""

    @abstractmethod
    def _find_readers(self, entry: Entry) -> tuple[str, ...]:
        """Return who may read a document now, where a feed of the site decides.

        Raises SourceError, also if the document is in no space or project of the spec any more.
        """


class Confirmation(ABC, Generic[Site]):
    """Asks whether documents that a pass has not found are gone.

    A search may lack them: its index is behind, or a page of results moved while it was read.
    """

    def __init__(self, site: Site, containers: Mapping[str, str]) -> None:
        """Take the site, and the ids of the spaces or projects of the pass by key."""
        self._site, self._containers = site, containers
        self._left = MAX_CONFIRMATIONS

    def is_gone(self, name: str, listing: Listing) -> bool:
        """Return whether a document is one of this source, and is gone.

        Args:
            name: of a document that the pass has not listed.
            listing: of the pass.
        """
        if not name.startswith(self._site.prefix):
            return False
        if not listing.complete:
            return True  # nothing is removed then
        try:
            with translate_form_errors(name):
                return not self._has_document(name.removeprefix(self._site.prefix))
        except SourceError as error:
            if error.code == "unavailable" and not isinstance(error, FormError):
                self._left = 0  # each further request would wait for a server that does not answer
            return False

    def _find(self, *paths: str, **parameters: str) -> dict[str, Any] | None:
        """Return the first of several paths that exists; None without one. Raises SourceError."""
        if self._left <= 0:
            raise SourceError("unavailable", f"{MAX_CONFIRMATIONS} missing documents; the next pass asks for the rest")
        self._left -= 1
        answers = (self._site.client.find(path, **parameters) for path in paths)
        # An empty answer is one of another form, and none of a document that is gone.
        answer: dict[str, Any] | None = next((answer for answer in answers if answer is not None), None)
        if answer is None:
            self._site.require_account()  # or else nothing of the site is found any more
        return answer

    @abstractmethod
    def _has_document(self, path: str) -> bool:
        """Return whether the site has a document, by its name without the prefix. Raises SourceError."""
