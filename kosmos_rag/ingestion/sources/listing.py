"""What every source gives: a listing of entries, lazily, and one document for an entry."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument, is_text

MAX_SOURCE_CHARS = 2048
"""Longest name of a source; longer ones are refused, so that names stay fit for lists and logs."""

MAX_FAILURES = 1000
"""Failures after which a listing ends: a file of garbage would otherwise be a million of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A document that a source holds, not loaded yet."""

    source: str
    """Identity of the document within the tenant."""
    etag: str | None
    """Changes whenever the document may have changed. None: not known, so load it and compare."""
    locator: Mapping[str, Any]
    """All that `load` needs, in any process; JSON that PostgreSQL can hold."""


class Listing:
    """One pass over a source: iterate once, to the end.

    Then `complete` and `failures` tell how it went. An error of the source ends the pass and is a failure too; the
    iteration itself raises nothing on purpose.
    """

    def __init__(
        self,
        name: str,
        found: Iterable[Entry | IngestFailure],
        covers: Callable[[str], bool],
        *,
        prefix: str | None = None,
    ) -> None:
        self.name = name
        self.covers = covers
        """Whether a stored document, by its source, belongs here: what is covered and was not listed is gone."""
        self.prefix = prefix
        """What every covered source starts with; None where they have nothing in common."""
        self.failures: list[IngestFailure] = []
        """What could not be listed."""
        self._found = iter(found)
        self._exhausted = False
        self._empty = True

    @property
    def complete(self) -> bool:
        """Whether the pass has ended and nothing failed in it."""
        return self._exhausted and not self.failures

    def __iter__(self) -> Iterator[Entry]:
        try:
            for item in self._found:
                failure = item if isinstance(item, IngestFailure) else _unfit(item)
                if failure is not None:
                    self._note(failure)
                elif isinstance(item, Entry):
                    self._empty = False
                    yield item
        except SourceError as error:
            self.failures.append(failure_of(self.name, error))
        self._exhausted = True

    def _note(self, failure: IngestFailure) -> None:
        self.failures.append(failure)
        if len(self.failures) >= MAX_FAILURES:
            raise SourceError(
                "unreadable", f"{self.name}: {MAX_FAILURES} failures, so the rest was not listed; correct it"
            )

    def refusal_to_prune(self, missing: Sequence[str]) -> IngestFailure | None:
        """Return why covered documents that were not listed should be kept all the same, or None.

        A source that cannot be listed to its end, or is suddenly empty, is more likely a lost mount than a wish.
        """
        if not missing:
            return None
        kept = f"{len(missing)} documents from it were kept; remove them with `kosmos-rag delete` if that was meant"
        if not self.complete:
            message = f"{self.name} could not be read to its end; {kept}"
            return IngestFailure(source=self.name, code="unreadable", message=message)
        if self._empty:
            message = f"{self.name} holds no document any more; {kept}"
            return IngestFailure(source=self.name, code="empty_folder", message=message)
        return None


class Source(Protocol):
    """A place that documents come from.

    Thread-safe, except for a listing; worth keeping, for it holds clients.
    """

    def listing(self) -> Listing:
        """Start a pass over what there is.

        Nothing is read before the iteration.
        """
        ...

    def load(self, entry: Entry) -> SourceDocument:
        """Load the document of an entry, which another process may have listed.

        Raises SourceError.
        """
        ...


def failure_of(source: str, error: SourceError) -> IngestFailure:
    """Return the record of an error."""
    return IngestFailure(source=source, code=error.code, message=str(error))


def without_repeats(found: Iterable[Entry | IngestFailure]) -> Iterator[Entry | IngestFailure]:
    """Pass the first entry of each source on, and a failure in the place of a later one.

    Holds about a hundred bytes an entry.
    """
    seen: set[bytes] = set()
    for item in found:
        if isinstance(item, Entry):
            key = blake2b(item.source.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if key in seen:
                message = f"{one_line(item.source)} is listed twice; the first was taken: make ids unique"
                yield IngestFailure(source=item.source, code="duplicate", message=message)
                continue
            seen.add(key)
        yield item


def _unfit(entry: Entry) -> IngestFailure | None:
    """Return why an entry cannot be stored under its name, or None."""
    if is_text(entry.source) and len(entry.source) <= MAX_SOURCE_CHARS:
        return None
    shown = one_line(entry.source[:60])
    message = f"source name {shown!r} must be text of at most {MAX_SOURCE_CHARS} characters without NUL; rename it"
    return IngestFailure(source=shown, code="unreadable", message=message)
