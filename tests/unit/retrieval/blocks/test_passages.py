"""The cache of passages: its limit, and what it copies."""

import gc
import tracemalloc
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kosmos_rag.core.types import PlaceSpan
from kosmos_rag.retrieval.blocks.cache import PassageCache

READER = frozenset({"ann"})
ROWS = range(1_000, 1_025)
"""Of a sheet, in one passage."""


def _row(text: str) -> dict[str, Any]:
    return {"text": text, "metadata": {"tags": ["a"]}, "place_spans": ()}


def _full_row(number: int, places: tuple[PlaceSpan, ...] = ()) -> dict[str, Any]:
    """Return a row whose strings are its own, as the driver makes them."""
    offset = 1_000 * number
    return {
        "chunk_id": uuid.uuid4(),
        "document_id": uuid.uuid4(),
        "version_id": uuid.uuid4(),
        "version": 1,
        "source": f"reports/{number}.xlsx",
        "title": f"Report {number}",
        "media_type": f"text/x-{number}",
        "metadata": {},
        "chunk_index": offset,
        "section": (f"Year {number}",),
        "start": offset,
        "end": offset + 1_000,
        "line_start": offset + 2,
        "line_end": offset + 3,
        "page_start": None,
        "page_end": None,
        "text": f"The year {number} had one result. " * 20,
        "chunker": f"recursive-{number}",
        "collection": f"reports-{number}",
        "parent_span": None,
        "notes": (),
        "principals": (f"group:{number}",),
        "table_context": (f"Results of {number}", f"| {number} | Result |"),
        "place_spans": places,
    }


def _sheet_row(number: int) -> dict[str, Any]:
    offset = 1_000 * number
    return _full_row(
        number,
        tuple([PlaceSpan(offset + row, offset + row, None, f"Sheet {number}", f"A{row}:B{row}") for row in ROWS]),
    )


def test_find__returns_passages_of_this_reader_and_this_part_only() -> None:
    cache = PassageCache(100_000)
    cache.put(READER, {1: 7}, {1: _row("one")})
    assert set(cache.find(READER, {1: 7, 2: 7})) == {1}
    assert cache.find(READER, {1: 8}) == {}
    assert cache.find(frozenset({"ben"}), {1: 7}) == {}


def test_put__evicts_the_least_recently_used() -> None:
    cache = PassageCache(3 * 1_990)
    parts = dict.fromkeys(range(6), 0)
    for number in (1, 2, 3):
        cache.put(READER, parts, {number: _row(f"{number}" * 1_000)})
    cache.find(READER, {1: 0})
    cache.put(READER, parts, {4: _row("4" * 1_000)})
    assert sorted(cache.find(READER, parts)) == [1, 3, 4]
    cache.put(READER, parts, {5: _row("5" * 100_000)})
    assert sorted(cache.find(READER, parts)) == [1, 3, 4]


def test_rows__are_copied_in_and_out() -> None:
    cache = PassageCache(100_000)
    row = _row("one")
    cache.put(READER, {1: 0}, {1: row})
    row["metadata"]["tags"].append("b")
    copied = cache.find(READER, {1: 0})[1]
    copied["metadata"]["tags"].append("c")
    copied["text"] = "two"
    assert cache.find(READER, {1: 0})[1] == _row("one")


def test_rows__are_ids_and_one_tuple_for_the_garbage_collector() -> None:
    cache = PassageCache(20_000_000)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(1_000):
        cache.put(READER, {number: 0}, {number: _sheet_row(number)})
    gc.collect()
    assert len(gc.get_objects()) - before < 4_500, "three ids and a tuple each, and no places"
    passage = cache.find(READER, {1: 0})[1]
    ids = {name: passage[name] for name in ("chunk_id", "document_id", "version_id")}
    assert passage == {**_sheet_row(1), **ids}
    assert isinstance(passage["place_spans"][0], PlaceSpan)


@pytest.mark.parametrize("build", [_full_row, _sheet_row])
def test_bytes__are_the_memory_of_texts_and_of_sheets(build: Callable[[int], dict[str, Any]]) -> None:
    cache = PassageCache(20_000_000)
    tracemalloc.start()
    for number in range(1_000):
        cache.put(READER, {number: 0}, {number: build(number)})
    gc.collect()
    traced_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert cache.bytes == pytest.approx(traced_bytes, rel=0.1)
