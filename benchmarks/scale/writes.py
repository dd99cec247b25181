"""Measure writes to a large tenant, and questions during maintenance.

It also measures the time until a new chunk is found.
"""

import multiprocessing
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale.data import Data
from benchmarks.scale.load import LARGEST, create, publish_block
from benchmarks.scale.measure import NEW_WORD, Prepared, ask, embedder, settings
from kosmos_rag import Engine, Tenant
from kosmos_rag.storage.database import Database

REPEATS = 5


def measure_publishing(database: Database, data: Data, prepared: Prepared, chunks: int) -> dict[str, Any]:
    """Publish so many chunks into the largest tenant and into an empty one, in turn; medians of five."""
    seconds: dict[str, list[float]] = {"largest": [], "empty": []}
    blocks = data.blocks(2 * REPEATS * chunks, size=chunks, seed=1)
    for repeat in range(REPEATS):
        empty = f"empty-{repeat}"
        create(database, empty, prepared)
        for kind, name in (("empty", empty), ("largest", LARGEST)):
            seconds[kind].append(publish_block(database, name, next(blocks), prepared))
    medians = {kind: statistics.median(times) for kind, times in seconds.items()}
    return {
        "chunks": chunks,
        **{f"{kind}_ms": round(median * 1000, 1) for kind, median in medians.items()},
        "ratio": round(medians["largest"] / medians["empty"], 3),
    }


def check_visibility(database: Database, data_dir: Path, prepared: Prepared) -> dict[str, bool]:
    """Publish one chunk of a word that no other has, and ask for it: whether each retriever has it first."""
    publish_block(database, LARGEST, ([NEW_WORD], prepared.embed([NEW_WORD])), prepared)
    with Engine(settings(data_dir, prepared.dimensions, {}), embedder=prepared) as engine:
        hits = [hit for hit in engine.tenant(LARGEST).search(NEW_WORD, 10).hits if hit.text == NEW_WORD]
    return {
        "lexical": any(hit.lexical_rank == 1 for hit in hits),
        "dense": any(hit.dense_rank == 1 for hit in hits),
    }


def maintenance(data_dir: Path, data: Data, engine: Engine, questions: Sequence[str]) -> dict[str, Any]:
    """Ask the largest tenant while another process builds its indexes again; the ratio of the medians.

    `build` takes in what was published since, `rebuild` starts from nothing.
    """
    tenant = engine.tenant(LARGEST)
    ask(tenant, questions)
    _, quiet = ask(tenant, questions)
    result: dict[str, Any] = {"quiet_p50_ms": round(statistics.median(quiet), 2)}
    for work in ("build", "rebuild"):
        began = time.perf_counter()
        busy = _ask_during(data_dir, data.name, work, tenant, questions)
        result[f"index_{work}"] = {
            "seconds": round(time.perf_counter() - began, 1),
            "queries": len(busy),
            "p50_ms": round(statistics.median(busy), 2) if busy else None,
            "ratio": round(statistics.median(busy) / statistics.median(quiet), 2) if busy else None,
        }
    return result


def _ask_during(data_dir: Path, data: str, work: str, tenant: Tenant, questions: Sequence[str]) -> list[float]:
    """Ask for as long as a process of its own works; the time of its start does not count."""
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    process = context.Process(target=_work, args=(data_dir, data, work, tenant.name, started))
    process.start()
    times: list[float] = []
    while process.is_alive() and not started.wait(0.1):
        pass
    while process.is_alive():
        _, more = ask(tenant, [questions[len(times) % len(questions)]])
        times += more
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work} of tenant {tenant.name} failed in its process, with exit code {process.exitcode}")
    return times


def _work(data_dir: Path, data: str, work: str, name: str, started: Any) -> None:
    model = embedder(data)
    with Engine(settings(data_dir, model.dimensions, {}), embedder=model) as engine:
        tenant = engine.tenant(name)
        started.set()
        getattr(tenant.indexes, work)()
