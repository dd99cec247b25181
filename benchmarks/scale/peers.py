"""The alternatives on the same rows and questions: other ways in PostgreSQL, and without it.

Each works as an administrator on copies in a schema of its own: no row-level security, no joins, no passages. So they
do less work than the library, and the comparison favours them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import bm25s
import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from pgvector.psycopg import register_vector
from psycopg import sql

from benchmarks.scale.load import Say, Share
from benchmarks.scale.measure import DENSE, DEPTH, LEXICAL, Row, percentiles, recalls
from kosmos_rag.core.text import bm25
from kosmos_rag.core.text.analysis import query_text
from kosmos_rag.storage.tenants import tenant

TIMEOUT_MS = 30_000
SLOW_QUESTIONS = 20
"""As many questions are enough for a way that takes seconds."""
TEXTSEARCH = "pg_textsearch"

_OR_QUERY = """
    SELECT string_agg(quote_literal(u.lexeme), ' | ') FROM unnest(to_tsvector('english', %s)) u"""
_RANKED = """
    SELECT id FROM bench.lexical
     WHERE tenant_id = %(tenant_id)s AND tsv @@ %(query)s::tsquery
     ORDER BY ts_rank_cd(tsv, %(query)s::tsquery) DESC LIMIT %(depth)s"""
_NEAREST = """
    SELECT id FROM bench.dense WHERE tenant_id = %(tenant_id)s ORDER BY embedding <#> %(vector)s LIMIT %(depth)s"""
_FREQUENCIES = """
    SELECT l.lexemes, l.counts
      FROM bench.lexical c,
           LATERAL (SELECT coalesce(array_agg(u.lexeme), '{}') AS lexemes,
                           coalesce(array_agg(cardinality(u.positions)), '{}') AS counts
                      FROM unnest(c.tsv) u) l
     WHERE c.tenant_id = %s"""


def connect(admin: str) -> psycopg.Connection:
    """Connect as an administrator who plans each statement for its values, as the library does."""
    connection = psycopg.connect(admin, autocommit=True, prepare_threshold=None)
    register_vector(connection)
    return connection


def copy_tables(connection: psycopg.Connection, dimensions: int, say: Say) -> None:
    """Copy texts and vectors to tables with the indexes that the alternatives use."""
    type_of_vector = sql.SQL(f"halfvec({dimensions})")
    for words, command in (
        ("schema", "CREATE SCHEMA bench"),
        (
            "texts",
            # As analysed by the library: its title counts twice in a chunk.
            "CREATE TABLE bench.lexical AS SELECT tenant_id, id, text, tsv FROM kosmos.chunks",
        ),
        ("GIN index", "CREATE INDEX ON bench.lexical USING gin (tsv)"),
        ("index on tenants", "CREATE INDEX ON bench.lexical (tenant_id)"),
        (
            "vectors",
            """CREATE TABLE bench.dense AS
               SELECT tenant_id, chunk_id AS id, embedding::{} AS embedding FROM kosmos.embeddings""",
        ),
        ("ivfflat index", "CREATE INDEX ON bench.dense USING ivfflat (embedding halfvec_ip_ops) WITH (lists = 100)"),
        ("statistics", "VACUUM (ANALYZE) bench.lexical, bench.dense"),
    ):
        began = time.perf_counter()
        connection.execute(sql.SQL(command).format(type_of_vector))
        say(f"alternatives: {words} in {time.perf_counter() - began:.1f} s")


def has_textsearch(connection: psycopg.Connection) -> bool:
    """Whether the extension pg_textsearch can be used on this server: installed, and loaded with it."""
    query = """
        SELECT FROM pg_available_extensions
         WHERE name = %(name)s AND strpos(current_setting('shared_preload_libraries'), %(name)s) > 0"""
    return connection.execute(query, {"name": TEXTSEARCH}).fetchone() is not None


def lexical(connection: psycopg.Connection, share: Share, questions: Sequence[str]) -> Iterator[Row]:
    """Ask the lexical ways in PostgreSQL."""
    tenant_id = tenant(share.tenant).id
    values = [
        {
            "tenant_id": tenant_id,
            "query": (connection.execute(_OR_QUERY, [text]).fetchone() or ("",))[0],
            "depth": DEPTH,
        }
        for text in questions[:SLOW_QUESTIONS]
    ]
    plan = _plan(connection, _RANKED, values[0])
    times, _, note = _time_queries(connection, sql.SQL(_RANKED), values)
    yield Row(retriever=LEXICAL, way="ts_rank_cd", share=share, plan=plan, note=note, **percentiles(times))
    if has_textsearch(connection):
        yield _textsearch(connection, share, questions)


def _textsearch(connection: psycopg.Connection, share: Share, questions: Sequence[str]) -> Row:
    """Ask pg_textsearch, with a partial index a tenant: its statistics are the tenant's then, as ours are."""
    name, tenant_id = f"bm25_{share.tenant}", sql.Literal(tenant(share.tenant).id)
    connection.execute("CREATE EXTENSION IF NOT EXISTS pg_textsearch")
    create = """
        CREATE INDEX {} ON bench.lexical USING bm25 (text) WITH (text_config = 'english', k1 = {}, b = {})
         WHERE tenant_id = {}"""
    connection.execute(
        sql.SQL(create).format(sql.Identifier(name), sql.Literal(bm25.K1), sql.Literal(bm25.B), tenant_id)
    )
    query = """
        SELECT id FROM bench.lexical WHERE tenant_id = {}
         ORDER BY text <@> to_bm25query(%(text)s, {}) LIMIT %(depth)s"""
    statement = sql.SQL(query).format(tenant_id, sql.Literal(f"bench.{name}"))
    times, _, note = _time_queries(connection, statement, [{"text": text, "depth": DEPTH} for text in questions])
    return Row(retriever=LEXICAL, way=TEXTSEARCH, share=share, plan="Block-Max WAND", note=note, **percentiles(times))


def bm25_in_memory(
    connection: psycopg.Connection, share: Share, questions: Sequence[str]
) -> tuple[Row, list[list[float]]]:
    """Ask bm25s: the lower bound of the lexical retriever. Returns the best scores of each question too, as references.

    Its scores lack the factor k1 + 1, which is the same for all chunks and put in here.
    """
    vocabulary: dict[str, int] = {}
    chunks: list[list[int]] = []
    with connection.transaction(), connection.cursor(name="frequencies") as cursor:
        cursor.itersize = 5000
        cursor.execute(_FREQUENCIES, [tenant(share.tenant).id])
        for lexemes, counts in cursor:
            keys = [vocabulary.setdefault(lexeme, len(vocabulary)) for lexeme in lexemes]
            chunks.append([key for key, count in zip(keys, counts, strict=True) for _ in range(count)])
    index = bm25s.BM25(k1=bm25.K1, b=bm25.B, method="lucene")
    index.index((chunks, vocabulary), show_progress=False)
    terms = (
        "SELECT array_agg(t.lexeme) "
        "FROM unnest(to_tsvector('english', %s)) t, generate_series(1, cardinality(t.positions))"
    )
    queries = [(connection.execute(terms, [query_text(text).text]).fetchone() or ([],))[0] for text in questions]

    def best(words: list[str]) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = index.get_scores(words)
        return scores[_best(scores)]

    score_lists, times = time_all(best, queries)
    references = [[float(score) * (bm25.K1 + 1) for score in scores if score > 0] for scores in score_lists]
    return Row(
        retriever=LEXICAL, way="bm25s in memory", share=share, plan="all scores", **percentiles(times)
    ), references


def dense(
    connection: psycopg.Connection, share: Share, vectors: Sequence[NDArray[np.float32]], exact: Sequence[list[UUID]]
) -> Iterator[Row]:
    """Ask one ivfflat index shared by all tenants, and NumPy over the tenant's own vectors."""
    tenant_id = tenant(share.tenant).id
    values = [
        {"tenant_id": tenant_id, "vector": HalfVector(vector.astype(np.float16)), "depth": DEPTH} for vector in vectors
    ]
    connection.execute("SET ivfflat.probes = 10")
    plan = _plan(connection, _NEAREST, values[0])
    times, rankings, note = _time_queries(connection, sql.SQL(_NEAREST), values)
    # PostgreSQL may find a scan of all rows cheaper, while they are few.
    description = f"{plan}, lists 100, probes 10" if plan == "index scan" else plan
    yield Row(
        retriever=DENSE, way="shared ivfflat", share=share, plan=description, note=note,
        **percentiles(times), **recalls(rankings, exact),
    )  # fmt: skip
    matrix = _matrix(connection, share)
    numpy_rankings, times = time_all(lambda vector: _best(matrix @ vector), vectors)
    yield Row(
        retriever=DENSE,
        way="NumPy in memory",
        share=share,
        plan=f"{len(numpy_rankings[0])} of {len(matrix)}",
        **percentiles(times),
    )


def _matrix(connection: psycopg.Connection, share: Share) -> NDArray[np.float32]:
    with connection.transaction(), connection.cursor(name="vectors", binary=True) as cursor:
        cursor.itersize = 5000
        cursor.execute("SELECT embedding FROM bench.dense WHERE tenant_id = %s", [tenant(share.tenant).id])
        rows: Iterator[Any] = (vector.to_numpy() for (vector,) in cursor)
        first = next(rows).astype(np.float32)
        matrix = np.empty((share.chunks, len(first)), dtype=np.float32)
        matrix[0] = first
        for number, vector in enumerate(rows, start=1):
            matrix[number] = vector
    return matrix


def difference(scores: Sequence[Sequence[float]], references: Sequence[Sequence[float]]) -> float:
    """Return the largest relative difference of two lists of scores a question; infinite where one is longer."""
    if any(len(mine) != len(reference) for mine, reference in zip(scores, references, strict=True)):
        return float("inf")
    pairs = [pair for both in zip(scores, references, strict=True) for pair in zip(*both, strict=True)]
    return max((abs(mine - reference) / reference for mine, reference in pairs), default=0.0)


def _best(scores: NDArray[np.float32]) -> NDArray[np.intp]:
    """Return the places of the best scores, best first."""
    depth = min(DEPTH, len(scores))
    places = np.argpartition(scores, len(scores) - depth)[-depth:]
    return places[np.argsort(-scores[places])]


def time_all(answer: Callable[[Any], Any], questions: Sequence[Any]) -> tuple[list[Any], list[float]]:
    """Ask all questions one after another; returns the answers and the milliseconds of each."""
    answers, times = [], []
    for question in questions:
        began = time.perf_counter()
        answers.append(answer(question))
        times.append((time.perf_counter() - began) * 1000)
    return answers, times


def _time_queries(
    connection: psycopg.Connection, query: sql.SQL | sql.Composed, values: Sequence[dict[str, Any]]
) -> tuple[list[float], list[list[UUID]], str]:
    """Ask for each set of values, once the first has warmed up; returns milliseconds, ids, a word on the stopped."""
    connection.execute("SELECT set_config('statement_timeout', %s, false)", [str(TIMEOUT_MS)])
    stopped = 0

    def answer(values: dict[str, Any]) -> list[UUID]:
        nonlocal stopped
        try:
            return [key for (key,) in connection.execute(query, values).fetchall()]
        except psycopg.errors.QueryCanceled:
            stopped += 1
            return []

    answer(values[0])
    stopped = 0
    answers, times = time_all(answer, values)
    connection.execute("SET statement_timeout = 0")
    return times, answers, f"{stopped} of {len(values)} stopped at {TIMEOUT_MS // 1000} s" if stopped else ""


def _plan(connection: psycopg.Connection, query: str, values: dict[str, Any]) -> str:
    """Return how PostgreSQL reads the table: the innermost node of its plan."""
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {query}", values).fetchone()
    assert row is not None
    node = row[0][0]["Plan"]
    while "Plans" in node:
        node = node["Plans"][0]
    return str(node["Node Type"]).lower()
