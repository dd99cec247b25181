"""The interface of sources: list entries, and load one document."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument, is_text

log = logging.getLogger(__name__)

MAX_SOURCE_CHARS = 2048
"""Longest name of a source; longer ones are refused, so that names stay fit for lists and logs."""

MAX_FAILURES = 1000
"""Failures after which a listing ends: a file of garbage would otherwise be a million of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A document of a source that is not loaded yet."""

    source: str
    """Identity of the document within the tenant."""
    etag: str | None
    """Changes whenever the document may have changed. None: unknown, so load it and compare."""
    locator: Mapping[str, Any]
    """All that `load` needs, in any process; JSON that PostgreSQL can hold."""
    readers: tuple[str, ...] | None = None
    """Who may read it, for the check of a source; None where the spec or a feed has them."""


class Listing:
    """One listing of a source: iterate once, to the end.

    `complete` and `failures` are valid afterwards. An error of the source ends the listing and is a failure too;
    iteration itself raises no SourceError.
    """

    def __init__(
        self,
        name: str,
        items: Iterable[Entry | IngestFailure],
        covers: Callable[[str], bool],
        *,
        prefix: str | None = None,
    ) -> None:
        self.name = name
        self.covers = covers
        """Whether a stored document, by its source, belongs here: a covered document that is not listed is deleted."""
        self.prefix = prefix
        """Common prefix of the covered sources; None without one."""
        self.failures: list[IngestFailure] = []
        """Failures of the listing."""
        self.error: SourceError | None = None
        """What ended the listing early; None where it is complete."""
        self._items = iter(items)
        self._exhausted = False
        self._empty = True

    @property
    def complete(self) -> bool:
        """Whether the listing has ended without a failure."""
        return self._exhausted and not self.failures

    def __iter__(self) -> Iterator[Entry]:
        try:
            for item in self._items:
                failure = item if isinstance(item, IngestFailure) else _name_failure(item)
                if failure is not None:
                    self._add_failure(failure)
                elif isinstance(item, Entry):
                    self._empty = False
                    yield item
        except SourceError as error:
            self.error = error
            self.failures.append(build_failure(self.name, error))
        self._exhausted = True

    def _add_failure(self, failure: IngestFailure) -> None:
        self.failures.append(failure)
        if len(self.failures) >= MAX_FAILURES:
            raise SourceError(
                "unreadable", f"{self.name}: {MAX_FAILURES} failures, so the rest was not listed; correct it"
            )

    def refusal_to_prune(self, missing: Sequence[str], *, may_be_empty: bool = False) -> IngestFailure | None:
        """Return why not to delete missing documents; None if it is safe.

        A source that cannot be listed completely, or is suddenly empty, is more likely a lost mount than intended.

        Args:
            may_be_empty: Whether the source was emptied on purpose.
        """
        if not missing:
            return None
        remedy = f"{len(missing)} documents from it were kept; remove them with `kosmos-rag delete` if that was meant"
        if not self.complete:
            message = f"{self.name} could not be read completely; {remedy}"
            return IngestFailure(source=self.name, code="unreadable", message=message)
        if self._empty and not may_be_empty:
            message = f"{self.name} has no documents any more; {remedy}"
            return IngestFailure(source=self.name, code="empty_folder", message=message)
        return None


class Source(Protocol):
    """A source of documents.

    Thread-safe, except for a listing; cache it, because it holds clients.
    """

    def listing(self) -> Listing:
        """Start a listing.

        Nothing is read before the iteration.
        """
        ...

    def load(self, entry: Entry) -> SourceDocument:
        """Load the document of an entry, possibly of another process's listing.

        Raises SourceError.
        """
        ...


@runtime_checkable
class CountingSource(Source, Protocol):
    """A source that counts in how many passes a document was missing."""

    def listing_for(self, collection: str) -> Listing:
        """Start a listing that counts as the next pass of a collection."""
        ...


@dataclass(kw_only=True, slots=True)
class Changes:
    """What changed in a source since its last pass over changes."""

    listing: Listing
    """Documents that changed; iterate once, to the end."""
    removed: list[str]
    """Sources of documents that are gone; complete after the iteration of `listing`."""
    compare_all: bool
    """Whether the source does not know all changes, so that a complete listing is needed."""
    emptied: bool
    """Whether many documents were deleted on purpose: a complete listing may have none."""
    has_more: bool
    """Whether changes are left for another pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Changes of a source that no pass has read."""

    is_full: bool
    """Whether no more are recorded, so that some are unknown."""
    oldest_s: float
    """Age of the oldest in seconds; 0 without one."""


@runtime_checkable
class ChangeWatch(Protocol):
    """Waits for changes of a source. Used by one thread."""

    def fileno(self) -> int:
        """Return the descriptor that notifications make readable."""
        ...

    def drain(self) -> bool:
        """Discard notifications; return whether there were any. Raises SourceError."""
        ...

    def has_changes(self) -> bool:
        """Return whether there are changes, also without a notification. Raises SourceError."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@runtime_checkable
class ChangeSource(Source, Protocol):
    """A source that knows what changed."""

    def take_changes(self) -> AbstractContextManager[Changes]:
        """Take the oldest changes; they return where the block raises. Raises SourceError."""
        ...

    def measure_backlog(self) -> Backlog:
        """Return how old the changes are that no pass has read. Raises SourceError, ConfigError."""
        ...

    def watch(self) -> ChangeWatch:
        """Connect to wait for changes. Raises SourceError, ConfigError."""
        ...


def build_failure(source: str, error: SourceError) -> IngestFailure:
    """Return the record of an error."""
    return IngestFailure(source=source, code=error.code, message=str(error))


def drop_duplicates(
    items: Iterable[Entry | IngestFailure], *, allow_in: str | None = None
) -> Iterator[Entry | IngestFailure]:
    """Yield the first entry of each source, and a failure for repetitions.

    Uses about a hundred bytes for each entry.

    Args:
        allow_in: Name of a place where names may repeat: one warning has their number then.
    """
    hashes: set[bytes] = set()
    skipped = 0
    for item in items:
        if isinstance(item, Entry):
            key = blake2b(item.source.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if key in hashes and allow_in is not None:
                skipped += 1
                continue
            if key in hashes:
                message = f"{one_line(item.source)} is listed twice; the first was taken: make ids unique"
                yield IngestFailure(source=item.source, code="duplicate", message=message)
                continue
            hashes.add(key)
        yield item
    if skipped:
        log.warning(
            "%s: %d files have the name of another one; rename them",
            allow_in,
            skipped,
            extra={"action": "duplicate_names_skipped", "place": allow_in, "files": skipped},
        )


def _name_failure(entry: Entry) -> IngestFailure | None:
    """Return the failure of an entry with an invalid name; else None."""
    if is_text(entry.source) and len(entry.source) <= MAX_SOURCE_CHARS:
        return None
    excerpt = one_line(entry.source[:60])
    message = f"source name {excerpt!r} must be text of at most {MAX_SOURCE_CHARS} characters without NUL; rename it"
    return IngestFailure(source=excerpt, code="unreadable", message=message)
