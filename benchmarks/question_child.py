"""One side of `benchmarks.question`: answer questions with a checkout, and report the cost.

It runs with the checkout on PYTHONPATH, which may be an older one, so it uses nothing but the library.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg.waiting import Wait

from kosmos_rag import Engine, Settings
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation import load_beir
from kosmos_rag.models.testing.hashing import HashingEmbedder


def _settings(folder: Path) -> Settings:
    return Settings.load(
        overrides={
            "database.data_dir": str(folder),
            "rag.embedding.model": "hashing",
            "rag.embedding.dimensions": 384,
            "rag.reranking.enabled": False,
            "rag.retrieval.result_cache": 0,
            "indexes.vector": "none",
        }
    )


def _backend_s(engine: Engine) -> float:
    """Return the processor time of the backends that readers are connected to."""
    with psycopg.connect(engine.database.admin_conninfo) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE usename = 'kosmos_app'").fetchall()
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for (pid,) in rows) / 1e9


@contextmanager
def _count_statements(walk: dict[str, int]) -> Iterator[None]:
    """Count statements, and waits for the server to answer."""

    execute, wait = psycopg.Cursor.execute, psycopg.Connection.wait

    def executing(*args: Any, **kwargs: Any) -> Any:
        walk["statements"] += 1
        return execute(*args, **kwargs)

    def waiting(connection: Any, steps: Any, *args: Any, **kwargs: Any) -> Any:
        return wait(connection, count_waits(steps), *args, **kwargs)

    def count_waits(steps: Any) -> Any:
        ready = None
        try:
            while True:
                state = steps.send(ready)
                walk["waits"] += state == Wait.R
                ready = yield state
        except StopIteration as stop:
            return stop.value

    walk |= {"statements": 0, "waits": 0}
    with patch.object(psycopg.Cursor, "execute", executing), patch.object(psycopg.Connection, "wait", waiting):
        yield


def _answer(tenant: Tenant, questions: list[str], engine: Engine) -> dict[str, Any]:
    server, client, began = _backend_s(engine), time.process_time(), time.perf_counter()
    results = [tenant.search(question) for question in questions]
    wall, spent = time.perf_counter() - began, time.process_time() - client
    server = _backend_s(engine) - server
    hits = [
        (hit.source, hit.chunk_index, hit.text, hit.score, hit.dense_score, hit.lexical_score)
        for result in results
        for hit in result.hits
    ]
    digest = hashlib.sha256(json.dumps(hits).encode()).hexdigest()
    figures = {"client_ms": spent, "server_ms": server, "wall_ms": wall}
    return {name: 1000 * value / len(questions) for name, value in figures.items()} | {"hits": digest}


def main() -> None:
    """Store the documents, then answer the blocks of questions that the standard input names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--principals", type=int, required=True)
    parser.add_argument("--segments", action="store_true")
    arguments = parser.parse_args()
    beir = load_beir(arguments.data)
    with Engine(_settings(arguments.folder), embedder=HashingEmbedder(dimensions=384)) as engine:
        engine.tenant("acme").ingest(beir.documents(), prune=False)
        if arguments.segments:
            engine.tenant("acme").indexes.build()
        principals = ["everyone", *(f"group:{number}" for number in range(1, arguments.principals))]
        tenant, questions = engine.tenant("acme", principals=principals), [q.text for q in beir.questions.questions]
        with psycopg.connect(engine.database.admin_conninfo, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            chunks = connection.execute("SELECT count(*) FROM kosmos.chunks").fetchone()
        _answer(tenant, questions, engine)
        walk: dict[str, int] = {}
        with _count_statements(walk):
            tenant.search(questions[0])
        print(json.dumps({"questions": len(questions), "chunks": chunks and chunks[0], "walk": walk}), flush=True)
        for line in sys.stdin:
            start, stop = map(int, line.split())
            print(json.dumps(_answer(tenant, questions[start:stop], engine)), flush=True)


if __name__ == "__main__":
    main()
