"""The cache of passages: its limit, and what it copies."""

import gc
import uuid
from typing import Any

from kosmos_rag.retrieval.blocks.cache import PassageCache

READER = frozenset({"ann"})


def _row(text: str) -> dict[str, Any]:
    return {"text": text, "metadata": {"tags": ["a"]}}


def test_find__returns_passages_of_this_reader_and_this_part_only() -> None:
    cache = PassageCache(100_000)
    cache.put(READER, {1: 7}, {1: _row("one")})
    assert set(cache.find(READER, {1: 7, 2: 7})) == {1}
    assert cache.find(READER, {1: 8}) == {}
    assert cache.find(frozenset({"ben"}), {1: 7}) == {}


def test_put__evicts_the_least_recently_used() -> None:
    cache = PassageCache(3 * 1_900)
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


def test_rows__are_two_ids_and_a_tuple_for_the_garbage_collector() -> None:
    rows = {
        number: {
            **_row("one"),
            "metadata": {},
            "document_id": uuid.uuid4(),
            "version_id": uuid.uuid4(),
            "section": ("Notes",),
        }
        for number in range(1_000)
    }
    cache = PassageCache(10_000_000)
    gc.collect()
    before = len(gc.get_objects())
    cache.put(["ann"], dict.fromkeys(rows, 0), rows)
    ids = [row["document_id"] for row in rows.values()], [row["version_id"] for row in rows.values()]
    rows.clear()
    gc.collect()
    assert len(gc.get_objects()) - before < 100, "a row was a dictionary and is a tuple"
    assert [cache.find(["ann"], {number: 0})[number]["version_id"] for number in range(1_000)] == ids[1]
