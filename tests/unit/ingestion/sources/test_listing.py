"""What a listing says of itself once it is at its end."""

import tracemalloc
from collections.abc import Iterator

import pytest

from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure
from kosmos_rag.ingestion.sources.listing import MAX_FAILURES, Entry, Listing, drop_duplicates

Found = Entry | IngestFailure


def _entry(source: str) -> Entry:
    return Entry(source=source, etag="1", locator={})


def _failure(source: str = "x") -> IngestFailure:
    return IngestFailure(source=source, code="unreadable", message="broken")


def _listing(*entries: Found) -> Listing:
    return Listing("place", entries, lambda source: True)


def test_listing__is_complete_only_once_it_is_at_its_end() -> None:
    listing = _listing(_entry("a"), _entry("b"))
    pass_ = iter(listing)
    next(pass_)
    assert not listing.complete
    list(pass_)
    assert listing.complete


def test_listing__given_up_halfway_is_not_complete() -> None:
    listing = _listing(_entry("a"), _entry("b"))
    for _ in listing:
        break
    assert not listing.complete
    assert listing.refusal_to_prune(["b"]) is not None


def test_listing__a_failure_makes_it_incomplete_and_others_go_on() -> None:
    listing = _listing(_entry("a"), _failure(), _entry("b"))
    assert [entry.source for entry in listing] == ["a", "b"]
    assert not listing.complete
    assert listing.failures == [_failure()]


def test_listing__an_error_of_the_source_ends_it() -> None:
    def entries() -> Iterator[Found]:
        yield _entry("a")
        raise SourceError("unavailable", "gone away")

    listing = Listing("place", entries(), lambda source: True)
    assert [entry.source for entry in listing] == ["a"]
    assert [(failure.source, failure.code) for failure in listing.failures] == [("place", "unavailable")]
    assert not listing.complete


def test_listing__is_lazy() -> None:
    def endless() -> Iterator[Found]:
        while True:
            yield _entry("a")

    assert next(iter(Listing("place", endless(), lambda source: True))).source == "a"


def test_listing__of_garbage_ends() -> None:
    def garbage() -> Iterator[Found]:
        while True:
            yield _failure()

    listing = Listing("place", garbage(), lambda source: True)
    assert list(listing) == []
    assert len(listing.failures) == MAX_FAILURES + 1
    assert "the rest was not listed" in listing.failures[-1].message


@pytest.mark.parametrize("name", ["a\x00b", "x" * 3000, "lone \udc80"])
def test_listing__names_that_cannot_be_stored_are_failures(name: str) -> None:
    listing = _listing(_entry(name), _entry("good"))
    assert [entry.source for entry in listing] == ["good"]
    [failure] = listing.failures
    assert failure.code == "unreadable"
    failure.source.encode()
    assert "\x00" not in failure.source + failure.message


def test_refusal__of_an_empty_source_and_none_without_missing_ones() -> None:
    listing = _listing()
    list(listing)
    assert listing.complete
    assert listing.refusal_to_prune([]) is None
    refusal = listing.refusal_to_prune(["a"])
    assert refusal is not None
    assert refusal.code == "empty_folder"


def test_refusal__none_where_others_are_left() -> None:
    listing = _listing(_entry("a"))
    list(listing)
    assert listing.refusal_to_prune(["b"]) is None


def test_repeats__only_the_first_passes() -> None:
    result = list(drop_duplicates([_entry("a"), _entry("b"), _entry("a"), _failure()]))
    assert [item.source for item in result if isinstance(item, Entry)] == ["a", "b"]
    assert [item.code for item in result if isinstance(item, IngestFailure)] == ["duplicate", "unreadable"]


def test_repeats__of_a_place_that_may_have_them_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    entries = (_entry("Untitled.docx") for _ in range(MAX_FAILURES + 2))
    listing = Listing("drive", drop_duplicates([*entries, _entry("b")], allow_in="drive"), lambda _: True)
    assert [entry.source for entry in listing] == ["Untitled.docx", "b"]
    assert listing.complete
    assert listing.refusal_to_prune(["removed"]) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"drive: {MAX_FAILURES + 1} files have the name of another one; rename them"
    ]


def test_listing__of_many_entries_needs_little_memory_for_each() -> None:
    count = 50_000
    entries = (Entry(source=f"documents/of/a/large/source/{n}.md", etag=str(n), locator={}) for n in range(count))
    listing = Listing("documents", drop_duplicates(entries), lambda _: True)
    tracemalloc.start()
    listed = sum(1 for _ in listing)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert listed == count
    assert peak / count < 200
