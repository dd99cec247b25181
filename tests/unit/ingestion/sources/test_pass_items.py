"""What passes over a site find, kept in a file."""

import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.pass_items import PassItem, PassItems, open_items


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kosmos-rag" / "wiki"


def _read() -> list[PassItem]:
    with open_items("wiki", "a") as items:
        return list(items)


def test_items__are_those_of_the_last_pass_that_ended(folder: Path) -> None:
    page, comment = PassItem("1", "ENG", {"version": 1}), PassItem("2", "HR", {"version": 1}, "1")
    with open_items("wiki", "a") as items:
        items.put(page)
        items.put(comment)
        items.write_state({"listed": 1.5})
    with open_items("wiki", "a") as items:
        assert (items.read_state(), items.count()) == ({"listed": 1.5}, {"ENG": 1, "HR": 1})
        assert list(items.list_children("1")) == [comment]
        items.put(page._replace(value={"version": 2}))
        items.remove_others(["ENG"])
    with suppress(SourceError), open_items("wiki", "a") as items:
        items.remove("1")
        raise SourceError("unavailable", "the server is gone")
    assert _read() == [page._replace(value={"version": 2})]
    assert [path.suffix for path in folder.iterdir()] == [".sqlite"], "no copy is left"
    with open_items("wiki", "b") as items:
        assert (list(items), items.read_state()) == ([], {})


def test_items__that_are_broken_or_cannot_be_kept_are_those_of_a_first_pass(folder: Path) -> None:
    def find(items: PassItems) -> None:
        items.put(PassItem("1", "ENG", {}))

    with open_items("wiki", "a") as items:
        find(items)
    [path] = folder.iterdir()
    path.write_bytes(path.read_bytes()[:100] + b"x" * 8000)
    assert _read() == []
    path.unlink()
    folder.rmdir()
    folder.write_text("no folder")
    for _ in range(2):
        with open_items("wiki", "a") as items:
            assert list(items) == []
            find(items)
            assert items.count() == {"ENG": 1}


def test_items__need_no_memory() -> None:
    tracemalloc.start()
    try:
        with open_items("wiki", "a") as items:
            for number in range(20_000):
                items.put(PassItem(str(number), "ENG", {"version": 1}))
            assert sum(1 for _ in items) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
