import threading
import time

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from kosmos_rag import Settings, SourceDocument
from kosmos_rag.retrieval.views.memory import MemoryView, Turns
from tests.integration.variants import opened

LONG_S = 60.0


def wait_until_waiting(turns: Turns, count: int) -> None:
    deadline = time.monotonic() + LONG_S
    while len(turns._waiting) < count:
        assert time.monotonic() < deadline, "the threads did not arrive"
        time.sleep(0.001)


def test_take__lets_as_many_threads_work_as_there_are_turns() -> None:
    turns, at_work, most, lock = Turns(2), [], [], threading.Lock()

    def work() -> None:
        for _ in range(50):
            with turns.take(LONG_S):
                with lock:
                    at_work.append(1)
                    most.append(len(at_work))
                time.sleep(0)
                with lock:
                    at_work.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 2
    assert len(most) == 400


def test_take__serves_threads_in_the_order_of_their_arrival() -> None:
    turns, order = Turns(1), list[int]()

    def work(number: int) -> None:
        with turns.take(LONG_S):
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    with turns.take(LONG_S):
        for count, thread in enumerate(threads, start=1):
            thread.start()
            wait_until_waiting(turns, count)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_take__works_without_a_turn_after_the_timeout() -> None:
    turns = Turns(1)
    with turns.take(LONG_S), turns.take(0.0):
        pass
    # The turn that was not waited for is nobody's: the next one has it at once, and it alone.
    with turns.take(0.0):
        assert turns._free == 0
    assert turns._free == 1


def test_take__returns_the_turn_after_an_error() -> None:
    turns = Turns(1)
    with pytest.raises(ValueError, match="no block"), turns.take(LONG_S):
        raise ValueError("no block")
    assert turns._free == 1


def test_take__keeps_every_turn_where_waits_end_as_turns_are_passed_on() -> None:
    turns = Turns(2)

    def work() -> None:
        for _ in range(300):
            with turns.take(0.0002):
                time.sleep(0.0001)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert turns._free == 2
    assert not turns._waiting


@pytest.mark.usefixtures("early_blocks")
@pytest.mark.parametrize("read", ["collection_statistics", "chunks"], ids=["state", "passages"])
def test_search__has_no_turn_while_the_server_keeps_it_waiting(settings: Settings, read: str) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with opened(settings, {}) as engine:
        scope = engine.tenant("acme")
        scope.ingest([SourceDocument(source="travel.md", data=b"The per diem is 40 euros.")])
        scope.search("per diem")
        assert scope._parts.background.drain(LONG_S)
        view = engine._components.pipelines.default.search._resources.views[0]
        assert isinstance(view, MemoryView)
        free = view._turns._free
        search = threading.Thread(target=scope.search, args=("euros",))
        with psycopg.connect(settings.database.admin_url or "") as admin:
            admin.execute(SQL("LOCK TABLE kosmos.{} IN ACCESS EXCLUSIVE MODE").format(Identifier(read)))
            search.start()
            deadline = time.monotonic() + LONG_S
            while admin.execute(waiting).fetchone() == (0,):
                assert time.monotonic() < deadline, "the search did not reach the server"
                time.sleep(0.01)
            time.sleep(0.1)
            assert view._turns._free == free
        search.join()
        assert view.blocks.hits == 1
