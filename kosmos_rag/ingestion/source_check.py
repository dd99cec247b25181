"""Check a source before its first pass: what it lists, and who could read it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure
from kosmos_rag.ingestion.permission_feed import read_feed
from kosmos_rag.ingestion.sources.listing import Entry, Source, build_failure
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.ingestion.sources.spec import validate_feed

MAX_EXAMPLES = 5
MAX_PRINCIPALS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceCheck:
    """What a pass over a source would read."""

    kind: str
    documents: int
    examples: tuple[str, ...]
    """Names of the first documents."""
    complete: bool
    """Whether the listing ended without a failure; otherwise a pass removes nothing."""
    failures: tuple[IngestFailure, ...]
    """Of the listing, of the first document, and of the permission feed."""
    readers: Mapping[str, int]
    """Documents by principal that may read them, most first."""
    unreadable: int
    """Documents that nobody could read: their permission feed does not name them, or names nobody."""
    unreadable_examples: tuple[str, ...]
    """Names of the first of them."""

    @property
    def ok(self) -> bool:
        """Whether a pass would read everything that it lists."""
        return self.complete and not self.failures


def check_source(spec: Mapping[str, Any], settings: IngestionSettings) -> SourceCheck:
    """List a source, read its first document and its permission feed; store nothing.

    Args:
        spec: the source, as docs/sources.md describes it.
        settings: limits and allowed hosts.

    Raises:
        RequestError: The spec is invalid.
        ConfigError: An extra, a program or a variable of the source is missing.
    """
    source = create_source(spec, settings)
    failures: list[IngestFailure] = []
    acls = _read_acls(spec, settings, failures)
    acl = tuple(spec.get("acl") or ("everyone",))
    readers: Counter[str] = Counter()
    examples: list[str] = []
    unreadable_examples: list[str] = []
    documents = unreadable = 0
    listing = source.listing()
    for entry in listing:
        if documents == 0:
            _load(source, entry, failures)
        documents += 1
        if len(examples) < MAX_EXAMPLES:
            examples.append(entry.source)
        principals = entry.readers if entry.readers is not None else acl
        principals = principals if acls is None else acls.get(entry.source, ())
        readers.update(principals)
        if not principals:
            unreadable += 1
            unreadable_examples += [entry.source] if unreadable <= MAX_EXAMPLES else []
    return SourceCheck(
        kind=spec["kind"],
        documents=documents,
        examples=tuple(examples),
        complete=listing.complete,
        failures=tuple(listing.failures + failures),
        readers=dict(readers.most_common(MAX_PRINCIPALS)),
        unreadable=unreadable,
        unreadable_examples=tuple(unreadable_examples),
    )


def _read_acls(
    spec: Mapping[str, Any], settings: IngestionSettings, failures: list[IngestFailure]
) -> Mapping[str, tuple[str, ...]] | None:
    """Return the acl of each document that the feed names; None without a feed."""
    if spec.get("permissions") is None:
        return None
    feed = validate_feed(spec["permissions"])
    try:
        return read_feed(feed, settings).resolve()
    except SourceError as error:
        failures.append(build_failure(f"permission feed {feed.name}", error))
        return {}


def _load(source: Source, entry: Entry, failures: list[IngestFailure]) -> None:
    try:
        source.load(entry)
    except SourceError as error:
        failures.append(build_failure(entry.source, error))
