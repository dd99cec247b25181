"""What passes over a site find, kept in a file."""

import errno
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

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


_KILLED = """
import time
from kosmos_rag.ingestion.sources.pass_items import *
with open_items("wiki", "a") as items:
    items.put(PassItem("2", "HR", {}))
    print("ready", flush=True)
    time.sleep(600)
"""


def test_copies__of_killed_passes_are_removed_and_those_of_others_stay(folder: Path) -> None:
    def names() -> list[str]:
        return sorted(path.suffix for path in folder.iterdir())

    with open_items("wiki", "a") as items:
        items.put(PassItem("1", "ENG", {}))
    with subprocess.Popen([sys.executable, "-c", _KILLED], stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            process.stdout.readline()
            [part] = folder.glob("*.part")
            os.utime(part, (time.time() - 3600,) * 2)
            _read()
            assert names() == [".part", ".sqlite"], "another process works on it"
        finally:
            process.kill()
    _read()
    assert names() == [".sqlite"]
    assert [item.id for item in _read()] == ["1"]


def test_states__that_no_pass_uses_any_more_are_removed(folder: Path) -> None:
    ages = {"b": 91, "c": 89}
    for identity, days in ages.items():
        before = set(folder.glob("*"))
        with open_items("wiki", identity):
            pass
        [state] = set(folder.iterdir()) - before
        os.utime(state, (time.time() - days * 86400,) * 2)
    _read()
    assert len(list(folder.iterdir())) == 2


def test_items__stay_where_the_disk_is_full_or_a_copy_is_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = PassItem("1", "ENG", {})
    with open_items("wiki", "a") as items:
        items.put(item)
    copy = shutil.copyfileobj
    for number in (errno.ENOSPC, errno.EIO):

        def cut(source: BinaryIO, target: BinaryIO, number: int = number) -> None:
            target.write(source.read(4096))
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(shutil, "copyfileobj", cut)
        if number == errno.ENOSPC:
            with pytest.raises(SourceError, match="make room there"):
                _read()
        else:
            assert _read() == []
        monkeypatch.setattr(shutil, "copyfileobj", copy)
        assert [path.suffix for path in folder.iterdir()] == [".sqlite"]
        assert _read() == [item]


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
