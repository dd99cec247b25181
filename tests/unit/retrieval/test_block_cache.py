"""The cache of passages: its limit, and what it copies."""

from typing import Any
from uuid import UUID

from kosmos_rag.retrieval.blocks.block import PassageCache


def _row(text: str) -> dict[str, Any]:
    return {"text": text, "metadata": {"tags": ["a"]}}


def test_find__returns_passages_of_this_reader_only() -> None:
    cache = PassageCache(100_000)
    cache.put(("state", "ann"), {1: _row("one")})
    assert set(cache.find(("state", "ann"), [UUID(int=1), UUID(int=2)])) == {1}
    assert cache.find(("state", "ben"), [UUID(int=1)]) == {}


def test_put__evicts_the_least_recently_used() -> None:
    cache = PassageCache(3 * 4_000)
    for number in (1, 2, 3):
        cache.put("reader", {number: _row(f"{number}" * 1_000)})
    cache.find("reader", [UUID(int=1)])
    cache.put("reader", {4: _row("4" * 1_000)})
    assert sorted(cache.find("reader", [UUID(int=number) for number in range(6)])) == [1, 3, 4]
    cache.put("reader", {5: _row("5" * 100_000)})
    assert sorted(cache.find("reader", [UUID(int=number) for number in range(6)])) == [1, 3, 4]


def test_rows__are_copied_in_and_out() -> None:
    cache = PassageCache(100_000)
    row = _row("one")
    cache.put("reader", {1: row})
    row["metadata"]["tags"].append("b")
    found = cache.find("reader", [UUID(int=1)])[1]
    found["metadata"]["tags"].append("c")
    found["text"] = "two"
    assert cache.find("reader", [UUID(int=1)])[1] == _row("one")
