"""Measure the cost of questions and publications on Citus and on one server.

    python -m benchmarks.citus --programs /usr/lib/postgresql/18/bin [--json FILE] [--quick]

The programs are of a PostgreSQL with Citus and pgvector, by default those that KOSMOS_TEST_CITUS_BIN names. The costs
are CPU seconds of the servers' processes, so other load on the machine changes little. Every server runs here.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.citus_cluster import LocalCluster, citus_cluster
from benchmarks.command import command, parse, write_results
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.provision import APP, OWNER, WORKER
from kosmos_rag.storage.setup import distribute_tables, set_up

_GOALS = {"publishing": 0.2, "publishing, use_nodes": 0.2, "question": 0.15, "question, use_nodes": 0.15}
"""Share of a single server's cost that the coordinator may have."""
_WORDS = tuple(f"word{number}" for number in range(3000))


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured."""

    tenants: int
    documents: int
    """Of each tenant; every one has about four chunks."""
    batch: int
    """Documents of one publication."""
    questions: int
    """Of each tenant."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """CPU milliseconds of one chunk or one question."""

    coordinator: float
    workers: float

    def row(self) -> dict[str, float]:
        """Return the figures."""
        return {"coordinator_ms": round(self.coordinator, 3), "workers_ms": round(self.workers, 3)}


def _documents(tenant: int, size: Size) -> list[SourceDocument]:
    documents = []
    for number in range(size.documents):
        # A linear congruence: the same texts in every run, without a frequent word.
        words = [_WORDS[(tenant * 7919 + number * 104729 + place * place * 31) % len(_WORDS)] for place in range(400)]
        paragraphs = [" ".join(words[start : start + 100]) + "." for start in range(0, 400, 100)]
        documents.append(SourceDocument(source=f"d{number}", data="\n\n".join(paragraphs).encode()))
    return documents


def _cost(cluster: LocalCluster, count: int, call: Callable[[], object]) -> Cost:
    gc.collect()
    before = [node.cpu_s() for node in cluster.nodes]
    call()
    spent = [(node.cpu_s() - start) * 1000 / count for node, start in zip(cluster.nodes, before, strict=True)]
    return Cost(coordinator=spent[0], workers=sum(spent[1:]))


def measure(programs: Path, size: Size, *, workers: int) -> dict[str, Cost]:
    """Return the costs on a cluster; without workers on a single server."""
    passwords = dict.fromkeys(("postgres", OWNER, APP, WORKER), "benchmark")
    with citus_cluster(programs, passwords=passwords, workers=workers) as cluster:
        cluster.create_database("kosmos")
        database = cluster.settings("kosmos")
        set_up(database)
        if workers:
            distribute_tables(database)
        for node in cluster.nodes:
            with psycopg.connect(cluster.url("postgres", "postgres", node), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET autovacuum = off")
                connection.execute("SELECT pg_reload_conf()")
        loaded = Settings.load(
            overrides={
                "rag.reranking.enabled": False,
                "rag.chunking.strategy": "paragraph",
                "rag.retrieval.result_cache": 0,
                "indexes.unsegmented_chunks": 100,
                "indexes.vector_min_chunks": 200,
            }
        )
        settings = loaded.model_copy(update={"database": database})
        asking = settings.model_copy(update={"database": database.model_copy(update={"use_nodes": True})})
        names = [f"tenant-{number}" for number in range(size.tenants)]
        with Engine(settings, embedder=HashingEmbedder(dimensions=384)) as engine:
            costs = {"publishing": _publish(cluster, engine, names, size)}
            for name in names:
                engine.tenant(name).indexes.build()
            with psycopg.connect(engine.database.admin_conninfo, autocommit=True) as connection:
                connection.execute("VACUUM (ANALYZE)")
            costs["question"] = _ask(cluster, engine, names, size)
        with Engine(asking, embedder=HashingEmbedder(dimensions=384)) as engine:
            others = [f"other-{number}" for number in range(size.tenants)]
            costs["question, use_nodes"] = _ask(cluster, engine, names, size)
            return costs | {"publishing, use_nodes": _publish(cluster, engine, others, size)}


def _publish(cluster: LocalCluster, engine: Engine, names: Sequence[str], size: Size) -> Cost:
    for name in names:
        engine.tenant(name).ingest([SourceDocument(source="first", data=b"The first document opens connections.")])

    def publish() -> None:
        for number, name in enumerate(names):
            documents = _documents(number, size)
            for start in range(0, len(documents), size.batch):
                engine.tenant(name).ingest(documents[start : start + size.batch])

    return _cost(cluster, size.tenants * size.documents * 4, publish)


def _ask(cluster: LocalCluster, engine: Engine, names: Sequence[str], size: Size) -> Cost:
    def ask() -> None:
        for number, name in enumerate(names):
            for question in range(size.questions):
                words = [_WORDS[(number * 7919 + question * 37 + place * 11) % len(_WORDS)] for place in range(6)]
                assert engine.tenant(name).search(" ".join(words), 10) is not None

    # New questions load blocks, then read passages; what is measured finds both in memory.
    for _ in range(2):
        ask()
        assert engine.background.drain(60)
    return _cost(cluster, size.tenants * size.questions, ask)


def main() -> None:
    """Measure a single server and a cluster, and print the table."""
    parser = command(__doc__, "citus.json")
    parser.add_argument(
        "--programs",
        type=Path,
        default=os.environ.get("KOSMOS_TEST_CITUS_BIN"),
        metavar="FOLDER",
        help="programs of a PostgreSQL with Citus and pgvector",
    )
    arguments = parse(parser)
    if not arguments.programs:
        print("skipped: it needs --programs or KOSMOS_TEST_CITUS_BIN, a PostgreSQL with Citus and pgvector")
        if not arguments.quick:
            sys.exit(2)
        return
    quick: bool = arguments.quick
    size = (
        Size(tenants=2, documents=4, batch=2, questions=2)
        if quick
        else Size(tenants=4, documents=120, batch=20, questions=100)
    )
    single = measure(arguments.programs, size, workers=0)
    cluster = measure(arguments.programs, size, workers=2)
    results = {}
    print("CPU ms | single server | coordinator | workers | coordinator / single | goal")
    for operation, goal in _GOALS.items():
        alone, spread = single[operation].coordinator, cluster[operation]
        share = spread.coordinator / max(alone, 1e-9)
        print(f"{operation} | {alone:.2f} | {spread.coordinator:.2f} | {spread.workers:.2f} | {share:.2f} | {goal}")
        results[operation] = {"single_ms": round(alone, 3), "share": round(share, 3)} | spread.row()
    write_results(arguments.json, results)


if __name__ == "__main__":
    main()
