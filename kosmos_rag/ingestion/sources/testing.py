"""The contract of sources as tests, for kinds of this package and others.

Inherit `SourceContract` in a test module and give a fixture `workspace`; docs/how-to/write-a-source.md shows it.
"""

import json
from abc import ABC, abstractmethod
from contextlib import suppress

from kosmos_rag.core.errors import GONE, SourceError
from kosmos_rag.ingestion.sources.listing import Entry, Source

OPTIONS = {"acl": ["hr"], "metadata": {"team": "x"}}
"""Options that `Workspace.open` passes to the spec."""


class Workspace(ABC):
    """A place with documents that a source reads."""

    @abstractmethod
    def put(self, name: str, text: str) -> None:
        """Create a document, or give it another text."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a document."""

    @abstractmethod
    def open(self, **options: object) -> Source:
        """Open a source of the place.

        Args:
            options: keys of every kind for its spec, such as `acl`.
        """

    def disconnect(self) -> bool:
        """Make the place unreachable; return False where that has no meaning."""
        return False

    gone_passes = 1
    """Passes without a document after which it is no longer listed."""
    immutable = False
    """Whether another text is another document, with a name of its own, as a mail is."""


class SourceContract:
    """What ingestion relies on."""

    def test_listing__has_each_document_once(self, workspace: Workspace) -> None:
        """A listing has each document, and each can be loaded."""
        workspace.put("a.md", "# First")
        workspace.put("b.md", "# Second")
        entries = _list(workspace.open())
        assert sorted(_load(workspace.open(), entry) for entry in entries.values()) == [b"# First", b"# Second"]

    def test_entry__is_json_that_another_process_can_load(self, workspace: Workspace) -> None:
        """An entry survives a job, and its document has the options of the spec."""
        workspace.put("a.md", "# First")
        [entry] = _list(workspace.open()).values()
        stored = json.loads(json.dumps({"source": entry.source, "etag": entry.etag, "locator": dict(entry.locator)}))
        document = workspace.open(**OPTIONS).load(Entry(**stored))
        assert (document.source, document.data, document.acl) == (entry.source, b"# First", ("hr",))
        assert document.metadata["team"] == "x"

    def test_etag__is_the_same_until_the_document_or_its_options_change(self, workspace: Workspace) -> None:
        """A pass over an unchanged source loads nothing."""
        workspace.put("a.md", "# First")
        workspace.put("b.md", "# Second")
        first, again = _list(workspace.open()), _list(workspace.open())
        assert {name: entry.etag for name, entry in first.items()} == {
            name: entry.etag for name, entry in again.items()
        }
        workspace.put("b.md", "# Second, longer")
        changed = _list(workspace.open())
        assert (first.keys() == changed.keys()) is not workspace.immutable
        etags = {entry.etag for entry in first.values()}
        differing = [name for name, entry in changed.items() if entry.etag not in etags]
        assert [_load(workspace.open(), changed[name]) for name in differing] == [b"# Second, longer"]
        narrowed = _list(workspace.open(**OPTIONS))
        assert all(narrowed[name].etag != changed[name].etag for name in changed)

    def test_removed_document__is_covered_and_no_longer_listed(self, workspace: Workspace) -> None:
        """A document that was removed can be removed here."""
        workspace.put("a.md", "# First")
        workspace.put("b.md", "# Second")
        before = _list(workspace.open())
        workspace.remove("b.md")
        for _ in range(workspace.gone_passes - 1):
            _list(workspace.open())
        listing = workspace.open().listing()
        names = {entry.source for entry in listing}
        missing = before.keys() - names
        assert len(missing) == 1
        assert listing.complete
        assert all(listing.covers(name) for name in missing)
        assert listing.refusal_to_prune(sorted(missing)) is None

    def test_listing__does_not_cover_documents_of_others(self, workspace: Workspace) -> None:
        """A pass removes no document of another source."""
        workspace.put("a.md", "# First")
        listing = workspace.open().listing()
        list(listing)
        assert not any(listing.covers(name) for name in ("other/a.md", "https://other.example.org/a.md", "upload.pdf"))

    def test_load__of_a_removed_document_says_so(self, workspace: Workspace) -> None:
        """A document that vanishes between listing and loading is no failure of the source."""
        workspace.put("a.md", "# First")
        workspace.put("b.md", "# Second")
        entries = _list(workspace.open())
        for name in ("a.md", "b.md"):
            workspace.remove(name)
        codes = set()
        for entry in entries.values():
            try:
                workspace.open().load(entry)
            except SourceError as error:
                codes.add(error.code)
        assert codes <= {GONE, "not_found"}

    def test_name__with_a_line_break_is_loaded_or_reported_in_one_line(self, workspace: Workspace) -> None:
        """A name that is hard to show stops no other document."""
        workspace.put("a.md", "# First")
        workspace.put("line\nbreak.md", "# Second")
        listing, source = workspace.open().listing(), workspace.open()
        texts = {_load(source, entry) for entry in listing}
        assert b"# First" in texts
        assert b"# Second" in texts or listing.failures
        assert not any("\n" in failure.message for failure in listing.failures)

    def test_document__that_changes_after_it_was_listed_is_another_one_for_the_next_pass(
        self, workspace: Workspace
    ) -> None:
        """The etag of a listing is the one of the state that it has seen."""
        workspace.put("a.md", "# First")
        listed = _list(workspace.open())
        workspace.put("a.md", "# First, changed")
        for entry in listed.values():
            with suppress(SourceError):
                workspace.open().load(entry)
        etags = {entry.etag for entry in listed.values()}
        assert [entry for entry in _list(workspace.open()).values() if entry.etag not in etags]

    def test_listing__of_an_unreachable_place_removes_nothing(self, workspace: Workspace) -> None:
        """A listing that fails is incomplete."""
        workspace.put("a.md", "# First")
        [name] = _list(workspace.open())
        if not workspace.disconnect():
            return
        listing = workspace.open().listing()
        assert list(listing) == []
        assert not listing.complete
        assert listing.failures
        assert listing.refusal_to_prune([name]) is not None


def _list(source: Source) -> dict[str, Entry]:
    listing = source.listing()
    entries = {entry.source: entry for entry in listing}
    assert listing.complete, listing.failures
    return entries


def _load(source: Source, entry: Entry) -> bytes:
    return source.load(entry).data
