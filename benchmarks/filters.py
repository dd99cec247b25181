"""Measure filters, and readers who may read little, in a large tenant.

    python -m benchmarks.filters [--chunks N] [--data natural|zipf] [--json FILE] [--quick]

One tenant of half of the chunks and another of the rest. Each document of ten chunks has a random ticket of 1,000, each
ten tickets are a project and each ten projects a team: a filter on one team, project or ticket leaves 10, 1 or 0.1 % of
the documents. Readers of one team, project or ticket may read as much. The dense retriever alone is asked for ten hits,
with prepared vectors, by the public API, from 50 candidates, the default, and from ten; from 50 also when the process
has the vectors in memory, after its first hundred questions under the condition. Recall is against a scan of all
vectors that may be found. The alternative is pgvector's iterative scan of an index of the same kind for as many
candidates, over one table of vectors and metadata, as an administrator, without row-level security and passages.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import cycle, islice, product
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg import sql
from rich.console import Console
from rich.table import Table

from benchmarks.command import command, parse, temporary_folder, write_results
from benchmarks.scale.data import MADE, SmallZipfData, load_data
from benchmarks.scale.load import Say, Share, build_indexes, clock, publish_all, vacuum
from benchmarks.scale.measure import DENSE, ONLY, Prepared, Times, embedder, percentiles, recall, settings
from benchmarks.scale.peers import connect, time_all
from kosmos_rag import Engine, Filter, SearchResult, Tenant
from kosmos_rag.models.embedding.space import PROBE
from kosmos_rag.retrieval.blocks.cache import MISSES_OF_FILTER
from kosmos_rag.storage.database import Database, resolve_addresses
from kosmos_rag.storage.tenants import tenant

LARGE = "large"
STAFF = "group:staff"
"""May read every document."""
TICKETS = 1_000
K = 10
CANDIDATES = (50, K)
"""Of a retriever: fusion and reranking need more than are returned."""
OURS, IN_MEMORY = "kosmos_rag", "kosmos_rag, in memory"
CACHE = "indexes.vector_cache_mb"
STAGES = ("plan", DENSE)
"""Of a search: the documents that a filter leaves are listed in the first."""
_FIRST = MISSES_OF_FILTER + 10
"""Questions after which the vectors of a condition are loaded."""
_LOAD_S = 15.0
"""How long that may take."""
_COMPARED = 100
"""Questions whose true nearest chunks are found by a scan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What one way costs and finds under one condition. Times are milliseconds."""

    condition: str
    percent: float
    """Share of the documents that the condition leaves."""
    way: str
    candidates: int
    plan: str
    p50: float
    p95: float
    p99: float
    recall_10: float
    in_retriever: Times | None = None
    """Of `STAGES`; the rest of the call is the transaction, its snapshot and the passages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """A value of a key of metadata, and the share of the documents that have it."""

    key: str
    value: str
    percent: float


CONDITIONS = (
    Condition(key="team", value="team-0", percent=10),
    Condition(key="project", value="project-0", percent=1),
    Condition(key="ticket", value="ticket-0", percent=0.1),
)


def describe(dice: random.Random) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the metadata and the readers of the next document."""
    ticket = dice.randrange(TICKETS)
    metadata: dict[str, Any] = {}
    metadata |= {"team": f"team-{ticket // 100}", "project": f"project-{ticket // 10}", "ticket": f"ticket-{ticket}"}
    metadata |= {"language": "en", "year": 2010 + dice.randrange(16), "owner": f"person-{dice.randrange(500)}"}
    # Statistics are kept for each set of readers: few sets, so that the dense retriever is what is measured.
    readers = [
        f"group:{metadata[key]}" for key, limit in (("team", 100), ("project", 10), ("ticket", 1)) if ticket < limit
    ]
    return metadata, (STAFF, *readers)


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "filters.json")
    parser.add_argument("--chunks", type=int, default=100_000, help="rows of both tenants together")
    parser.add_argument("--data", choices=["natural", *MADE], default="natural")
    arguments = parse(parser, chunks=4_000, data=SmallZipfData.name)
    say = clock()
    scratch = temporary_folder()
    model = embedder(arguments.data)
    data = load_data(arguments.data, model, say)
    prepared = Prepared({**data.questions, PROBE: model.embed_query(PROBE)}, data.dimensions)
    questions = list(data.questions)[: 12 if arguments.quick else None]
    overrides = {**ONLY[DENSE], "rag.retrieval.top_k": K}
    configured = settings(scratch, data.dimensions, overrides)
    with (
        closing(Database(configured.database)) as database,
        Engine(configured, embedder=model) as builder,
        ExitStack() as stack,
    ):
        admin = resolve_addresses(configured.database).admin or ""
        large = Share(tenant=LARGE, chunks=arguments.chunks // 2, percent=50)
        shares = [large, Share(tenant="other", chunks=arguments.chunks - large.chunks, percent=50)]
        dice = random.Random(5)
        load = publish_all(database, data, shares, prepared, say, lambda: describe(dice))
        vacuum(admin)
        indexes = build_indexes(builder, [large], say)
        vacuum(admin)
        engines = {
            (way, candidates): stack.enter_context(
                Engine(
                    settings(
                        scratch, data.dimensions, {**overrides, "rag.retrieval.candidates": candidates, CACHE: cache}
                    ),
                    embedder=prepared,
                )
            )
            for way, candidates, cache in ((OURS, K, 0), (OURS, CANDIDATES[0], 0), (IN_MEMORY, CANDIDATES[0], 256))
        }
        rows = list(measure(engines, admin, questions, data.questions, say))
    show(rows, large)
    write_results(
        arguments.json,
        {"chunks": arguments.chunks, "load": load, "indexes": indexes, "rows": [asdict(row) for row in rows]},
        default=str,
    )


def measure(
    engines: Mapping[tuple[str, int], Engine],
    admin: str,
    questions: Sequence[str],
    vectors: Mapping[str, NDArray[np.float32]],
    say: Say,
) -> Iterator[Row]:
    """Measure each condition, as a filter and as a reader, and pgvector's iterative scans under it.

    Args:
        engines: By the name of the way and the number of its candidates.
        admin: URL of the administrator.
        questions: The first fifth is asked before the measurement.
        vectors: Of the questions.
        say: Shows progress.
    """
    warm, test_questions = questions[: len(questions) // 5], questions[len(questions) // 5 :]
    test_vectors = [vectors[question] for question in test_questions]
    with connect(admin) as connection:
        pgvector = _PgVector(connection, len(test_vectors[0]), say)
        for condition in CONDITIONS:
            say(f"asking for {condition.percent:g} %")
            truth = pgvector.nearest(condition.key, condition.value, test_vectors[:_COMPARED])
            where = Filter(where={f"metadata.{condition.key}": condition.value})
            ways = (
                (f"filter on a {condition.key}", STAFF, where),
                (f"reader of a {condition.key}", f"group:{condition.value}", Filter()),
            )
            for (name, principal, reader_filter), ((way, candidates), engine) in product(ways, engines.items()):
                reader_tenant = engine.tenant(LARGE, principals=[principal])

                def ask(
                    question: str, reader_tenant: Tenant = reader_tenant, reader_filter: Filter = reader_filter
                ) -> SearchResult:
                    return reader_tenant.search(question, K, filter=reader_filter)

                time_all(ask, warm)
                if way == IN_MEMORY and len(test_questions) >= _COMPARED:
                    time_all(ask, list(islice(cycle(test_questions), _FIRST)))
                    time.sleep(_LOAD_S)
                results, times = time_all(ask, test_questions)
                rankings = [[hit.chunk_id for hit in result.hits] for result in results[:_COMPARED]]
                yield Row(
                    condition=name,
                    percent=condition.percent,
                    way=way,
                    candidates=candidates,
                    plan=Counter(result.retrievers[DENSE].plan for result in results).most_common(1)[0][0],
                    **percentiles(times),
                    in_retriever=percentiles(
                        [sum(map(result.timings_ms.get, STAGES, (0.0, 0.0))) for result in results]
                    ),
                    recall_10=recall(rankings, truth, K),
                )
            yield from pgvector.rows(condition, test_vectors, truth)


class _PgVector:
    """A table of vectors and metadata with an index of pgvector: its iterative scans, and the truth by a scan."""

    def __init__(self, connection: psycopg.Connection, dimensions: int, say: Say) -> None:
        self._connection = connection
        for words, text in (
            (
                "table",
                """CREATE TABLE bench_filters AS
                   SELECT e.chunk_id AS id, e.embedding::halfvec({}) AS embedding, d.metadata ->> 'team' AS team,
                          d.metadata ->> 'project' AS project, d.metadata ->> 'ticket' AS ticket
                     FROM kosmos.embeddings e
                     JOIN kosmos.chunks c ON c.tenant_id = e.tenant_id AND c.id = e.chunk_id
                     JOIN kosmos.documents d ON d.tenant_id = c.tenant_id AND d.id = c.document_id
                    WHERE e.tenant_id = {}""",
            ),
            ("memory of the build", "SET maintenance_work_mem = '1GB'"),
            (
                "hnsw",
                """CREATE INDEX ON bench_filters USING hnsw (embedding halfvec_ip_ops)
                     WITH (m = 16, ef_construction = 128)""",
            ),
            ("index on projects", "CREATE INDEX ON bench_filters (project)"),
            ("index on tickets", "CREATE INDEX ON bench_filters (ticket)"),
            ("statistics", "VACUUM (ANALYZE) bench_filters"),
        ):
            began = time.perf_counter()
            connection.execute(sql.SQL(text).format(sql.Literal(dimensions), sql.Literal(tenant(LARGE).id)))
            say(f"pgvector: {words} in {time.perf_counter() - began:.1f} s")

    def nearest(self, key: str, value: str, vectors: Sequence[NDArray[np.float32]]) -> list[list[UUID]]:
        """Return the true nearest chunks of each vector under a condition."""
        self._connection.execute("DROP TABLE IF EXISTS bench_truth")
        of_condition = "CREATE TEMPORARY TABLE bench_truth AS SELECT id, embedding FROM bench_filters WHERE {} = {}"
        self._connection.execute(sql.SQL(of_condition).format(sql.Identifier(key), sql.Literal(value)))
        query = "SELECT id FROM bench_truth ORDER BY embedding <#> %s LIMIT %s"
        return [
            [row[0] for row in self._connection.execute(query, [HalfVector(vector.astype(np.float16)), K])]
            for vector in vectors
        ]

    def rows(
        self, share: Condition, vectors: Sequence[NDArray[np.float32]], truth: Sequence[Sequence[UUID]]
    ) -> Iterator[Row]:
        """Measure pgvector's iterative scans, with its other settings as they are."""
        text = sql.SQL("SELECT id FROM bench_filters WHERE {} = %s ORDER BY embedding <#> %s LIMIT %s")
        query = text.format(sql.Identifier(share.key))
        for order, candidates in product(("strict_order", "relaxed_order"), CANDIDATES):
            self._connection.execute(sql.SQL("SET hnsw.iterative_scan = {}").format(sql.Literal(order)))

            def ask(vector: NDArray[np.float32], candidates: int = candidates) -> list[UUID]:
                values = [share.value, HalfVector(vector.astype(np.float16)), candidates]
                return [row[0] for row in self._connection.execute(query, values)]

            rankings, times = time_all(ask, vectors)
            yield Row(
                condition=f"filter on a {share.key}",
                percent=share.percent,
                way=f"pgvector, {order}",
                candidates=candidates,
                plan="hnsw, ef_search 40",
                **percentiles(times),
                recall_10=recall(rankings[: len(truth)], truth, K),
            )


def show(rows: Sequence[Row], large: Share) -> None:
    """Print the table."""
    table = Table(title=f"tenant of {large.chunks:,} chunks, {K} hits, milliseconds")
    measured = ("recall@10", "retriever p50, p95", "whole call p50, p95, p99")
    for name in ("condition", "leaves", "way", "candidates", "plan", *measured):
        table.add_column(name)
    for row in rows:
        in_retriever = "" if row.in_retriever is None else "{p50:.1f}, {p95:.1f}".format(**row.in_retriever)
        table.add_row(
            row.condition, f"{row.percent:g} %", row.way, str(row.candidates), row.plan, f"{row.recall_10:.3f}",
            in_retriever,
            f"{row.p50:.1f}, {row.p95:.1f}, {row.p99:.1f}",
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 190).print(table)


if __name__ == "__main__":
    main()
