"""One run: a seed decides who does what, in which order, and what fails."""

import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.engine.query_hooks import QueryHooks
from kosmos_rag.retrieval.blocks import cache as block_cache
from kosmos_rag.retrieval.views import memory as memory_view
from kosmos_rag.storage.queue import queue as job_queue
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.tenants import tenant
from kosmos_rag.worker import channel as worker_channel
from kosmos_rag.worker.channel import CounterBuffer, SupervisorChannel
from kosmos_rag.worker.handlers.documents import DocumentHandler
from kosmos_rag.worker.handlers.maintenance import count_orphans
from tests.integration.two_models import NEW, OLD
from tests.integration.variants import changed
from tests.simulation.actors import DIRECT, QUEUED, READERS, Supervisor, World, find_number
from tests.simulation.connections import SimulatedPool, Stage, simulate_connections, simulated_driver
from tests.simulation.faults import Clock, FaultPlan
from tests.simulation.model import Model, State, StoredDocument
from tests.simulation.scheduler import Actor, Observer, Scheduler

Act: TypeAlias = Callable[[random.Random], None]
"""A call of an actor, on documents that its dice choose."""
Cast: TypeAlias = dict[str, tuple[Act, ...]]
"""What actors do, by name."""
ListCasts: TypeAlias = Callable[[World], list[Cast]]
"""Lists the actors that may meet in a run."""
SETTINGS: dict[str, Any] = {
    "database.statement_timeout_ms": 0,
    "database.idle_transaction_timeout_ms": 0,
    "rag.retrieval.result_cache": 100,
    "rag.chunking.min_size": 1,
    "indexes.vector": "none",
    "indexes.unsegmented_chunks": 1,
    "worker.max_lost": 100,
}
_STATE = """
SELECT (SELECT coalesce(sum(f.generation), 0)::bigint FROM kosmos.permission_feeds f WHERE f.tenant_id = %(tenant_id)s),
       (SELECT coalesce(json_agg(json_build_array(d.source, d.acl, v.text, d.metadata -> 'stamp')), '[]')
          FROM kosmos.documents d
          JOIN kosmos.document_versions v
            ON v.tenant_id = d.tenant_id AND v.document_id = d.id AND v.number = d.version
         WHERE d.tenant_id = %(tenant_id)s)
"""
_OTHER_READERS = """
SELECT count(*)
  FROM kosmos.chunks c
  JOIN kosmos.documents d ON d.tenant_id = c.tenant_id AND d.id = c.document_id
  JOIN kosmos.document_versions v ON v.tenant_id = c.tenant_id AND v.id = c.version_id
  JOIN kosmos.embeddings e ON e.tenant_id = c.tenant_id AND e.chunk_id = c.id
  LEFT JOIN kosmos.unsegmented_terms t ON t.tenant_id = c.tenant_id AND t.chunk_id = c.id
 WHERE c.tenant_id = %(tenant_id)s
   AND (c.acl <> d.acl OR v.acl <> d.acl OR e.acl <> d.acl OR coalesce(t.acl, d.acl) <> d.acl
        OR EXISTS (SELECT FROM kosmos.filter_terms f
                    WHERE f.tenant_id = d.tenant_id AND f.document_id = d.id AND f.acl <> d.acl))
"""
"""Chunks with a row whose readers are not those of the document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What happened in a run."""

    seed: int
    violations: tuple[str, ...]
    operations: tuple[str, ...]
    """In the order of their starts, and then the states of the database."""
    trace: tuple[str, ...]
    """Each step: actor, statement, fault."""

    def describe(self) -> str:
        """Return the violations with the operations and the last steps before them."""
        return "\n".join([f"seed {self.seed}:", *self.violations, "", *self.operations, "", *self.trace[-60:]])


class Simulation:
    """Runs seeds on one database. Each has a tenant of its own."""

    def __init__(self, settings: Settings, observer: Observer, stage: Stage) -> None:
        self._observer = observer
        self._stage = stage
        self._clock = Clock()
        self._pools: dict[str, SimulatedPool] = {}
        self._background: dict[int, list[Callable[[], None]]] = {}
        self._engines = [self._open(settings, megabytes) for megabytes in (64, 0)]
        memory = self._engines[0]
        queue = Queue.open(memory.database, memory.settings.worker)
        self._channel = SupervisorChannel(Supervisor(), queue)  # type: ignore[arg-type]
        self._handler = DocumentHandler(memory.database, memory.ingest_pipeline, CounterBuffer())

    def _open(self, settings: Settings, megabytes: int) -> Engine:
        changed_settings = changed(settings, {**SETTINGS, "indexes.vector_cache_mb": megabytes})
        # Without wings: no thread of theirs writes meanwhile.
        engine = Engine(changed_settings, embedder=OLD, next_embedder=NEW, query_hooks=lambda _context: QueryHooks())
        simulate_connections(engine, self._pools, self._stage)
        # What no caller waits for runs in the thread of the actor, after its search.
        engine.background.submit = self._put_off  # type: ignore[method-assign]
        return engine

    def _put_off(self, task: Callable[[], None]) -> bool:
        self._background.setdefault(threading.get_ident(), []).append(task)
        return True

    def close(self) -> None:
        """Close engines and connections."""
        self._handler.close()
        for engine in self._engines:
            engine.close()

    def run(self, seed: int, casts: ListCasts | None = None) -> Outcome:
        """Run a seed.

        Args:
            casts: Lists who may meet in the run; by default `list_casts`.
        """
        dice = random.Random(seed)
        name = f"sim{seed}"
        values = {"tenant_id": tenant(name).id}
        self._clock.now = 0.0
        self._background.clear()
        folder = Path(tempfile.mkdtemp(prefix="simulation-"))
        model = Model(read_state=lambda: _read_state(self._observer.connection, values))
        world = World(
            tenant=name, memory=self._engines[0], database=self._engines[1], channel=self._channel,
            handler=self._handler, model=model, observer=self._observer, clock=self._clock, folder=folder,
            collections={source: dice.choice(("default", "other")) for source in (*QUEUED, *DIRECT)},
            background=self._background,
        )  # fmt: skip
        self._stage.on_commit = model.observe
        scheduler = Scheduler(dice, self._observer, FaultPlan(dice).choose)
        try:
            for _ in range(dice.choice((0, 1, 2, 3))):
                dice.choice((world.ingest, world.enqueue))(dice)
            actors = choose_actors(world, dice, (casts or list_casts)(world))
            scheduler.run(actors, lambda: bool(model.violations))
            for actor in actors:
                if actor.error is not None:
                    model.report(f"{actor.name} raised {actor.error!r}")
            if not model.violations:
                if not any(actor.faults for actor in actors):
                    world.check_jobs()
                self._check_end(world)
        finally:
            self._stage.on_commit = _ignore
            self._remove(values)
            shutil.rmtree(folder)
        return Outcome(
            seed=seed,
            violations=tuple(model.violations),
            operations=(*map(str, model.operations), *map(str, model.states)),
            trace=tuple(scheduler.trace),
        )

    def _check_end(self, world: World) -> None:
        """Run what is left, and check what is stored."""
        world.drain()
        if any(operation.kind == "build_indexes" for operation in world.model.operations):
            world.build_indexes(random.Random(0))  # repairs what a killed one has left
        world.model.check_end()
        if any(operation.kind == "mirror" for operation in world.model.operations):
            world.check_mirror()
        for engine, principals in zip(self._engines, READERS[1:], strict=True):
            world.check_search(engine, principals, len(world.model.states) - 1)
        owner = tenant(world.tenant)
        for category, rows in count_orphans(world.memory.database, owner).items():
            if rows:
                world.model.report(f"{category}: {rows}")
        ((rows,),) = self._observer.connection.execute(_OTHER_READERS, {"tenant_id": owner.id}).fetchall()
        if rows:
            world.model.report(f"chunks with other readers than their documents: {rows}")

    def _remove(self, values: Mapping[str, object]) -> None:
        """Remove the jobs of a run: the next one would run them."""
        self._observer.connection.execute("DELETE FROM kosmos.jobs j WHERE j.tenant_id = %(tenant_id)s", values)


def list_casts(world: World) -> list[Cast]:
    """Return the actors that meet in a run."""
    return [
        {
            "client": (world.enqueue, world.enqueue, world.delete),
            "worker-1": (world.work,),
            "worker-2": (world.work,),
        },
        {"writer": (world.ingest, world.ingest, world.delete, world.update_metadata)},
        {"feed-1": (world.sync_permissions,)},
        {"feed-2": (world.sync_permissions,)},
        {"eraser": (world.erase, world.erase, world.erase_all)},
        {"operator": (world.build_indexes, world.reembed)},
        {"memory": (world.search_in_memory,)},
        {"database": (world.search_in_database,)},
    ]


def list_mirroring_casts(world: World) -> list[Cast]:
    """Return the actors of a run with passes over a folder, deletions of collections, and retries of jobs."""
    return [
        {
            "client": (world.enqueue, world.delete, world.retry),
            "mirror": (world.change_file, world.mirror, world.mirror, world.list_folder, world.list_folder),
            "worker-1": (world.work, world.list_folder),
            "worker-2": (world.work,),
        },
        {"files": (world.change_file, world.mirror, world.delete_mirrored)},
        {"remover": (world.delete_collection, world.erase, world.retry)},
        {"feed-1": (world.sync_permissions,)},
        {"operator": (world.build_indexes, world.reembed)},
        {"memory": (world.search_in_memory,)},
        {"database": (world.search_in_database,)},
    ]


def list_feed_casts(world: World) -> list[Cast]:
    """Return the actors of a run where passes of one feed meet: two are in an eighth of the runs of all kinds."""
    return [
        {"feed-1": (world.sync_permissions,), "feed-2": (world.sync_permissions,)},
        {"feed-3": (world.sync_permissions,)},
        {"writer": (world.ingest, world.ingest, world.delete)},
        {"remover": (world.delete_collection, world.erase)},
    ]


def list_tenant_casts(world: World) -> list[Cast]:
    """Return the actors of a run where publications meet erasures of their tenant, and moves to another model."""
    return [
        {"writer-1": (world.ingest,), "writer-2": (world.ingest, world.delete)},
        {"client": (world.enqueue,), "worker-1": (world.work,)},
        {"operator": (world.reembed,)},
        {"eraser": (world.erase_all,)},
    ]


def choose_actors(world: World, dice: random.Random, casts: Sequence[Cast]) -> list[Actor]:
    """Return the actors of a run: not all of them, so that some meet often."""
    chosen = dice.sample(casts, dice.randint(2, 4))
    acts = {name: choices for cast in chosen for name, choices in cast.items()}
    if "client" in acts:
        acts["clock"] = (world.let_time_pass,)
    return [Actor(name, _script(choices, dice.randrange(2**32), dice.randint(1, 3))) for name, choices in acts.items()]


def _ignore() -> None:
    """Observe nothing."""


def _script(choices: tuple[Act, ...], seed: int, length: int) -> Callable[[], None]:
    dice = random.Random(seed)

    def run() -> None:
        for _ in range(length):
            dice.choice(choices)(dice)

    return run


def _read_state(connection: psycopg.Connection, values: Mapping[str, object]) -> State:
    ((passes, documents),) = connection.execute(_STATE, values).fetchall()
    return State(
        documents={
            source: StoredDocument(number=find_number(text), acl=frozenset(acl), stamp=stamp or 0)
            for source, acl, text, stamp in documents
            if source in (*QUEUED, *DIRECT)
        },
        passes=passes,
    )


@contextmanager
def opened_simulation(settings: Settings, *, is_local: bool) -> Iterator[Simulation]:
    """Open a simulation over a database of its own.

    Args:
        settings: With the address of the database.
        is_local: Whether the server is on this machine.
    """
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(block_cache, "MISSES", 1)
        patch.setattr(memory_view, "_WAIT_S", 0.0)
        admin = settings.database.admin_url or ""
        connection = stack.enter_context(psycopg.connect(admin, autocommit=True))
        connection.execute("SET synchronous_commit = off")
        observer = Observer(connection=connection, is_local=is_local)
        stage = Stage(observer=observer, on_commit=_ignore)
        stack.enter_context(simulated_driver(stage))
        simulation = Simulation(settings, observer, stage)
        for module in (job_queue, worker_channel):
            patch.setattr(module, "time", simulation._clock)
        stack.callback(simulation.close)
        yield simulation
