"""No interleaving of statements, with faults, loses a document or shows one to a reader who may not see it."""

import os
import random
import threading
import time
from functools import partial

import psycopg
import pytest

from kosmos_rag.core.errors import StatementFailed
from kosmos_rag.storage.tenants import tenant
from tests.conftest import Server
from tests.simulation.conftest import OpenSimulation
from tests.simulation.scheduler import Actor, Observer, Scheduler
from tests.simulation.simulation import ListCasts, Simulation, list_feed_casts, list_mirroring_casts, list_tenant_casts

pytestmark = pytest.mark.direct_connection("the scheduler follows the server's process of each connection")

QUICK, QUICK_MIRRORS, QUICK_FEW = "0:100", "0:50", "0:25"
"""Seeds of `make test`. Planted faults are found at 2, 3, 44, 51, 59 and 216; with few kinds of actors at 2 and 22."""
BLOCK = 25
"""Seeds of one test."""


def _blocks(quick: str) -> list[range]:
    first, _, last = os.environ.get("KOSMOS_TEST_SEEDS", quick).partition(":")
    seeds = range(int(first), int(last or int(first) + 1))
    return [seeds[at : at + BLOCK] for at in range(0, len(seeds), BLOCK)]


@pytest.mark.parametrize("seeds", _blocks(QUICK), ids=lambda seeds: f"{seeds.start}:{seeds.stop}")
def test_seeds__violate_nothing(simulation: Simulation, seeds: range) -> None:
    """No interleaving of writers shows a document to a reader who may not see it, and none loses one."""
    failed = [outcome for outcome in map(simulation.run, seeds) if outcome.violations]
    assert not failed, "\n\n".join(outcome.describe() for outcome in failed)


@pytest.mark.parametrize("seeds", _blocks(QUICK_MIRRORS), ids=lambda seeds: f"{seeds.start}:{seeds.stop}")
def test_mirrors__are_as_their_folder_after_a_pass(simulation: Simulation, seeds: range) -> None:
    """Passes, workers, deletions and retries, in any interleaving, leave a collection as its folder is."""
    failed = [outcome for seed in seeds if (outcome := simulation.run(seed, list_mirroring_casts)).violations]
    assert not failed, "\n\n".join(outcome.describe() for outcome in failed)


@pytest.mark.parametrize("casts", [list_feed_casts, list_tenant_casts])
@pytest.mark.parametrize("seeds", _blocks(QUICK_FEW), ids=lambda seeds: f"{seeds.start}:{seeds.stop}")
def test_few_kinds_of_actors__violate_nothing(simulation: Simulation, seeds: range, casts: ListCasts) -> None:
    """Passes of one feed, and publications with erasures of the tenant, seldom meet among all kinds of actors."""
    failed = [outcome for seed in seeds if (outcome := simulation.run(seed, casts)).violations]
    assert not failed, "\n\n".join(outcome.describe() for outcome in failed)


def test_publication__that_an_erasure_overtakes_creates_the_tenant_again(simulation: Simulation) -> None:
    """It waited for the erasure, failed at a foreign key, and then ended because the space that it knew was gone."""
    assert simulation.run(710).violations == ()


def test_seed__gives_the_same_run_in_another_database(open_simulation: OpenSimulation, server: Server) -> None:
    if server.folder is None:
        pytest.skip("the processes of the server are not on this machine: its scheduling decides some races")
    runs = []
    for _ in range(2):
        with open_simulation() as simulation:
            runs.append([simulation.run(seed).trace for seed in range(4)])
    assert runs[0] == runs[1]
    assert any("[" in step for trace in runs[0] for step in trace), "no run has a fault"


def test_lock__that_no_actor_holds_is_named_with_its_session(simulation: Simulation) -> None:
    worker, observer = simulation._engines[0].database.worker, simulation._observer

    def wait() -> None:
        with worker.transaction(tenant("waiter").id, []) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(1)")

    with psycopg.connect(worker._conninfo) as holder:
        holder.execute("SELECT pg_advisory_lock(1)")
        pid = holder.info.backend_pid
        scheduler = Scheduler(random.Random(0), observer, lambda _actor: None)
        with pytest.raises(RuntimeError, match=r"waiter \(\d+\) wait for a lock") as raised:
            scheduler.run([Actor("waiter", wait)], lambda: False)
    assert f"{pid} (idle in transaction) waits for []: SELECT pg_advisory_lock(1)" in str(raised.value)


class _BusyObserver(Observer):
    """A server that cancels late, and answers later."""

    def is_blocked(self, pid: int) -> bool:
        blocked = super().is_blocked(pid)
        time.sleep(0.2)
        return blocked

    def cancel(self, pid: int) -> None:
        threading.Timer(0.05, super().cancel, [pid]).start()


def test_deadlock__ends_its_victim_on_a_busy_server(simulation: Simulation) -> None:
    """The victim was taken for a blocked statement, and suspended: the run waited for ever."""
    worker, observer = simulation._engines[0].database.worker, simulation._observer
    busy = _BusyObserver(connection=observer.connection, is_local=observer.is_local)

    def lock(*keys: int) -> None:
        with worker.transaction(tenant("locks").id, []) as connection:
            for key in keys:
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [key])

    errors = []
    for seed in range(6):
        actors = [Actor("up", partial(lock, 1, 2)), Actor("down", partial(lock, 2, 1))]
        Scheduler(random.Random(seed), busy, lambda _actor: None).run(actors, lambda: False)
        errors += [actor.error.sqlstate for actor in actors if isinstance(actor.error, StatementFailed)]
    assert "40P01" in errors
